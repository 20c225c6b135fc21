// Every op on the backend under test against the float64 reference, with the cases of
// tests/common/graph/cases: all floating types, every way to compute.
#include <algorithm>
#include <catch2/catch.hpp>
#include <set>

#include "tests/worker/backend/backend_under_test.h"
#include "tests/worker/backend/op_program.h"
#include "tests/worker/backend/relu_mask.h"

namespace ringmaster {
namespace {

using graph::DType;
using graph::OpCase;

// The largest relative error of any output.
double ErrorOf(const testing::OpProgram& op, const testing::Way& way) {
  const graph::ReferenceFeeds feeds = testing::FeedOp(op);
  const graph::RandomKeys keys = testing::KeysOf(op.program);
  const auto expected = graph::RunReference(op.program.graph, feeds, keys);
  REQUIRE(Message(expected.status()) == "");

  auto bound = testing::BoundProgram::Create(*way.backend, op.program,
                                             {.name = "core0", .threads = way.threads});
  REQUIRE(Message(bound.status()) == "");
  const auto result = (*bound)->Run(feeds, keys);
  REQUIRE(Message(result.status()) == "");
  double worst = 0;
  for (size_t i = 0; i < op.outputs.size(); ++i) {
    worst =
        std::max(worst, testing::RelativeError<float>(
                            result->gradients[i], (*expected)[static_cast<size_t>(op.outputs[i])]));
  }
  return worst;
}

void CheckAll(DType compute) {
  const auto ways = testing::WaysFor(compute);
  REQUIRE(Message(ways.status()) == "");
  for (const OpCase& test : graph::AllCases()) {
    const auto op = testing::MakeOpProgram(test, compute);
    for (const testing::Way& way : *ways) {
      INFO(graph::NameOf(test) << ", " << way.name);
      REQUIRE(Message(op.status()) == "");
      CHECK(ErrorOf(*op, way) < testing::ToleranceOf(*op, testing::OpTolerance));
    }
  }
}

}  // namespace

TEST_CASE("Ops: float32 agrees with the reference") { CheckAll(DType::kFloat32); }

TEST_CASE("Ops: bfloat16 agrees with the reference") { CheckAll(DType::kBFloat16); }

TEST_CASE("Ops: float16 agrees with the reference") { CheckAll(DType::kFloat16); }

TEST_CASE("Ops: the gradient of a batch_norm passes what its activation passed") {
  for (const DType compute : {DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
    const auto ways = testing::WaysFor(compute);
    REQUIRE(Message(ways.status()) == "");
    for (const testing::Way& way : *ways) {
      INFO(way.name);
      testing::CheckMasks(compute, [&](const auto& op, const auto& feeds) {
        auto bound = testing::BoundProgram::Create(*way.backend, op.program,
                                                   {.name = "core0", .threads = way.threads});
        REQUIRE(Message(bound.status()) == "");
        const auto result = (*bound)->Run(feeds, testing::KeysOf(op.program));
        REQUIRE(Message(result.status()) == "");
        return result->gradients;
      });
    }
  }
}

TEST_CASE("Ops: every op of the list has a case") {
  std::set<std::string> tested;
  for (const OpCase& test : graph::AllCases()) tested.insert(graph::TraitsOf(test.kind).name);
  for (const graph::Op& op : graph::OpTable()) {
    INFO(op.traits.name << " has no case in tests/common/graph/cases");
    CHECK(tested.contains(op.traits.name));
  }
}

}  // namespace ringmaster
