// What cuDNN offers for the convolutions of the zoo on an H200, which need not be here: cuDNN plans
// for a GPU that it knows by its properties alone. Nothing is launched.
#include "worker/backend/cuda/libraries/cudnn_convolution.h"

#include <dlfcn.h>

#include <catch2/catch.hpp>
#include <map>
#include <string>
#include <vector>

#include "tests/support/log_lines.h"
#include "tests/worker/backend/cuda/libraries/absent_h200.h"
#include "tests/worker/backend/model_program.h"
#include "worker/backend/cuda/libraries/plan_cache.h"

namespace ringmaster::cuda {
namespace {

using graph::Activation;
using graph::DType;
using testing::AbsentH200;
using testing::kH200;

// Of the models, each once.
std::map<std::string, ConvolutionShape> ZooShapes() {
  std::map<std::string, ConvolutionShape> shapes;
  for (const char* model : {"alexnet", "vgg"}) {
    for (const v1::Policy policy : {v1::POLICY_FLOAT32, v1::POLICY_MIXED_BFLOAT16}) {
      const auto program = testing::ModelProgram({.name = model, .samples = 64, .policy = policy});
      REQUIRE(Message(program.status()) == "");
      for (const graph::Node& node : program->graph.nodes()) {
        const auto shape = ConvolutionOf(program->graph, node);
        if (shape) shapes.emplace(node.op() + (" " + Key(*shape)), *shape);
      }
    }
  }
  return shapes;
}

ConvolutionShape Odd(ConvolutionPass pass, DType type) {
  return ConvolutionShape::Of(pass, {2, 1, 0, 1, 2, 3}, {3, 9, 8, 5}, {7, 3, 5, 5}, type);
}

}  // namespace

TEST_CASE("cuDNN convolution: every one of the zoo has an engine, without a row of the table") {
  const CudnnDescriptor properties = AbsentH200();
  const CudnnTarget target = {.properties = &properties};
  for (const auto& [name, shape] : ZooShapes()) {
    INFO(name);
    const auto chosen = ChooseConvolution(target, kH200, {shape, std::nullopt});
    REQUIRE(Message(chosen.status()) == "");
    CHECK(chosen->plan.workspace_bytes() <= kConvolutionWorkspaceCap);
  }
}

TEST_CASE("cuDNN convolution: the compiler of engines stays loaded once there is a graph") {
  const CudnnDescriptor properties = AbsentH200();
  REQUIRE(ConvolutionGraph::Create({.properties = &properties},
                                   Odd(ConvolutionPass::kForward, DType::kFloat32))
              .ok());
  const std::string name = fmt::format("libnvrtc.so.{}", CUDART_VERSION / 1000);
  void* const loaded = dlopen(name.c_str(), RTLD_NOW | RTLD_NOLOAD);
  CHECK((loaded != nullptr) == (CudnnCompiler() != "none"));
}

TEST_CASE("cuDNN convolution: where nothing compiles engines the log says so") {
  const testing::LogLines lines;
  CHECK(LoadCudnnCompiler("libringmaster_has_no_such_compiler.so") == "none");
  CHECK(lines.text().find("libringmaster_has_no_such_compiler.so: cannot open") !=
        std::string::npos);
  CHECK(lines.count() == 1);
}

TEST_CASE("cuDNN convolution: uneven strides, pads and channels have an engine in every type") {
  const CudnnDescriptor properties = AbsentH200();
  const CudnnTarget target = {.properties = &properties};
  for (const auto pass : {ConvolutionPass::kForward, ConvolutionPass::kInputGradient,
                          ConvolutionPass::kWeightGradient}) {
    for (const DType type : {DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
      ConvolutionShape shape = Odd(pass, type);
      shape.bias = pass == ConvolutionPass::kForward;
      if (pass == ConvolutionPass::kWeightGradient) shape.result = DType::kFloat32;
      INFO(Name(pass) << " " << Key(shape));
      CHECK(Message(ChooseConvolution(target, kH200, {shape, std::nullopt}).status()) == "");
    }
  }
}

TEST_CASE("cuDNN convolution: groups and dilations have an engine in every type") {
  const CudnnDescriptor properties = AbsentH200();
  const CudnnTarget target = {.properties = &properties};
  struct Grouped {
    int64_t channels, filters, groups, window, stride, dilation;
  };
  // Groups of whole vectors, of a few channels, of odd ones, of one filter.
  for (const Grouped& g : {Grouped{256, 256, 32, 3, 2, 1},
                           {128, 128, 32, 3, 1, 1},
                           {24, 24, 2, 1, 1, 1},
                           {10, 20, 5, 3, 1, 1},
                           {66, 33, 33, 3, 1, 1},
                           {15, 15, 3, 3, 1, 3},
                           {4, 4, 2, 3, 2, 2},
                           {64, 64, 1, 3, 1, 2},
                           {2, 3, 1, 3, 1, 2}}) {
    graph::Conv2dAttributes attributes = {{g.stride, g.stride}, {1, 1, 1, 1}};
    if (g.window == 1) attributes.pads = {};
    attributes.groups = g.groups;
    attributes.dilations = {g.dilation, g.dilation};
    for (const auto pass : {ConvolutionPass::kForward, ConvolutionPass::kInputGradient,
                            ConvolutionPass::kWeightGradient}) {
      for (const DType type : {DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
        ConvolutionShape shape =
            ConvolutionShape::Of(pass, attributes, {32, 14, 14, g.channels},
                                 {g.filters, g.window, g.window, g.channels / g.groups}, type);
        shape.bias = pass == ConvolutionPass::kForward;
        if (pass == ConvolutionPass::kWeightGradient) shape.result = DType::kFloat32;
        INFO(Name(pass) << " " << Key(shape));
        CHECK(Message(ChooseConvolution(target, kH200, {shape, std::nullopt}).status()) == "");
      }
    }
  }
}

TEST_CASE("cuDNN convolution: float32 is offered nothing less than float32") {
  const CudnnDescriptor properties = AbsentH200();
  const auto graph = ConvolutionGraph::Create({.properties = &properties},
                                              Odd(ConvolutionPass::kForward, DType::kFloat32));
  REQUIRE(Message(graph.status()) == "");
  const auto candidates = graph->Candidates();
  REQUIRE(Message(candidates.status()) == "");
  CHECK(!candidates->empty());
  for (const auto& candidate : *candidates) {
    INFO(ToString(candidate.choice));
    CHECK(Refusal(candidate.notes, DType::kFloat32).empty());
  }
}

TEST_CASE("cuDNN convolution: an engine written down makes the plan of the candidate it was") {
  const CudnnDescriptor properties = AbsentH200();
  const CudnnTarget target = {.properties = &properties};
  const ConvolutionShape shape =
      ConvolutionShape::Of(ConvolutionPass::kForward, {1, 1, 1, 1, 1, 1}, {64, 16, 16, 96},
                           {256, 3, 3, 96}, DType::kBFloat16);
  const auto graph = ConvolutionGraph::Create(target, shape);
  REQUIRE(Message(graph.status()) == "");
  const auto candidates = graph->Candidates();
  REQUIRE(Message(candidates.status()) == "");
  REQUIRE(candidates->size() > 20);  // engines with many settings: they are read, and told apart
  int with_knobs = 0;
  for (const auto& candidate : *candidates) {
    INFO(ToString(candidate.choice));
    const auto parsed = ParseEngineChoice(ToString(candidate.choice));
    REQUIRE(Message(parsed.status()) == "");
    const auto plan = graph->Finalize(candidate);
    const auto again = graph->Finalize(*parsed);
    REQUIRE(plan.ok() == again.ok());
    if (!plan.ok()) continue;
    CHECK(plan->workspace_bytes() == again->workspace_bytes());
    if (!parsed->knobs.empty()) ++with_knobs;
  }
  CHECK(with_knobs > 20);
}

TEST_CASE("cuDNN convolution: a plan that is written down is restored without its engine's name") {
  const CudnnDescriptor properties = AbsentH200();
  const CudnnTarget target = {.properties = &properties};
  for (const auto pass : {ConvolutionPass::kForward, ConvolutionPass::kInputGradient,
                          ConvolutionPass::kWeightGradient}) {
    const PlanRequest request = {Odd(pass, DType::kBFloat16), std::nullopt};
    INFO(Key(request));
    const auto chosen = ChooseConvolution(target, kH200, request);
    REQUIRE(Message(chosen.status()) == "");
    const auto written = chosen->plan.Written();
    REQUIRE(Message(written.status()) == "");
    const auto restored = RestoreConvolution(target, request, chosen->choice, *written);
    REQUIRE(Message(restored.status()) == "");
    CHECK(restored->choice == chosen->choice);
    CHECK(restored->plan.workspace_bytes() == chosen->plan.workspace_bytes());
    CHECK(restored->plan.Written().value() == *written);
    CHECK_FALSE(RestoreConvolution(target, request, chosen->choice, "{}").ok());
  }
}

TEST_CASE("cuDNN convolution: made side by side the plans are those made one by one") {
  const CudnnDescriptor properties = AbsentH200();
  const CudnnTarget target = {.properties = &properties};
  std::vector<PlanRequest> requests;
  for (const auto& [name, shape] : ZooShapes()) {
    if (shape.type == DType::kBFloat16) requests.push_back({shape, std::nullopt});
  }
  PlanCache cache(
      {.make =
           [&](const PlanRequest& request) { return ChooseConvolution(target, kH200, request); },
       .threads = 4});
  cache.Prepare(requests);
  for (const PlanRequest& request : requests) {
    INFO(Key(request));
    const auto cached = cache.Get(request);
    REQUIRE(Message(cached.status()) == "");
    const auto alone = ChooseConvolution(target, kH200, request);
    REQUIRE(Message(alone.status()) == "");
    CHECK((*cached)->choice == alone->choice);
    CHECK((*cached)->plan.workspace_bytes() == alone->plan.workspace_bytes());
  }
}

TEST_CASE("cuDNN convolution: the table's row is followed, and one that cannot be is an error") {
  const CudnnDescriptor properties = AbsentH200();
  const CudnnTarget target = {.properties = &properties};
  const ConvolutionShape shape =
      Apply(Odd(ConvolutionPass::kForward, DType::kBFloat16), ConvolutionVariant{});
  const auto first = ChooseConvolution(target, kH200, {shape, std::nullopt});
  REQUIRE(Message(first.status()) == "");

  const ConvolutionVariant padded = {.padded = true};
  const auto graph = ConvolutionGraph::Create(target, Apply(shape, padded));
  REQUIRE(Message(graph.status()) == "");
  const auto candidates = graph->Candidates();
  REQUIRE(Message(candidates.status()) == "");
  REQUIRE(candidates->size() > 1);
  const ConvolutionChoice row = {padded, candidates->back().choice};
  REQUIRE(!(row == first->choice));
  const auto chosen = ChooseConvolution(target, kH200, {shape, row});
  REQUIRE(Message(chosen.status()) == "");
  CHECK(chosen->choice == row);

  const auto wrong =
      ChooseConvolution(target, kH200, {shape, ConvolutionChoice{padded, {9999, {}}}});
  CHECK(absl::IsFailedPrecondition(wrong.status()));
  CHECK(Message(wrong.status()).find("engine 9999") != std::string::npos);
  CHECK(Message(wrong.status()).find("ringctl tune") != std::string::npos);
}

}  // namespace ringmaster::cuda
