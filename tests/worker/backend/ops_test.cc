// Every op on the backend under test against the float64 reference: odd sizes, strides and pads,
// all floating types, every way to compute.
#include <algorithm>
#include <catch2/catch.hpp>
#include <set>

#include "tests/worker/backend/backend_under_test.h"
#include "tests/worker/backend/op_rows.h"

namespace ringmaster {
namespace {

using graph::DType;
using testing::OpRow;

// The largest relative error of any output.
double ErrorOf(const OpRow& row, DType compute, const testing::Way& way) {
  const auto op = testing::MakeOpProgram(testing::MakeOpCase(row, compute));
  REQUIRE(Message(op.status()) == "");
  const graph::ReferenceFeeds feeds = testing::FeedRow(row, op->program);
  const graph::RandomKeys keys = testing::KeysOf(op->program);
  const auto expected = graph::RunReference(op->program.graph, feeds, keys);
  REQUIRE(Message(expected.status()) == "");

  auto bound = testing::BoundProgram::Create(*way.backend, op->program,
                                             {.name = "core0", .threads = way.threads});
  REQUIRE(Message(bound.status()) == "");
  const auto result = (*bound)->Run(feeds, keys);
  REQUIRE(Message(result.status()) == "");
  double worst = 0;
  for (size_t i = 0; i < op->outputs.size(); ++i) {
    worst = std::max(
        worst, testing::RelativeError<float>(result->gradients[i],
                                             (*expected)[static_cast<size_t>(op->outputs[i])]));
  }
  return worst;
}

void CheckAll(DType compute) {
  const auto ways = testing::WaysFor(compute);
  REQUIRE(Message(ways.status()) == "");
  for (const OpRow& row : testing::OpRows()) {
    for (const testing::Way& way : *ways) {
      INFO(graph::TraitsOf(row.kind).name << " " << graph::ToString(row.inputs[0]) << ", "
                                          << way.name);
      CHECK(ErrorOf(row, compute, way) < testing::OpTolerance(compute));
    }
  }
}

}  // namespace

TEST_CASE("Ops: float32 agrees with the reference") { CheckAll(DType::kFloat32); }

TEST_CASE("Ops: bfloat16 agrees with the reference") { CheckAll(DType::kBFloat16); }

TEST_CASE("Ops: float16 agrees with the reference") { CheckAll(DType::kFloat16); }

TEST_CASE("Ops: every op of the table is tested") {
  // The loss is part of every program, and the whole-program tests compare it.
  std::set<std::string> tested = {"softmax_cross_entropy", "softmax_cross_entropy_gradient"};
  for (const OpRow& row : testing::OpRows()) tested.insert(graph::TraitsOf(row.kind).name);
  for (const graph::Op& op : graph::OpTable()) {
    INFO(op.traits.name);
    CHECK(tested.contains(op.traits.name));
  }
}

}  // namespace ringmaster
