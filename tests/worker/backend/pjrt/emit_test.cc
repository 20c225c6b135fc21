// What the emitter writes, run by the interpreter of StableHLO, against the float64 reference:
// every op, whole models, and modules some of whose rows are no samples.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <type_traits>
#include <variant>

#include "common/graph/ops/reference_executor.h"
#include "tests/support/program_feeds.h"
#include "tests/support/relative_error.h"
#include "tests/support/small_models.h"
#include "tests/worker/backend/model_program.h"
#include "tests/worker/backend/op_program.h"
#include "tests/worker/backend/pjrt/emitted_program.h"
#include "tests/worker/backend/relu_mask.h"

namespace ringmaster {
namespace {

using graph::DType;
using graph::OpCase;
using pjrt::Convolutions;
using testing::EmittedProgram;

EmittedProgram Emitted(const graph::Program& program, pjrt::Rows rows = pjrt::Rows::kAll,
                       Convolutions convolutions = Convolutions::kFloat32) {
  auto emitted = EmittedProgram::Create(program, rows, convolutions);
  REQUIRE(Message(emitted.status()) == "");
  return *std::move(emitted);
}

EmittedProgram::Results Run(const graph::Program& program, const graph::ReferenceFeeds& feeds,
                            Convolutions convolutions = Convolutions::kFloat32) {
  auto results =
      Emitted(program, pjrt::Rows::kAll, convolutions).Run(feeds, testing::KeysOf(program));
  REQUIRE(Message(results.status()) == "");
  return *std::move(results);
}

void CheckOp(const testing::OpProgram& op, Convolutions convolutions = Convolutions::kFloat32) {
  const graph::ReferenceFeeds feeds = testing::FeedOp(op);
  const auto expected = graph::RunReference(op.program.graph, feeds, testing::KeysOf(op.program));
  REQUIRE(Message(expected.status()) == "");
  auto results = Run(op.program, feeds, convolutions);
  double worst = 0;
  for (size_t i = 0; i < op.outputs.size(); ++i) {
    worst =
        std::max(worst, testing::RelativeError<float>(
                            results.gradients[i], (*expected)[static_cast<size_t>(op.outputs[i])]));
  }
  CHECK(worst < testing::ToleranceOf(op, testing::UsualTolerance));
}

void CheckAllOps(DType compute) {
  for (const OpCase& test : graph::AllCases()) {
    INFO(graph::NameOf(test));
    const auto op = testing::MakeOpProgram(test, compute);
    REQUIRE(Message(op.status()) == "");
    CheckOp(*op);
  }
}

// The element type that the one convolution of a module gives: bf16.
std::string Convolved(const pjrt::Module& module) {
  const size_t begin = module.text.find("stablehlo.convolution");
  REQUIRE(begin != std::string::npos);
  const std::string line = module.text.substr(begin, module.text.find('\n', begin) - begin);
  const size_t type = line.rfind('x') + 1;
  return line.substr(type, line.rfind('>') - type);
}

// Whether rows meet in the op: its statistics, or the sum that it makes.
bool MixesRows(const OpCase& test) {
  return std::visit(
      []<typename Op>(const Op&) {
        return std::is_same_v<Op, graph::BatchNorm> ||
               std::is_same_v<Op, graph::BatchNormGradient> || std::is_same_v<Op, graph::TopK> ||
               std::is_base_of_v<graph::SoftmaxCrossEntropyAttributes, Op> ||
               graph::PairLossOp<Op> || graph::PairLossGradientOp<Op>;
      },
      test.kind);
}

// With three more rows.
OpCase Widened(OpCase test) {
  const bool norm = graph::Node{"", test.kind, {}}.attributes<graph::BatchNormAttributes>();
  const uint32_t channels = norm ? graph::TraitsOf(test.kind).float32_inputs : 0;
  for (size_t i = 0; i < test.inputs.size(); ++i) {
    if ((channels >> i & 1) == 0 && !test.inputs[i].shape.empty()) test.inputs[i].shape[0] += 3;
  }
  test.prepare = nullptr;
  return test;
}

// The largest difference between the op on its rows alone and among others, of which those that
// are no samples hold something large.
double DifferenceOfPadded(const OpCase& test) {
  const auto narrow = testing::MakeOpProgram(test, DType::kFloat32);
  const auto wide = testing::MakeOpProgram(Widened(test), DType::kFloat32);
  REQUIRE(Message(narrow.status()) == "");
  REQUIRE(Message(wide.status()) == "");
  const graph::ReferenceFeeds feeds = testing::FeedOp(*narrow);
  graph::ReferenceFeeds more = testing::FeedOp(*wide);
  for (const auto& [id, values] : feeds) {
    std::vector<double>& all = more[id];
    const bool whole = wide->program.graph.value(id).dtype == DType::kInt32;
    for (double& value : all) value *= whole ? 1 : 1e6;
    std::copy(values.begin(), values.end(), all.begin());
  }
  auto expected = Run(narrow->program, feeds);
  auto actual =
      Emitted(wide->program, pjrt::Rows::kSome)
          .Run(more, testing::KeysOf(wide->program), static_cast<int32_t>(narrow->program.samples));
  REQUIRE(Message(actual.status()) == "");
  double worst = 0;
  const auto compare = [&](std::vector<float> padded, const std::vector<float>& alone) {
    padded.resize(alone.size());  // rows of results that are no samples mean nothing
    const std::vector<double> wanted(alone.begin(), alone.end());
    worst = std::max(worst, testing::RelativeError<float>(padded, wanted));
  };
  for (const auto& [i, values] : expected.scalars) compare(actual->scalars[i], values);
  for (const auto& [i, values] : expected.gradients) compare(actual->gradients[i], values);
  return worst;
}

}  // namespace

TEST_CASE("Emit: float32 ops agree with the reference") { CheckAllOps(DType::kFloat32); }

TEST_CASE("Emit: bfloat16 ops agree with the reference") { CheckAllOps(DType::kBFloat16); }

TEST_CASE("Emit: float16 ops agree with the reference") { CheckAllOps(DType::kFloat16); }

TEST_CASE("Emit: convolutions give 16 bits where that is asked for, gradients of weights never") {
  const std::pair<DType, const char*> types[] = {
      {DType::kFloat32, "f32"}, {DType::kBFloat16, "bf16"}, {DType::kFloat16, "f16"}};
  std::map<std::string, int> tested;
  for (const auto& [compute, stored] : types) {
    for (const OpCase& test : graph::AllCases()) {
      if (!graph::Node{"", test.kind, {}}.attributes<graph::Conv2dAttributes>()) continue;
      INFO(graph::NameOf(test) << ", " << stored);
      const auto op = testing::MakeOpProgram(test, compute);
      REQUIRE(Message(op.status()) == "");
      const bool weights = std::holds_alternative<graph::Conv2dWeightGradient>(test.kind);
      CHECK(Convolved(Emitted(op->program).module()) == "f32");
      const EmittedProgram narrow = Emitted(op->program, pjrt::Rows::kAll, Convolutions::kStored);
      CHECK(Convolved(narrow.module()) == (weights ? "f32" : stored));
      CheckOp(*op, Convolutions::kStored);
      ++tested[op->program.graph.node(0).op()];
    }
  }
  CHECK(tested.size() == 3);
}

TEST_CASE("Emit: the gradient of a batch_norm passes what its activation passed") {
  for (const DType compute : {DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
    testing::CheckMasks(compute, [](const auto& op, const auto& feeds) {
      auto results = Run(op.program, feeds);
      std::vector<std::vector<float>> outputs;
      for (auto& [index, values] : results.gradients) outputs.push_back(std::move(values));
      return outputs;
    });
  }
}

TEST_CASE("Emit: rows that are no samples reach no result of an op in which rows meet") {
  int tested = 0;
  for (const OpCase& test : graph::AllCases()) {
    if (!MixesRows(test)) continue;
    INFO(graph::NameOf(test));
    CHECK(DifferenceOfPadded(test) < 1e-6);
    ++tested;
  }
  CHECK(tested > 60);
}

TEST_CASE("Emit: dropout keeps what the streams say, bit by bit") {
  for (const OpCase& test : graph::AllCases()) {
    const auto* dropout = std::get_if<graph::Dropout>(&test.kind);
    if (dropout == nullptr) continue;
    INFO(graph::NameOf(test));
    const auto op = testing::MakeOpProgram(test, DType::kFloat32);
    REQUIRE(Message(op.status()) == "");
    graph::ReferenceFeeds feeds = testing::FeedOp(*op);
    std::vector<double>& x = feeds[op->program.graph.node(0).inputs[0]];
    std::fill(x.begin(), x.end(), 1.0);
    const std::vector<float> y = Run(op->program, feeds).gradients[0];
    const graph::RandomKeys keys = testing::KeysOf(op->program);
    const size_t elements = y.size() / keys.samples.size();
    size_t wrong = 0;
    for (size_t i = 0; i < y.size(); ++i) {
      const PhiloxStream stream(keys.seed, PhiloxStream::Purpose::kDropout, keys.step,
                                keys.samples[i / elements], dropout->layer);
      const float drawn = stream.Uniform(dropout->per_sample ? 0 : i % elements);
      const bool keep = static_cast<double>(drawn) >= dropout->rate;
      if (y[i] != (keep ? 1 / static_cast<float>(1 - dropout->rate) : 0.0F)) ++wrong;
    }
    CHECK(wrong == 0);
  }
}

TEST_CASE("Emit: a rate that falls on a draw keeps it, and one just above drops it") {
  const OpCase plain = {"one row", graph::Dropout{{0, "layer"}}, {{{1, 1}}}};
  const graph::RandomKeys keys =
      testing::KeysOf(testing::MakeOpProgram(plain, DType::kFloat32)->program);
  const PhiloxStream stream(keys.seed, PhiloxStream::Purpose::kDropout, keys.step, keys.samples[0],
                            "layer");
  const double drawn = stream.Uniform(0);
  for (const auto& [rate, keep] :
       {std::pair(drawn, true), std::pair(std::nextafter(drawn, 1.0), false)}) {
    OpCase test = plain;
    std::get<graph::Dropout>(test.kind).rate = rate;
    const auto op = testing::MakeOpProgram(test, DType::kFloat32);
    REQUIRE(Message(op.status()) == "");
    const std::vector<float> y = Run(op->program, testing::FeedOp(*op)).gradients[0];
    CHECK((y[0] != 0) == keep);
  }
}

TEST_CASE("Emit: of equal logits the lower class is in front, and a NaN is in front of nothing") {
  constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
  const std::pair<std::vector<double>, double> rows[] = {
      {{1, 2, 2}, 1}, {{1, 2, 2}, 2}, {{3, 2, 1}, 1}, {{kNaN, 2, 1}, 1}, {{2, kNaN, 1}, 1}};
  const std::vector<double> hits[] = {{1, 0, 0, 1, 0}, {1, 1, 1, 1, 0}};  // of k = 1, 2
  for (int64_t k = 1; k <= 2; ++k) {
    const OpCase test = {
        "one row", graph::TopK{k}, {{{1, 3}}, {{1}, DType::kInt32}}, {}, /*classes=*/3};
    const auto op = testing::MakeOpProgram(test, DType::kFloat32);
    REQUIRE(Message(op.status()) == "");
    graph::ReferenceFeeds feeds = testing::FeedOp(*op);
    for (size_t i = 0; i < std::size(rows); ++i) {
      INFO("k " << k << ", row " << i);
      feeds[op->program.graph.node(0).inputs[0]] = rows[i].first;
      feeds[op->program.graph.node(0).inputs[1]] = {rows[i].second};
      CHECK(Run(op->program, feeds).gradients[0] ==
            std::vector<float>{static_cast<float>(hits[k - 1][i])});
    }
  }
}

TEST_CASE("Emit: a max pool's gradient pads its input, not its windows") {
  int padded = 0;
  for (const OpCase& test : graph::AllCases()) {
    const auto* pool = std::get_if<graph::MaxPoolGradient>(&test.kind);
    if (pool == nullptr) continue;
    INFO(graph::NameOf(test));
    const auto op = testing::MakeOpProgram(test, DType::kFloat32);
    REQUIRE(Message(op.status()) == "");
    const std::string text = Emitted(op->program).module().text;
    const size_t begin = text.find("stablehlo.select_and_scatter");
    REQUIRE(begin != std::string::npos);
    const std::string line = text.substr(begin, text.find('\n', begin) - begin);
    CHECK(line.find("padding = dense<[[0, 0], [0, 0], [0, 0], [0, 0]]>") != std::string::npos);
    const bool pads = pool->pads != graph::PoolAttributes().pads;
    CHECK((text.find("stablehlo.pad") != std::string::npos) == pads);
    padded += pads ? 1 : 0;
  }
  CHECK(padded >= 3);
}

TEST_CASE("Emit: the same program gives the same text") {
  const auto build = [] { return testing::ModelProgram({.name = "alexnet", .samples = 2}); };
  const auto first = build(), second = build();
  REQUIRE(Message(first.status()) == "");
  for (const pjrt::Rows rows : {pjrt::Rows::kAll, pjrt::Rows::kSome}) {
    const auto one = pjrt::Emit(*first, rows), other = pjrt::Emit(*second, rows);
    REQUIRE(Message(one.status()) == "");
    REQUIRE(Message(other.status()) == "");
    CHECK(one->text == other->text);
    CHECK(one->text.find("f64") == std::string::npos);
  }
  CHECK(pjrt::Emit(*first, pjrt::Rows::kAll)->text != pjrt::Emit(*first, pjrt::Rows::kSome)->text);
}

TEST_CASE("Emit: what is fed and given back stands in order, in 4 bytes an element") {
  const auto program =
      testing::ModelProgram({.name = "alexnet", .samples = 2, .policy = v1::POLICY_MIXED_BFLOAT16});
  REQUIRE(Message(program.status()) == "");
  const auto module = pjrt::Emit(*program, pjrt::Rows::kSome);
  REQUIRE(Message(module.status()) == "");
  std::vector<uint32_t> order;
  for (const pjrt::Result& result : module->results) {
    if (result.kind == pjrt::Result::Kind::kGradient) {
      order.push_back(static_cast<uint32_t>(result.index));
    }
  }
  CHECK(order == program->gradient_order);
  CHECK(module->results.back().kind == pjrt::Result::Kind::kGradient);
  CHECK(std::is_sorted(module->arguments.begin(), module->arguments.end(),
                       [](const auto& a, const auto& b) { return a.kind < b.kind; }));
  CHECK(!module->dropout_layers.empty());
  CHECK(module->text.find("bf16") != std::string::npos);
  const std::string head = module->text.substr(0, module->text.find(" {\n    "));
  CHECK(head.find("bf16") == std::string::npos);
}

TEST_CASE("Emit: a value that nothing feeds is named") {
  auto op =
      testing::MakeOpProgram({"square", graph::Multiply{}, {{{2, 3}}, {{2, 3}}}}, DType::kFloat32);
  REQUIRE(Message(op.status()) == "");
  op->program.parameters.erase(op->program.parameters.begin());
  op->program.gradient_order.clear();
  const auto module = pjrt::Emit(op->program, pjrt::Rows::kAll);
  CHECK(Message(module.status()) == "node (multiply) reads input0, which nothing feeds");
}

}  // namespace ringmaster
