// Copies between boxes of dense tensors: what concat, split, slice and pad come down to, in the
// reference and in backends. Thread-safe (values and free functions).
#pragma once

#include <cstdint>
#include <vector>

#include "common/graph/graph.h"

namespace ringmaster::graph {

// A box that begins at index `begin` of a tensor of shape `tensor`.
struct Box {
  Shape tensor, begin;
};

// How to walk two boxes of the same extents together: rows of `row` elements that lie side by side
// in both tensors.
class BoxCopy {
 public:
  // As many axes everywhere; both boxes lie inside their tensors.
  BoxCopy(const Box& from, const Box& to, const Shape& extents);

  [[nodiscard]] int64_t rows() const { return rows_; }
  [[nodiscard]] int64_t row() const { return row_; }
  // Offsets of the first element of a row.
  struct Offsets {
    int64_t from, to;
  };
  [[nodiscard]] Offsets At(int64_t row) const;

 private:
  Shape outer_, from_strides_, to_strides_;  // by axis outside a row
  Offsets first_ = {0, 0};
  int64_t rows_ = 1, row_ = 1;
};

// One of the copies that a node consists of.
struct BoxTransfer {
  size_t input, output;
  BoxCopy copy;
};

// All of a concat, split, slice or pad; what they do not write is 0. Of another op none.
[[nodiscard]] std::vector<BoxTransfer> TransfersOf(const Graph& graph, const Node& node);

}  // namespace ringmaster::graph
