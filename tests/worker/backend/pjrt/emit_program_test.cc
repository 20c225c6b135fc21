// Whole models as the emitter writes them, run by the interpreter of StableHLO: against the float64
// reference, and with rows that are no samples against the same model without those.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>

#include "tests/support/program_feeds.h"
#include "tests/support/relative_error.h"
#include "tests/support/small_models.h"
#include "tests/worker/backend/model_program.h"
#include "tests/worker/backend/pjrt/emitted_program.h"

namespace ringmaster {
namespace {

using testing::EmittedProgram;

struct Comparison {
  double loss = 0;
  double worst_gradient = 0;
  double gradients = 0;  // of all of them as one vector
  double worst_statistics = 0;
};

Comparison Compare(const graph::Program& program, graph::Rounding rounding) {
  const int64_t classes = program.column("label")->limit;
  const auto feeds = testing::FeedProgram(program, {.classes = classes, .loss_seed = 0.25});
  const auto keys = testing::KeysOf(program);
  const auto expected = graph::RunReference(program.graph, feeds, keys, rounding);
  REQUIRE(Message(expected.status()) == "");
  const auto error = [&](const std::vector<float>& actual, graph::ValueId id) {
    return testing::RelativeError<float>(actual, (*expected)[static_cast<size_t>(id)]);
  };
  const auto emitted = EmittedProgram::Create(program);
  REQUIRE(Message(emitted.status()) == "");
  auto results = emitted->Run(feeds, keys);
  REQUIRE(Message(results.status()) == "");

  Comparison comparison;
  comparison.loss = error(results->scalars[0], program.scalars[0].value);
  for (size_t i = 1; i < program.scalars.size(); ++i) {
    CHECK(error(results->scalars[i], program.scalars[i].value) < 1e-6);
  }
  std::vector<float> actual;
  std::vector<double> wanted;
  for (const uint32_t p : program.gradient_order) {
    const graph::ValueId id = program.parameters[p].gradient;
    comparison.worst_gradient =
        std::max(comparison.worst_gradient, error(results->gradients[p], id));
    const auto append = [](const auto& values, auto* to) {
      to->insert(to->end(), values.begin(), values.end());
    };
    append(results->gradients[p], &actual);
    append((*expected)[static_cast<size_t>(id)], &wanted);
  }
  comparison.gradients = testing::RelativeError<float>(actual, wanted);
  for (size_t i = 0; i < program.normalizations.size(); ++i) {
    const graph::Normalization& normalization = program.normalizations[i];
    if (normalization.batch_mean == graph::kNoValue) continue;
    comparison.worst_statistics =
        std::max({comparison.worst_statistics, error(results->means[i], normalization.batch_mean),
                  error(results->variances[i], normalization.batch_variance)});
  }
  return comparison;
}

graph::Program Built(const testing::ModelChoice& choice) {
  auto program = testing::ModelProgram(choice);
  REQUIRE(Message(program.status()) == "");
  return *std::move(program);
}

using Small = StatusOr<graph::Program>(graph::Mode mode, int64_t samples);
constexpr std::pair<const char*, Small*> kSmall[] = {
    {"convolutional", testing::SmallConvolutional},
    {"shared", testing::SmallShared},
    {"residual", testing::SmallResidual},
    {"perceptron", testing::SmallPerceptron},
};

// Ready to bind.
graph::Program BuiltSmall(Small* small, const graph::ProgramOptions& options) {
  const auto layers = small(graph::Mode::kTraining, options.samples);
  REQUIRE(Message(layers.status()) == "");
  auto program = graph::BuildProgram(graph::ToMessage(*layers), options);
  REQUIRE(Message(program.status()) == "");
  return *std::move(program);
}

// Feeds of a program whose first rows are those of `narrow`; in the others stands anything.
graph::ReferenceFeeds Widened(const graph::Program& wide, const graph::Program& narrow,
                              const graph::ReferenceFeeds& feeds, double anything) {
  graph::ReferenceFeeds widened = testing::FeedProgram(wide);
  for (size_t i = 0; i < narrow.columns.size(); ++i) {
    const std::vector<double>& rows = feeds.at(narrow.columns[i].value);
    std::vector<double>& all = widened[wide.columns[i].value];
    const bool whole = narrow.graph.value(narrow.columns[i].value).dtype == graph::DType::kInt32;
    for (double& value : all) value = whole ? 1 : anything * value;
    std::copy(rows.begin(), rows.end(), all.begin());
  }
  for (size_t i = 0; i < narrow.seeds.size(); ++i) {
    widened[wide.seeds[i].value] = feeds.at(narrow.seeds[i].value);
  }
  return widened;
}

double Difference(const std::map<size_t, std::vector<float>>& actual,
                  const std::map<size_t, std::vector<float>>& expected) {
  REQUIRE(actual.size() == expected.size());
  double worst = 0;
  for (const auto& [index, values] : expected) {
    const std::vector<double> wanted(values.begin(), values.end());
    worst = std::max(worst, testing::RelativeError<float>(actual.at(index), wanted));
  }
  return worst;
}

// The largest difference between the model with `rows` rows and with two more that are no samples.
template <typename Build>
double DifferenceOfPadded(const Build& build, int64_t rows, double anything) {
  const graph::Program narrow = build(rows), wide = build(rows + 2);
  const graph::ReferenceFeeds feeds =
      testing::FeedProgram(narrow, {.classes = 3, .loss_seed = 0.25});
  const auto alone = EmittedProgram::Create(narrow);
  REQUIRE(Message(alone.status()) == "");
  const auto padded = EmittedProgram::Create(wide, pjrt::Rows::kSome);
  REQUIRE(Message(padded.status()) == "");
  const auto expected = alone->Run(feeds, testing::KeysOf(narrow));
  REQUIRE(Message(expected.status()) == "");
  const auto actual = padded->Run(Widened(wide, narrow, feeds, anything), testing::KeysOf(wide),
                                  static_cast<int32_t>(rows));
  REQUIRE(Message(actual.status()) == "");
  return std::max({Difference(actual->scalars, expected->scalars),
                   Difference(actual->gradients, expected->gradients),
                   Difference(actual->means, expected->means),
                   Difference(actual->variances, expected->variances)});
}

}  // namespace

TEST_CASE("Emitted programs: small models agree with the reference") {
  for (const auto& [name, small] : kSmall) {
    INFO(name);
    const Comparison c = Compare(BuiltSmall(small, {.samples = 3}), graph::Rounding::kNone);
    CHECK(c.loss < 1e-6);
    CHECK(c.worst_gradient < 1e-5);
    CHECK(c.worst_statistics < 1e-5);
  }
}

TEST_CASE("Emitted programs: small models infer as the reference does") {
  for (const auto& [name, small] : kSmall) {
    INFO(name);
    const graph::ProgramOptions options = {.mode = graph::Mode::kInference, .samples = 3};
    CHECK(Compare(BuiltSmall(small, options), graph::Rounding::kNone).loss < 1e-6);
  }
}

TEST_CASE("Emitted programs: models of the zoo agree with the reference") {
  for (const char* model : {"alexnet", "mlp"}) {
    INFO(model);
    const Comparison c = Compare(Built({.name = model, .samples = 2}), graph::Rounding::kNone);
    CHECK(c.loss < 1e-6);
    CHECK(c.worst_gradient < 1e-5);
    CHECK(c.worst_statistics < 1e-5);
  }
}

TEST_CASE("Emitted programs: training on mixed labels agrees with the reference") {
  const Comparison c =
      Compare(Built({.name = "mlp", .samples = 3, .labels = graph::Labels::kMixed}),
              graph::Rounding::kNone);
  CHECK(c.loss < 1e-6);
  CHECK(c.worst_gradient < 1e-5);
}

TEST_CASE("Emitted programs: 16-bit training agrees with a reference that rounds alike") {
  // A flipped mask of relu is an error as large as its element.
  const std::tuple<v1::Policy, double, double> bounds[] = {{v1::POLICY_MIXED_BFLOAT16, 1e-2, 1e-1},
                                                           {v1::POLICY_MIXED_FLOAT16, 1e-3, 6e-2}};
  for (const auto& [policy, loss, gradient] : bounds) {
    for (const char* model : {"alexnet", "mlp"}) {
      INFO(model << ", " << v1::Policy_Name(policy));
      const Comparison c = Compare(Built({.name = model, .samples = 2, .policy = policy}),
                                   graph::Rounding::kDeclared);
      CHECK(c.loss < loss);
      CHECK(c.worst_gradient < gradient);
      CHECK(c.worst_statistics < loss);
    }
  }
}

TEST_CASE("Emitted programs: rows that are no samples change nothing, whatever they hold") {
  for (const double anything : {0.0, 1.0, 1e6, HUGE_VAL}) {
    for (const auto& [name, small] : kSmall) {
      INFO(name << ", " << anything);
      const auto build = [&, made = small](int64_t rows) {
        return BuiltSmall(made, {.samples = rows});
      };
      CHECK(DifferenceOfPadded(build, 3, anything) < 1e-6);
    }
  }
  for (const graph::Labels labels : {graph::Labels::kOwn, graph::Labels::kMixed}) {
    INFO("labels " << static_cast<int>(labels));
    const auto build = [&](int64_t rows) {
      return Built({.name = "mlp", .samples = rows, .labels = labels});
    };
    CHECK(DifferenceOfPadded(build, 2, 1e6) < 1e-6);
    CHECK(DifferenceOfPadded(build, 1, 1e6) < 1e-6);
  }
}

TEST_CASE("Emitted programs: with all rows samples a module that asks gives the same bits") {
  for (const auto& [name, small] : kSmall) {
    INFO(name);
    const graph::Program program = BuiltSmall(small, {.samples = 3});
    const auto feeds = testing::FeedProgram(program, {.classes = 3});
    const auto all = EmittedProgram::Create(program);
    const auto some = EmittedProgram::Create(program, pjrt::Rows::kSome);
    REQUIRE(Message(all.status()) == "");
    REQUIRE(Message(some.status()) == "");
    const auto expected = all->Run(feeds, testing::KeysOf(program));
    const auto actual = some->Run(feeds, testing::KeysOf(program), 3);
    REQUIRE(Message(expected.status()) == "");
    REQUIRE(Message(actual.status()) == "");
    CHECK(actual->scalars == expected->scalars);
    CHECK(actual->gradients == expected->gradients);
    CHECK(actual->means == expected->means);
    CHECK(actual->variances == expected->variances);
  }
}

TEST_CASE("Emitted programs: what runs again is kept apart, and gives the same bits") {
  zoo::ProgramOptions options = {.samples = 2};
  const auto kept = zoo::BuildProgram(zoo::Model("resnet20"), options);
  options.memory.set_rematerialize(true);
  const auto again = zoo::BuildProgram(zoo::Model("resnet20"), options);
  REQUIRE(Message(kept.status()) == "");
  REQUIRE(Message(again.status()) == "");
  // A node that reads one which runs again is no copy of another.
  const graph::Graph& graph = again->graph;
  const auto runs_again = [&](graph::ValueId id) {
    const graph::NodeId producer = graph.value(id).producer;
    return producer != graph::kFed && graph.node(producer).again;
  };
  const auto copies = std::ranges::count_if(graph.nodes(), [&](const graph::Node& node) {
    return node.again && std::ranges::none_of(node.inputs, runs_again);
  });
  REQUIRE(copies > 0);
  const auto barriers = [](const EmittedProgram& program) {
    const std::string& text = program.module().text;
    long count = 0;
    for (size_t at = 0; (at = text.find("stablehlo.optimization_barrier", at)) != text.npos; ++at) {
      ++count;
    }
    return count;
  };
  const auto one = EmittedProgram::Create(*kept), other = EmittedProgram::Create(*again);
  REQUIRE(Message(one.status()) == "");
  REQUIRE(Message(other.status()) == "");
  CHECK(barriers(*one) == 0);
  CHECK(barriers(*other) == copies);
  const auto feeds = testing::FeedProgram(*kept);
  const auto expected = one->Run(feeds, testing::KeysOf(*kept));
  const auto actual = other->Run(testing::FeedProgram(*again), testing::KeysOf(*again));
  REQUIRE(Message(expected.status()) == "");
  REQUIRE(Message(actual.status()) == "");
  CHECK(actual->scalars == expected->scalars);
  CHECK((actual->gradients == expected->gradients));  // too many numbers to print
  CHECK((actual->means == expected->means));
  CHECK((actual->variances == expected->variances));
}

// By all gradients as one: one that a batch norm behind it makes 0 but for roundings has no
// relative error of its own. Batch norms over few positions make much of a rounding, and it flips
// masks of relu and relu6: of the two models with wide bounds some ten thousand elements stand
// where one that flips is a hundredth of a layer's gradient, and of all before it.
TEST_CASE("Emitted programs: every family of the zoo agrees with the reference", "[nightly]") {
  struct Family {
    const char* name;
    int64_t side = 32;
    double loss = 1e-5, gradients = 1e-4;
  };
  const Family families[] = {{"vgg"},
                             {"resnet20"},
                             {"resnet50gn"},
                             {"mobilenet"},
                             {"mobilenetv2", 32, 1e-3, 3e-2},
                             {"efficientnetb0"},
                             {"inceptionv3", 107, 1e-3, 1e-1},
                             {"nasnetmobile"}};
  for (const Family& family : families) {
    INFO(family.name);
    const zoo::DataShape data = {.height = family.side, .width = family.side, .classes = 10};
    const auto program = zoo::BuildProgram(zoo::Model(family.name), {.samples = 4, .data = data});
    REQUIRE(Message(program.status()) == "");
    const Comparison c = Compare(*program, graph::Rounding::kNone);
    CHECK(c.loss < family.loss);
    CHECK(c.gradients < family.gradients);
    CHECK(c.worst_statistics < 1e-3);
  }
}

}  // namespace ringmaster
