// cuDNN's plans for every convolution of the zoo on an H200 that need not be here: all models at
// the size that their authors gave them, all passes, every policy; one of them at the batches that
// fill such a GPU, too. Nothing is launched.
//
// Two forms exist on a device alone, because the engines that have them are compiled for it when
// they are planned: in 16 bits a convolution with its bias and activation, and a gradient of
// weights written in float32. Without one they are planned in the form that stands behind them, and
// their names are printed.
#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <cstdio>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "common/zoo/model_table.h"
#include "tests/support/zoo_program.h"
#include "tests/worker/backend/cuda/libraries/absent_h200.h"
#include "worker/backend/cuda/libraries/cudnn_convolution.h"

namespace ringmaster::cuda {
namespace {

constexpr int64_t kZooSamples = 32;
constexpr const char* kLargeModel = "resnet50v1.5";
constexpr int64_t kLargeSamples[] = {256, 400};

struct ZooConvolutions {
  // What is planned, and a node that wants it: `resnet50 of 32 conv1`.
  std::map<std::string, std::pair<ConvolutionShape, std::string>> planned;
  std::map<std::string, std::string> only_on_device;  // likewise
  int models = 0;
};

void AddNode(const std::string& who, const ConvolutionShape& whole, ZooConvolutions* all) {
  const auto name = [](const ConvolutionShape& shape) {
    return fmt::format("{} {}", Name(shape.pass), Key(shape));
  };
  const ConvolutionShape part = PartOf(whole, PartsOf(whole));
  ConvolutionShape shape = part;
  if (shape.type != graph::DType::kFloat32) {
    shape.bias = false;
    shape.attributes.activation = graph::Activation::kNone;
    shape.result = shape.type;
  }
  if (name(shape) != name(part)) all->only_on_device.emplace(name(part), who);
  all->planned.emplace(name(shape), std::make_pair(shape, who));
}

void AddModel(const zoo::Entry& model, int64_t samples, v1::Policy policy, ZooConvolutions* all) {
  INFO(model.name << " of " << samples);
  const auto program = zoo::BuildProgram(
      zoo::Model(model.name), {.samples = samples, .data = model.usual, .policy = policy});
  REQUIRE(Message(program.status()) == "");
  for (const graph::Node& node : program->graph.nodes()) {
    const auto shape = ConvolutionOf(program->graph, node);
    // Depthwise ones are own kernels.
    if (!shape || shape->is_depthwise()) continue;
    AddNode(fmt::format("{} of {} {}", model.name, samples, node.name), *shape, all);
  }
}

}  // namespace

TEST_CASE("Zoo plans: every convolution of every model has an engine on an H200", "[nightly]") {
  const auto began = std::chrono::steady_clock::now();
  ZooConvolutions convolutions;
  for (const zoo::Entry& model : zoo::ModelTable()) {
    ++convolutions.models;
    for (const v1::Policy policy :
         {v1::POLICY_FLOAT32, v1::POLICY_MIXED_BFLOAT16, v1::POLICY_MIXED_FLOAT16}) {
      AddModel(model, kZooSamples, policy, &convolutions);
    }
  }
  CHECK(convolutions.models > 20);
  CHECK(convolutions.planned.size() > 3000);
  const size_t usual = convolutions.planned.size();
  for (const zoo::Entry& model : zoo::ModelTable()) {
    if (model.name != kLargeModel) continue;
    for (const int64_t samples : kLargeSamples) {
      for (const v1::Policy policy :
           {v1::POLICY_FLOAT32, v1::POLICY_MIXED_BFLOAT16, v1::POLICY_MIXED_FLOAT16}) {
        AddModel(model, samples, policy, &convolutions);
      }
    }
  }
  // 53 convolutions a net, of which some are alike.
  CHECK(convolutions.planned.size() > usual + 300);

  const CudnnDescriptor properties = testing::AbsentH200();
  const CudnnTarget target = {.properties = &properties};
  std::vector<std::string> without;
  std::map<std::string, int> ways;
  for (const auto& [name, planned] : convolutions.planned) {
    const auto& [shape, who] = planned;
    const auto chosen = ChooseConvolution(target, testing::kH200, {shape, std::nullopt});
    if (chosen.ok()) {
      ++ways[fmt::format("{} {}", Name(shape.pass), Describe(chosen->choice.variant))];
    } else {
      without.push_back(fmt::format("{}: {}", who, Message(chosen.status())));
    }
  }

  for (const auto& [name, who] : convolutions.only_on_device) {
    std::printf("only on a device: %s (%s)\n", name.c_str(), who.c_str());
  }
  for (const auto& [way, count] : ways) std::printf("%5d %s\n", count, way.c_str());
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - began;
  std::printf("%zu convolutions of %d models in %.0f s; %zu forms exist on a device alone\n",
              convolutions.planned.size(), convolutions.models, seconds.count(),
              convolutions.only_on_device.size());
  for (const std::string& line : without) UNSCOPED_INFO("no engine: " << line);
  CHECK(without.empty());
}

}  // namespace ringmaster::cuda
