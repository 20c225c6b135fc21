#include "common/zoo/model_table.h"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "tests/support/model_option.h"
#include "tests/support/zoo_program.h"

namespace ringmaster::zoo {
namespace {

v1::Model Mlp(const std::vector<int64_t>& hidden) {
  v1::Model model = Model("mlp");
  testing::SetHidden(hidden, &model);
  return model;
}

graph::Program Build(const v1::Model& model, const ProgramOptions& options) {
  auto program = BuildProgram(model, options);
  INFO(program.status().ToString());
  REQUIRE(program.ok());
  return std::move(program).value();
}

std::vector<std::string> ParameterNames(const graph::Program& program) {
  std::vector<std::string> names;
  for (const auto& parameter : program.parameters) names.push_back(parameter.name);
  return names;
}

std::string ResolveError(const v1::Model& model) {
  const auto resolved = ResolveModel(model);
  REQUIRE(resolved.status().code() == absl::StatusCode::kInvalidArgument);
  return Message(resolved.status());
}

bool Contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST_CASE("Zoo: alexnet has the parameters of its layer table") {
  const graph::Program program = Build(Model("alexnet"), {.samples = 2});
  CHECK(ParameterCount(program) == 3324298);
  CHECK(ParameterNames(program) ==
        std::vector<std::string>{"conv1/kernel", "conv1/bias", "conv2/kernel", "conv2/bias",
                                 "conv3/kernel", "conv3/bias", "conv4/kernel", "conv4/bias",
                                 "conv5/kernel", "conv5/bias", "fc/kernel", "fc/bias"});
  CHECK(program.parameters[2].shape == graph::Shape{256, 3, 3, 96});
  CHECK(program.parameters[2].initializer.scale == graph::GlorotUniform(9 * 96, 9 * 256).scale);
  CHECK(program.normalizations.empty());
}

TEST_CASE("Zoo: batch_norm replaces the biases of alexnet's convolutions") {
  v1::Model model = Model("alexnet");
  testing::SetOption("batch_norm", true, &model);
  const graph::Program program = Build(model, {.samples = 2});
  // 1,376 filters: each loses its bias and gains gamma and beta.
  CHECK(ParameterCount(program) == 3324298 + 1376);
  CHECK(ParameterNames(program)[1] == "bn1/gamma");
  CHECK(ParameterNames(program)[2] == "bn1/beta");
  CHECK(program.parameters[1].initializer.scale == 1);
  REQUIRE(program.normalizations.size() == 5);
  CHECK(program.normalizations[2].name == "bn3");
  CHECK(program.normalizations[2].channels == 384);
  CHECK(program.normalizations[2].momentum == 0.99);
}

TEST_CASE("Zoo: mlp with no hidden layer is linear") {
  const graph::Program program = Build(Mlp({}), {.samples = 2});
  CHECK(ParameterCount(program) == 3072 * 10 + 10);
  CHECK(ParameterNames(program) == std::vector<std::string>{"fc/kernel", "fc/bias"});
}

TEST_CASE("Zoo: mlp has two hidden layers of 2048 by default") {
  const graph::Program program = Build(Model("mlp"), {.samples = 2});
  CHECK(ParameterCount(program) == 3072 * 2048 + 2048 + 2048 * 2048 + 2048 + 2048 * 10 + 10);
}

TEST_CASE("Zoo: parameters are the same whatever samples, mode and policy") {
  for (v1::Model model : {Model("alexnet"), Mlp({7, 5})}) {
    testing::SetOption("dropout", 0.2, &model);
    if (model.name() == "alexnet") testing::SetOption("batch_norm", true, &model);
    const graph::Program first = Build(model, {.samples = 2});
    for (v1::Policy policy :
         {v1::POLICY_FLOAT32, v1::POLICY_MIXED_BFLOAT16, v1::POLICY_MIXED_FLOAT16}) {
      for (graph::Mode mode : {graph::Mode::kTraining, graph::Mode::kInference}) {
        ProgramOptions options = {.samples = 2};
        options.samples = 5;
        options.policy = policy;
        options.mode = mode;
        const graph::Program other = Build(model, options);
        CHECK(ParameterNames(other) == ParameterNames(first));
        for (size_t i = 0; i < other.parameters.size(); ++i) {
          CHECK(other.parameters[i].shape == first.parameters[i].shape);
        }
        CHECK(other.normalizations.size() == first.normalizations.size());
        if (mode == graph::Mode::kTraining) CHECK(other.gradient_order == first.gradient_order);
      }
    }
  }
}

TEST_CASE("Zoo: an inference program has no gradients, dropout or batch statistics") {
  v1::Model model = Model("alexnet");
  testing::SetOption("batch_norm", true, &model);
  testing::SetOption("dropout", 0.5, &model);
  ProgramOptions options = {.samples = 2};
  options.mode = graph::Mode::kInference;
  const graph::Program program = Build(model, options);
  CHECK(program.seeds.empty());
  CHECK(program.gradient_order.empty());
  for (const auto& parameter : program.parameters) CHECK(parameter.gradient == graph::kNoValue);
  for (const auto& normalization : program.normalizations) {
    CHECK(normalization.batch_mean == graph::kNoValue);
    CHECK(normalization.moving_mean != graph::kNoValue);
    CHECK(program.graph.value(normalization.moving_variance).producer == graph::kFed);
  }
  for (const auto& node : program.graph.nodes()) {
    CHECK(node.as<graph::Dropout>() == nullptr);
    CHECK(node.as<graph::BatchNorm>() == nullptr);
  }
}

TEST_CASE("Zoo: a mixed policy keeps gradients, normalization and loss in float32") {
  using graph::DType;
  const auto [policy, compute] =
      GENERATE(table<v1::Policy, DType>({{v1::POLICY_MIXED_BFLOAT16, DType::kBFloat16},
                                         {v1::POLICY_MIXED_FLOAT16, DType::kFloat16}}));
  v1::Model model = Model("alexnet");
  testing::SetOption("batch_norm", true, &model);
  ProgramOptions options = {.samples = 2};
  options.policy = policy;
  const graph::Program program = Build(model, options);
  for (const auto& parameter : program.parameters) {
    const bool kernel = Contains(parameter.name, "kernel");
    INFO(parameter.name);
    CHECK(program.graph.value(parameter.value).dtype == (kernel ? compute : DType::kFloat32));
    CHECK(program.graph.value(parameter.gradient).dtype == DType::kFloat32);
  }
  CHECK(program.graph.value(program.fed("image")).dtype == DType::kFloat32);
  CHECK(program.graph.value(program.scalars[0].value).dtype == DType::kFloat32);
  CHECK(program.graph.value(program.normalizations[0].batch_mean).dtype == DType::kFloat32);
}

TEST_CASE("Zoo: resolving fills every default of the model") {
  const auto alexnet = ResolveModel(Model("alexnet"));
  REQUIRE(alexnet.ok());
  REQUIRE(alexnet->options_size() == 2);
  CHECK(alexnet->options(0).has_b());
  CHECK_FALSE(alexnet->options(0).b());
  CHECK(alexnet->options(1).has_f());
  const auto mlp = ResolveModel(Model("mlp"));
  REQUIRE(mlp.ok());
  REQUIRE(mlp->options_size() == 2);
  CHECK(mlp->options(1).ints().values_size() == 2);
  const auto linear = ResolveModel(Mlp({}));
  REQUIRE(linear.ok());
  CHECK(linear->options(1).has_ints());
  CHECK(linear->options(1).ints().values_size() == 0);
}

TEST_CASE("Zoo: an unknown model names the models and the nearest") {
  const std::string error = ResolveError(Model("alexnte"));
  CHECK(Contains(error, "alexnte"));
  CHECK(Contains(error, "did you mean alexnet"));
  CHECK(Contains(error, "`ringctl model ls` lists all"));
  CHECK(Contains(ResolveError(Model("mpl")), "did you mean mlp"));
  CHECK(Contains(ResolveError(Model("")), "missing"));
}

TEST_CASE("Zoo: an option that the model does not have is named") {
  v1::Model model = Mlp({8});
  testing::SetOption("batch_norm", false, &model);
  CHECK(Contains(ResolveError(model), "model mlp: unknown option \"batch_norm\""));
  model = Model("alexnet");
  testing::SetHidden({}, &model);
  CHECK(Contains(ResolveError(model), "model alexnet: unknown option \"hidden\""));
}

TEST_CASE("Zoo: options out of range are refused") {
  v1::Model model = Model("alexnet");
  for (double rate : {-0.1, 1.0, std::numeric_limits<double>::quiet_NaN()}) {
    testing::SetOption("dropout", rate, &model);
    CHECK(Contains(ResolveError(model), "dropout"));
  }
  CHECK(Contains(ResolveError(Mlp({4, 0})), "hidden"));
  CHECK(Contains(ResolveError(Mlp(std::vector<int64_t>(65, 4))), "hidden"));
}

TEST_CASE("Zoo: a program that cannot be built says why") {
  ProgramOptions options = {.samples = 2};
  options.samples = 0;
  CHECK_FALSE(BuildProgram(Model("alexnet"), options).ok());
  options = {.samples = 2};
  options.data.height = 3;  // too small for two pools
  const auto small = BuildProgram(Model("alexnet"), options);
  REQUIRE_FALSE(small.ok());
  CHECK(Contains(Message(small.status()), "pool2"));
  options = {.samples = 2};
  options.policy = v1::POLICY_UNSPECIFIED;
  CHECK_FALSE(BuildProgram(Model("alexnet"), options).ok());
}

}  // namespace
}  // namespace ringmaster::zoo
