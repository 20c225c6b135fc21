#include "common/graph/message/tensor_layout.h"

#include <catch2/catch.hpp>

#include <numeric>
#include <string>
#include <vector>

namespace ringmaster::graph {
namespace {

using Extents = std::vector<int64_t>;

// Elements 0, 1, 2 ... as they stand in ours, in their order.
std::vector<float> Theirs(const AxisOrder& order) {
  std::vector<float> ours(ElementsOf(order)), theirs(ours.size());
  std::iota(ours.begin(), ours.end(), 0.0F);
  ToLayout(order, ours, theirs);
  std::vector<float> back(ours.size());
  FromLayout(order, theirs, back);
  CHECK(back == ours);
  return theirs;
}

TEST_CASE("Tensor layout: names") {
  CHECK(NameIn(v1::TENSOR_LAYOUT_RINGMASTER, "a/b/kernel") == "a/b/kernel");
  CHECK(NameIn(v1::TENSOR_LAYOUT_KERAS, "a/b/kernel") == "a/b/kernel");
  CHECK(NameIn(v1::TENSOR_LAYOUT_KERAS, "words/table") == "words/embeddings");
  CHECK(NameIn(v1::TENSOR_LAYOUT_PYTORCH, "a/b/kernel") == "a.b.weight");
  CHECK(NameIn(v1::TENSOR_LAYOUT_PYTORCH, "bn/moving_variance") == "bn.running_var");
  CHECK(NameIn(v1::TENSOR_LAYOUT_PYTORCH, "bn/beta") == "bn.bias");
  CHECK(NameIn(v1::TENSOR_LAYOUT_PYTORCH, "s/depthwise_kernel") == "s.depthwise_kernel");
}

TEST_CASE("Tensor layout: a convolution's kernel") {
  const Extents shape = {2, 1, 2, 3};  // O, h, w, I
  const AxisOrder torch = AxisOrder::Of(v1::TENSOR_LAYOUT_PYTORCH, "c/kernel", shape, {});
  CHECK(ShapeIn(torch, shape) == Extents{2, 3, 1, 2});
  CHECK(Theirs(torch) == std::vector<float>{0, 3, 1, 4, 2, 5, 6, 9, 7, 10, 8, 11});
  const AxisOrder keras = AxisOrder::Of(v1::TENSOR_LAYOUT_KERAS, "c/kernel", shape, {});
  CHECK(ShapeIn(keras, shape) == Extents{1, 2, 3, 2});
  CHECK(Theirs(keras) == std::vector<float>{0, 6, 1, 7, 2, 8, 3, 9, 4, 10, 5, 11});
  CHECK(AxisOrder::Of(v1::TENSOR_LAYOUT_RINGMASTER, "c/kernel", shape, {}).same());
}

TEST_CASE("Tensor layout: a dense kernel, and one behind a flattened image") {
  const AxisOrder dense = AxisOrder::Of(v1::TENSOR_LAYOUT_PYTORCH, "d/kernel", {2, 3}, {});
  CHECK(ShapeIn(dense, {2, 3}) == Extents{3, 2});
  CHECK(Theirs(dense) == std::vector<float>{0, 3, 1, 4, 2, 5});
  // H, W, C = 1, 2, 2 and one unit: PyTorch has both columns of a channel together.
  const AxisOrder flat = AxisOrder::Of(v1::TENSOR_LAYOUT_PYTORCH, "d/kernel", {4, 1}, {1, 2, 2});
  CHECK(ShapeIn(flat, {4, 1}) == Extents{1, 4});
  CHECK(Theirs(flat) == std::vector<float>{0, 2, 1, 3});
  CHECK(AxisOrder::Of(v1::TENSOR_LAYOUT_KERAS, "d/kernel", {4, 1}, {1, 2, 2}).same());
  CHECK(AxisOrder::Of(v1::TENSOR_LAYOUT_PYTORCH, "d/bias", {4}, {}).same());
  // A value for each element of the image.
  const AxisOrder vector = AxisOrder::Of(v1::TENSOR_LAYOUT_PYTORCH, "n/gamma", {4}, {1, 2, 2});
  CHECK(ShapeIn(vector, {4}) == Extents{4});
  CHECK(Theirs(vector) == std::vector<float>{0, 2, 1, 3});
  CHECK(AxisOrder::Of(v1::TENSOR_LAYOUT_KERAS, "n/gamma", {4}, {1, 2, 2}).same());
}

}  // namespace
}  // namespace ringmaster::graph
