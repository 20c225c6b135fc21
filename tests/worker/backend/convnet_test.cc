// The ops that convnets of the last years are made of, together: one small net of all of them
// through autodiff, policy, fusion and memory plan, against the float64 reference.
#include <algorithm>
#include <catch2/catch.hpp>
#include <string>

#include "common/graph/autodiff.h"
#include "common/graph/passes/passes.h"
#include "tests/support/bound_program.h"
#include "tests/support/program_feeds.h"
#include "tests/support/relative_error.h"
#include "tests/worker/backend/backend_under_test.h"

namespace ringmaster {
namespace {

using graph::DType;
using graph::Kind;
using graph::Shape;
using graph::ValueId;

constexpr int64_t kSamples = 3;

// Makes the program node by node; REQUIREs what AddOp says.
class Net {
 public:
  Net() {
    program.samples = kSamples;
    program.columns = {
        {"image", program.graph.AddFed("image", {kSamples, 8, 8, 3}, DType::kFloat32)},
        {"label", program.graph.AddFed("label", {kSamples}, DType::kInt32), 0, 10}};
  }

  ValueId Parameter(const std::string& name, const Shape& shape,
                    graph::Initializer initializer = {}) {
    const ValueId value = program.graph.AddFed(name, shape, DType::kFloat32);
    program.parameters.push_back({name, shape, value, graph::kNoValue, initializer});
    return value;
  }
  ValueId Ones(const std::string& name, int64_t channels) {
    return Parameter(name, {channels}, {.scale = 1});
  }
  ValueId Kernel(const std::string& name, const Shape& shape, int64_t fan) {
    return Parameter(name, shape, graph::GlorotUniform(fan, fan));
  }

  std::vector<ValueId> AddAll(const std::string& name, const Kind& kind,
                              const std::vector<ValueId>& inputs) {
    const auto made = graph::AddOp(&program.graph, {name, kind, inputs});
    REQUIRE(Message(made.status()) == "");
    return *made;
  }
  ValueId Add(const std::string& name, const Kind& kind, const std::vector<ValueId>& inputs) {
    return AddAll(name, kind, inputs).front();
  }

  // In float32 under every policy.
  ValueId AddExact(const std::string& name, const Kind& kind, const std::vector<ValueId>& inputs) {
    const ValueId made = Add(name, kind, inputs);
    program.graph.mutable_node(program.graph.value(made).producer).float32 = true;
    return made;
  }

