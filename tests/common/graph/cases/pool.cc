#include <cmath>

#include "common/graph/ops/reference_executor.h"
#include "tests/common/graph/cases/table.h"

namespace ringmaster::graph {
namespace {

PoolAttributes Pool(int64_t window, int64_t stride, int64_t low, int64_t high) {
  return {{window, window}, {stride, stride}, {low, low, high, high}};
}

// Input 1 becomes what the pool makes of input 0.
void PooledOutput(const OpCase& self, OpCase::Operands* operands) {
  Graph forward;
  const ValueId x = forward.AddFed("x", self.inputs[0].shape, DType::kFloat32);
  const MaxPool pool = {std::get<MaxPoolGradient>(self.kind)};
  const ValueId y = AddOp(&forward, {"pool", pool, {x}}).value().front();
  (*operands)[1] = RunReference(forward, {{x, (*operands)[0]}}, {}).value()[static_cast<size_t>(y)];
}

// The same with few different values in input 0, so that many are equal.
void PooledTies(const OpCase& self, OpCase::Operands* operands) {
  for (double& value : operands->front()) value = std::round(value);
  PooledOutput(self, operands);
}

OpCase PoolGradient(const char* what, const PoolAttributes& pool, const Shape& x, const Shape& y,
                    void (*prepare)(const OpCase&, OpCase::Operands*)) {
  return {
      .what = what, .kind = MaxPoolGradient{pool}, .inputs = {{x}, {y}, {y}}, .prepare = prepare};
}

}  // namespace

std::vector<OpCase> MaxPoolCases() {
  return {
      {"2x2", MaxPool{}, {{{2, 4, 6, 3}}}},
      {"overlapping, padded", MaxPool{{{3, 3}, {2, 2}, {1, 1, 1, 0}}}, {{{2, 7, 5, 2}}}},
      {"odd window, rest left over", MaxPool{{{3, 2}, {3, 2}}}, {{{1, 8, 7, 1}}}},
      {"2x2, odd channels", MaxPool{Pool(2, 2, 0, 0)}, {{{2, 6, 8, 19}}}},
      {"overlapping, padded all round", MaxPool{Pool(3, 2, 1, 1)}, {{{2, 7, 5, 3}}}},
      {"stride 1", MaxPool{Pool(3, 1, 1, 1)}, {{{2, 5, 6, 16}}}},
      {"a pad below, many channels", MaxPool{Pool(2, 2, 0, 1)}, {{{1, 7, 5, 600}}}},
      {"4x4 by 3", MaxPool{Pool(4, 3, 0, 2)}, {{{1, 11, 9, 8}}}},
      {"odd image", GlobalMaxPool{}, {{{2, 3, 5, 3}}}},
      {"dimensions kept", GlobalMaxPool{.keep_dims = true}, {{{2, 3, 2, 5}}}},
      {"many places and channels", GlobalMaxPool{}, {{{3, 20, 17, 129}}}},
      {"many places, packs", GlobalMaxPool{}, {{{2, 20, 17, 40}}}},
      // Tiles with an edge, overlaps on every side, a tail that no window reaches.
      PoolGradient("ties, a pad below", Pool(2, 2, 0, 1), {1, 7, 5, 24}, {1, 4, 3, 24}, PooledTies),
      PoolGradient("ties, stride 1", Pool(3, 1, 1, 1), {2, 5, 6, 16}, {2, 5, 6, 16}, PooledTies),
      PoolGradient("ties, a tail", Pool(2, 2, 0, 0), {1, 7, 5, 7}, {1, 3, 2, 7}, PooledTies),
      PoolGradient("2x2", Pool(2, 2, 0, 0), {2, 6, 8, 19}, {2, 3, 4, 19}, PooledOutput),
      PoolGradient("gaps", Pool(2, 3, 0, 0), {2, 6, 8, 5}, {2, 2, 3, 5}, PooledOutput),
      PoolGradient("overlapping, padded all round", Pool(3, 2, 1, 1), {3, 7, 5, 3}, {3, 4, 3, 3},
                   PooledOutput),
  };
}

namespace {

PoolAttributes MeanOf(int64_t window, int64_t stride, int64_t low, int64_t high) {
  return {{window, window}, {stride, stride}, {low, low, high, high}};
}

}  // namespace

std::vector<OpCase> AveragePoolCases() {
  const PoolAttributes overlapping = {{3, 3}, {2, 2}, {1, 1, 1, 0}};
  return {
      {"2x2", AveragePool{}, {{{2, 4, 6, 3}}}},
      {"overlapping, padded", AveragePool{overlapping}, {{{2, 7, 5, 2}}}},
      {"odd window, rest left over", AveragePool{{{3, 2}, {3, 2}}}, {{{1, 8, 7, 1}}}},
      {"3x3 same", AveragePool{MeanOf(3, 1, 1, 1)}, {{{1, 5, 6, 7}}}},
      {"gaps between windows", AveragePool{{{2, 1}, {3, 2}}}, {{{2, 7, 6, 2}}}},
      {"many channels", AveragePool{MeanOf(2, 2, 0, 1)}, {{{1, 7, 5, 600}}}},
      {"overlapping, padded", AveragePoolGradient{overlapping}, {{{2, 4, 2, 2}}}, {{{2, 7, 5, 2}}}},
      {"3x3 same", AveragePoolGradient{MeanOf(3, 1, 1, 1)}, {{{2, 5, 6, 19}}}, {{{2, 5, 6, 19}}}},
      {"gaps between windows",
       AveragePoolGradient{{{2, 1}, {3, 2}}},
       {{{2, 2, 3, 5}}},
       {{{2, 7, 6, 5}}}},
      {"many channels",
       AveragePoolGradient{MeanOf(2, 2, 0, 1)},
       {{{1, 4, 3, 600}}},
       {{{1, 7, 5, 600}}}},
  };
}

std::vector<OpCase> GlobalAveragePoolCases() {
  return {
      {"odd image", GlobalAveragePool{}, {{{2, 3, 5, 3}}}},
      {"odd channels", GlobalAveragePool{}, {{{3, 5, 7, 19}}}},
      {"many places", GlobalAveragePool{}, {{{2, 20, 17, 40}}}},
      {"one place, many channels", GlobalAveragePool{}, {{{2, 1, 1, 600}}}},
      {"dimensions kept", GlobalAveragePool{.keep_dims = true}, {{{2, 3, 5, 3}}}},
      {"dimensions kept, odd channels", GlobalAveragePool{.keep_dims = true}, {{{3, 5, 7, 19}}}},
      {"odd channels", GlobalAveragePoolGradient{}, {{{3, 19}}}, {{{3, 5, 7, 19}}}},
      {"dimensions kept", GlobalAveragePoolGradient{}, {{{3, 1, 1, 19}}}, {{{3, 5, 7, 19}}}},
      {"many places", GlobalAveragePoolGradient{}, {{{2, 40}}}, {{{2, 20, 17, 40}}}},
  };
}

}  // namespace ringmaster::graph
