// Whole models on the backend under test: against the float64 reference, and how the seam behaves.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>

#include "tests/support/bound_program.h"
#include "tests/support/program_feeds.h"
#include "tests/support/relative_error.h"
#include "tests/support/small_models.h"
#include "tests/worker/backend/backend_under_test.h"
#include "tests/worker/backend/model_program.h"

namespace ringmaster {
namespace {

using testing::ModelChoice;

std::vector<testing::Way> Ways(graph::DType compute) {
  auto ways = testing::WaysFor(compute);
  REQUIRE(Message(ways.status()) == "");
  return *std::move(ways);
}

struct Comparison {
  double loss = 0;
  double worst_gradient = 0;
  double worst_statistics = 0;
};

Comparison Compare(const StatusOr<graph::Program>& program, graph::Rounding rounding,
                   const testing::Way& way, int64_t classes = 10) {
  REQUIRE(Message(program.status()) == "");
  const auto feeds = testing::FeedProgram(*program, {.classes = classes, .loss_seed = 0.25});
  const auto keys = testing::KeysOf(*program);
  const auto expected = graph::RunReference(program->graph, feeds, keys, rounding);
  REQUIRE(Message(expected.status()) == "");
  const auto at = [&](graph::ValueId id) { return (*expected)[static_cast<size_t>(id)]; };

  auto bound = testing::BoundProgram::Create(*way.backend, *program,
                                             {.name = "core0", .threads = way.threads});
  REQUIRE(Message(bound.status()) == "");
  const auto result = (*bound)->Run(feeds, keys);
  REQUIRE(Message(result.status()) == "");

  Comparison comparison;
  const double loss = at(program->scalars[0].value)[0];
  comparison.loss = std::abs(result->output.scalars[0] - loss) / loss;
  CHECK(result->order == program->gradient_order);
  for (size_t p = 0; p < program->parameters.size(); ++p) {
    if (program->parameters[p].gradient == graph::kNoValue) continue;
    comparison.worst_gradient = std::max(
        comparison.worst_gradient,
        testing::RelativeError<float>(result->gradients[p], at(program->parameters[p].gradient)));
  }
  if (program->mode == graph::Mode::kInference) {
    CHECK(result->output.scalars[1] == at(program->scalars[1].value)[0]);
    return comparison;
  }
  std::vector<double> means, variances;
  for (const graph::Normalization& normalization : program->normalizations) {
    const auto mean = at(normalization.batch_mean);
    const auto variance = at(normalization.batch_variance);
    means.insert(means.end(), mean.begin(), mean.end());
    variances.insert(variances.end(), variance.begin(), variance.end());
  }
  comparison.worst_statistics =
      std::max(testing::RelativeError<float>(result->output.batch_means, means),
               testing::RelativeError<float>(result->output.batch_variances, variances));
  return comparison;
}

}  // namespace

TEST_CASE("Programs: float32 training agrees with the reference") {
  for (const char* model : {"alexnet", "mlp"}) {
    for (const testing::Way& way : Ways(graph::DType::kFloat32)) {
      INFO(model << ", " << way.name);
      const auto program = testing::ModelProgram({.name = model, .samples = 2});
      const Comparison c = Compare(program, graph::Rounding::kNone, way);
      CHECK(c.loss < 1e-6);
      CHECK(c.worst_gradient < 1e-5);
      CHECK(c.worst_statistics < 1e-5);
    }
  }
}

// Their dx lies where dy lay.
TEST_CASE("Programs: batch norms with their swish agree with the reference") {
  for (const graph::Mode mode : {graph::Mode::kTraining, graph::Mode::kInference}) {
    const auto net = testing::SmallEfficient(graph::Mode::kTraining, 3);
    REQUIRE(Message(net.status()) == "");
    const auto program = graph::BuildProgram(graph::ToMessage(*net), {.mode = mode, .samples = 3});
    for (const testing::Way& way : Ways(graph::DType::kFloat32)) {
      INFO((mode == graph::Mode::kTraining ? "training, " : "inference, ") << way.name);
      const Comparison c = Compare(program, graph::Rounding::kNone, way, 3);
      CHECK(c.loss < 1e-5);
      CHECK(c.worst_gradient < 1e-4);
      CHECK(c.worst_statistics < 1e-5);
    }
  }
}

TEST_CASE("Programs: training on mixed labels agrees with the reference") {
  for (const testing::Way& way : Ways(graph::DType::kFloat32)) {
    INFO(way.name);
    const ModelChoice choice = {.name = "mlp", .samples = 3, .labels = graph::Labels::kMixed};
    const Comparison c = Compare(testing::ModelProgram(choice), graph::Rounding::kNone, way);
    CHECK(c.loss < 1e-6);
    CHECK(c.worst_gradient < 1e-5);
  }
}

TEST_CASE("Programs: mixed_bfloat16 training agrees with a reference that rounds alike") {
  // Values that differ in their last bit flip a share f of the masks of relu near 0, and each flip
  // is an error as large as its element: sqrt(f) in all, 5% in a net with five of them.
  const std::pair<const char*, double> bounds[] = {{"alexnet", 1e-1}, {"mlp", 1e-2}};
  for (const auto& [model, bound] : bounds) {
    for (const testing::Way& way : Ways(graph::DType::kBFloat16)) {
      INFO(model << ", " << way.name);
      const ModelChoice choice = {.name = model, .samples = 2, .policy = v1::POLICY_MIXED_BFLOAT16};
      const Comparison c = Compare(testing::ModelProgram(choice), graph::Rounding::kDeclared, way);
      CHECK(c.loss < 1e-2);
      CHECK(c.worst_gradient < bound);
      CHECK(c.worst_statistics < 1e-2);
    }
  }
}

TEST_CASE("Programs: mixed_float16 training agrees with a reference that rounds alike") {
  const std::pair<const char*, double> bounds[] = {{"alexnet", 6e-2}, {"mlp", 2e-3}};
  for (const auto& [model, bound] : bounds) {
    INFO(model);
    const ModelChoice choice = {.name = model, .samples = 2, .policy = v1::POLICY_MIXED_FLOAT16};
    const Comparison c = Compare(testing::ModelProgram(choice), graph::Rounding::kDeclared,
                                 Ways(graph::DType::kFloat16)[0]);
    CHECK(c.loss < 1e-3);
    CHECK(c.worst_gradient < bound);
    CHECK(c.worst_statistics < 1e-3);
  }
}

TEST_CASE("Programs: a loss scale that float16 cannot hold gives gradients that are not finite") {
  for (const char* model : {"alexnet", "mlp"}) {
    const auto program =
        testing::ModelProgram({.name = model, .samples = 2, .policy = v1::POLICY_MIXED_FLOAT16});
    REQUIRE(Message(program.status()) == "");
    const auto backend = testing::MakeBackendUnderTest();
    REQUIRE(Message(backend.status()) == "");
    auto bound = testing::BoundProgram::Create(**backend, *program);
    REQUIRE(Message(bound.status()) == "");
    for (const auto& [loss_seed, finite] : {std::pair(0x1p24, false), std::pair(0x1p0, true)}) {
      INFO(model << ", seed " << loss_seed);
      const auto result = (*bound)->Run(testing::FeedProgram(*program, {.loss_seed = loss_seed}),
                                        testing::KeysOf(*program));
      REQUIRE(Message(result.status()) == "");
      CHECK(std::isfinite(result->output.scalars[0]));
      bool all = true;
      for (const auto& gradient : result->gradients) {
        for (float element : gradient) all = all && std::isfinite(element);
      }
      CHECK(all == finite);
    }
  }
}

TEST_CASE("Programs: vgg gives every parameter a gradient, under every policy") {
  for (v1::Policy policy :
       {v1::POLICY_FLOAT32, v1::POLICY_MIXED_BFLOAT16, v1::POLICY_MIXED_FLOAT16}) {
    const auto program = testing::ModelProgram({.name = "vgg", .samples = 4, .policy = policy});
    REQUIRE(Message(program.status()) == "");
    const auto backend = testing::MakeBackendUnderTest();
    REQUIRE(Message(backend.status()) == "");
    auto bound = testing::BoundProgram::Create(**backend, *program);
    REQUIRE(Message(bound.status()) == "");
    const auto result = (*bound)->Run(testing::FeedProgram(*program), testing::KeysOf(*program));
    REQUIRE(Message(result.status()) == "");
    for (size_t p = 0; p < program->parameters.size(); ++p) {
      INFO(v1::Policy_Name(policy) << ", " << program->parameters[p].name);
      double squares = 0;
      for (float element : result->gradients[p]) squares += static_cast<double>(element) * element;
      CHECK(std::isfinite(squares));
      CHECK(squares > 0);
    }
  }
}

TEST_CASE("Programs: a value that is not finite reaches the loss or a gradient") {
  const auto backend = testing::MakeBackendUnderTest();
  REQUIRE(Message(backend.status()) == "");
  for (const char* model : {"mlp", "alexnet"}) {
    INFO(model);
    const auto program = testing::ModelProgram({.name = model, .samples = 2});
    REQUIRE(program.ok());
    auto bound = testing::BoundProgram::Create(**backend, *program);
    REQUIRE(bound.ok());
    auto feeds = testing::FeedProgram(*program);
    feeds[program->fed("image")][100] = std::numeric_limits<double>::quiet_NaN();
    const auto result = (*bound)->Run(feeds, testing::KeysOf(*program));
    REQUIRE(result.ok());
    // A relu inside a library's product may clamp NaN to 0, and then the gradients tell.
    bool finite = std::isfinite(result->output.scalars[0]);
    for (const auto& gradient : result->gradients) {
      for (float element : gradient) finite = finite && std::isfinite(element);
    }
    CHECK(!finite);
  }
}

TEST_CASE("Programs: inference uses the moving statistics") {
  for (v1::Policy policy :
       {v1::POLICY_FLOAT32, v1::POLICY_MIXED_BFLOAT16, v1::POLICY_MIXED_FLOAT16}) {
    const ModelChoice choice = {.samples = 3, .policy = policy, .mode = graph::Mode::kInference};
    const Comparison c = Compare(testing::ModelProgram(choice), graph::Rounding::kDeclared,
                                 Ways(graph::DType::kFloat32)[0]);
    CHECK(c.loss < (policy == v1::POLICY_FLOAT32 ? 1e-6 : 1e-2));
  }
}

}  // namespace ringmaster
