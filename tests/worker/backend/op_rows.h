// The sweep of single ops that every backend must pass: odd sizes, strides and pads; one home for
// the cases. Thread-safe (free functions).
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tests/worker/backend/op_case.h"

namespace ringmaster::testing {

struct OpRow {
  graph::Kind kind;
  std::vector<graph::Shape> inputs;
  std::vector<graph::Shape> wanted;
  // Makes operands that uniform values would not be.
  std::function<void(const graph::Program&, graph::ReferenceFeeds&)> prepare;
};

[[nodiscard]] const std::vector<OpRow>& OpRows();

// `compute` is the type of tensors that a policy may narrow.
[[nodiscard]] OpCase MakeOpCase(const OpRow& row, graph::DType compute);

// Operands of the row's program.
[[nodiscard]] graph::ReferenceFeeds FeedRow(const OpRow& row, const graph::Program& program);

}  // namespace ringmaster::testing