  graph::Program program;
};

graph::Conv2d Same3x3(int64_t groups, int64_t dilation) {
  graph::Conv2d conv;
  conv.pads = {dilation, dilation, dilation, dilation};
  conv.groups = groups;
  conv.dilations = {dilation, dilation};
  return conv;
}

// Squeeze and excite: channels are weighed by what the whole image says.
ValueId SqueezeExcite(Net* net, ValueId x) {
  ValueId s = net->Add("se/pool", graph::GlobalAveragePool{.keep_dims = true}, {x});
  s = net->Add("se/reduce", graph::Conv2d{},
               {s, net->Kernel("se/reduce/kernel", {4, 1, 1, 8}, 6), net->Ones("se/bias", 4)});
  s = net->Add("se/swish", graph::Swish{}, {s});
  s = net->Add("se/expand", graph::Conv2d{}, {s, net->Kernel("se/expand/kernel", {8, 1, 1, 4}, 6)});
  s = net->Add("se/sigmoid", graph::Sigmoid{}, {s});
  return net->Add("se/multiply", graph::Multiply{}, {x, s});
}

// A depthwise block with a residual that a sample may go without.
ValueId Block(Net* net, ValueId x) {
  ValueId y =
      net->Add("depthwise", Same3x3(8, 1), {x, net->Kernel("depthwise/kernel", {8, 3, 3, 1}, 9)});
  y = net->Add("gelu", graph::Gelu{}, {y});
  y = SqueezeExcite(net, y);
  y = net->Add("drop_connect", graph::Dropout{{0.4, "drop_connect", true}}, {y});
  return net->Add("residual", graph::Add{}, {x, y});
}

// Branches that meet again, and a step to the side.
ValueId Branches(Net* net, ValueId x) {
  const auto parts = net->AddAll("split", graph::Split{3, {3, 5}}, {x});
  const ValueId pooled =
      net->Add("average_pool", graph::AveragePool{{{3, 3}, {1, 1}, {1, 1, 1, 1}}}, {parts[0]});
  const ValueId bent = net->Add("elu", graph::Elu{}, {parts[1]});
  const ValueId joined = net->Add("concat", graph::Concat{3}, {pooled, bent});
  const ValueId padded = net->Add("pad", graph::Pad{{0, 1, 0, 1, 0, 0}}, {joined});
  return net->Add("slice", graph::Slice{{1, 0, 0}, {9, 8, 8}}, {padded});
}

graph::Program MakeNet(DType compute) {
  Net net;
  ValueId x = net.Add("stem", Same3x3(1, 1),
                      {net.program.fed("image"), net.Kernel("stem/kernel", {8, 3, 3, 3}, 27)});
  x = net.Add("group_norm", graph::GroupNorm{{{}, 2}},
              {x, net.Ones("group_norm/gamma", 8), net.Parameter("group_norm/beta", {8})});
  x = net.Add("swish", graph::Swish{}, {x});
  x = Branches(&net, Block(&net, x));
  const ValueId shared = net.Kernel("grouped/kernel", {8, 3, 3, 4}, 36);
  x = net.Add("grouped", Same3x3(2, 2), {x, shared});
  x = net.AddExact("again", Same3x3(2, 2), {x, shared});
  x = net.Add("layer_norm", graph::LayerNorm{{.center = false}},
              {x, net.Ones("layer_norm/gamma", 8)});
  x = net.Add("scale", graph::Multiply{}, {x, net.Ones("scale/gamma", 8)});
  x = net.Add("position", graph::Add{}, {x, net.Parameter("position/table", {8, 8, 8})});
  x = net.Add("softmax", graph::Softmax{}, {x});
  x = net.Add("pool", graph::GlobalAveragePool{}, {x});
  x = net.AddExact("head", graph::Dense{}, {x, net.Kernel("head/kernel", {8, 10}, 1)});
  REQUIRE(Message(testing::AddLossOf(x, &net.program)) == "");
  REQUIRE(Message(graph::Differentiate(&net.program)) == "");
  REQUIRE(Message(graph::ApplyPolicy(&net.program, compute)) == "");
  graph::FuseActivations(&net.program);
  graph::RemoveDeadNodes(&net.program);
  return std::move(net.program);
}

// The largest error of a gradient, of the whole vector of them: a small one may be noise.
double GradientError(const graph::Program& program, const testing::Way& way,
                     graph::Rounding rounding) {
  const auto feeds = testing::FeedProgram(program, {.loss_seed = 0.25});
  const auto keys = testing::KeysOf(program);
  const auto expected = graph::RunReference(program.graph, feeds, keys, rounding);
  REQUIRE(Message(expected.status()) == "");
  auto bound = testing::BoundProgram::Create(*way.backend, program,
                                             {.name = "core0", .threads = way.threads});
  REQUIRE(Message(bound.status()) == "");
  const auto result = (*bound)->Run(feeds, keys);
  REQUIRE(Message(result.status()) == "");
  double worst = 0;
  for (size_t p = 0; p < program.parameters.size(); ++p) {
    const auto& gradient = (*expected)[static_cast<size_t>(program.parameters[p].gradient)];
    const double error = testing::RelativeError<float>(result->gradients[p], gradient);
    UNSCOPED_INFO(program.parameters[p].name << " " << error);
    worst = std::max(worst, error);
  }
  return worst;
}

}  // namespace

TEST_CASE("Convnet: gradients of a net of all ops agree with the reference") {
  const std::pair<DType, double> bounds[] = {
      {DType::kFloat32, 1e-5}, {DType::kBFloat16, 1e-1}, {DType::kFloat16, 1e-2}};
  for (const auto& [compute, bound] : bounds) {
    const auto ways = testing::WaysFor(compute);
    REQUIRE(Message(ways.status()) == "");
    for (const testing::Way& way : *ways) {
      INFO(graph::Name(compute) << ", " << way.name);
      CHECK(GradientError(MakeNet(compute), way, graph::Rounding::kDeclared) < bound);
    }
  }
}

TEST_CASE("Convnet: a policy leaves scales, statistics and gradients of parameters in float32") {
  const graph::Program program = MakeNet(DType::kBFloat16);
  for (const graph::Parameter& parameter : program.parameters) {
    INFO(parameter.name);
    CHECK(program.graph.value(parameter.gradient).dtype == DType::kFloat32);
    const bool norm = parameter.name.find("_norm/") != std::string::npos;
    const bool bias = parameter.name == "se/bias", head = parameter.name == "head/kernel",
               shared = parameter.name == "grouped/kernel";
    CHECK((program.graph.value(parameter.value).dtype == DType::kFloat32) ==
          (norm || bias || head || shared));
  }
  for (const graph::Node& node : program.graph.nodes()) {
    // What is float32 by itself computes its gradients so, and those of a shared kernel are added
    // so.
    const bool exact = node.name.starts_with("head") || node.name.starts_with("again") ||
                       node.name == "grouped/kernel/gradient_sum";
    for (const ValueId input : node.inputs) {
      if (exact) CHECK(program.graph.value(input).dtype == DType::kFloat32);
    }
    // No gradient of a parameter was rounded to 16 bits on its way.
    if (node.as<graph::Cast>() == nullptr) continue;
    for (const graph::Parameter& parameter : program.parameters) {
      CHECK(node.outputs[0] != parameter.gradient);
    }
  }
}

}  // namespace ringmaster
