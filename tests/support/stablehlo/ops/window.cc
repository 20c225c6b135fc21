// reduce_window and select_and_scatter: pools and their gradients.
#include <algorithm>

#include "tests/support/stablehlo/ops/fold_region.h"
#include "tests/support/stablehlo/ops/op_table.h"

namespace ringmaster::testing::stablehlo {
namespace {

struct WindowAxis {
  int64_t window = 1;
  int64_t result = 1;
  int64_t stride = 1;           // elements between neighbours in the operand
  std::vector<int64_t> source;  // [result * window]: place in the operand, or -1 beside it
};

// Windows over an operand. Axes at the end along which nothing is windowed are one line, which is
// handled at once.
struct WindowPlan {
  std::vector<WindowAxis> axes;
  int64_t line = 1;
  int64_t windows = 1;  // without the line

  void Sources(size_t axis, const std::vector<int64_t>& position, int64_t from,
               std::vector<int64_t>* sources) const {
    if (axis == axes.size()) {
      sources->push_back(from);
      return;
    }
    const WindowAxis& at = axes[axis];
    for (int64_t i = 0; i < at.window; ++i) {
      const int64_t place = at.source[static_cast<size_t>(position[axis] * at.window + i)];
      if (place >= 0) Sources(axis + 1, position, from + place * at.stride, sources);
    }
  }

  // body(window, sources): where in the operand the lines of a window begin, in row-major order.
  template <typename Body>
  void ForWindows(const Body& body) const {
    std::vector<int64_t> position(axes.size(), 0);
    std::vector<int64_t> sources;
    for (int64_t window = 0; window < windows; ++window) {
      sources.clear();
      Sources(0, position, 0, &sources);
      body(window, sources);
      size_t axis = position.size();
      while (axis > 0 && ++position[axis - 1] == axes[axis - 1].result) position[--axis] = 0;
    }
  }
};

struct WindowRule {
  WindowPlan plan;
  Shape result;
};

StatusOr<WindowRule> PlanWindows(const Operation& op, const Shape& shape, bool dilations) {
  const size_t rank = shape.size();
  RING_ASSIGN_OR_RETURN(const Axes windows, op.Array("window_dimensions", rank));
  RING_ASSIGN_OR_RETURN(const Axes strides, op.Array("window_strides", rank, 1));
  Axes base(rank, 1);
  Axes spread(rank, 1);
  if (dilations) {
    RING_ASSIGN_OR_RETURN(base, op.Array("base_dilations", rank, 1));
    RING_ASSIGN_OR_RETURN(spread, op.Array("window_dilations", rank, 1));
  }
  RING_ASSIGN_OR_RETURN(const auto padding, op.Padding(rank));
  WindowRule rule;
  size_t last = 0;  // behind the last axis along which there is a window
  const Shape own = RowMajorStrides(shape);
  for (size_t i = 0; i < rank; ++i) {
    const auto [low, high] = padding[i];
    if (std::min({windows[i], strides[i], base[i], spread[i]}) < 1) {
      return op.Fail("windows, strides and dilations along axis {} must be at least 1", i);
    }
    const int64_t dilated = shape[i] == 0 ? 0 : (shape[i] - 1) * base[i] + 1;
    const int64_t room = low + dilated + high - ((windows[i] - 1) * spread[i] + 1);
    WindowAxis axis{windows[i], room < 0 ? 0 : room / strides[i] + 1, own[i], {}};
    for (int64_t at = 0; at < axis.result; ++at) {
      for (int64_t tap = 0; tap < axis.window; ++tap) {
        const int64_t place = at * strides[i] + tap * spread[i] - low;
        const bool within = place >= 0 && place < dilated && place % base[i] == 0;
        axis.source.push_back(within ? place / base[i] : -1);
      }
    }
    const bool trivial =
        windows[i] == 1 && strides[i] == 1 && base[i] == 1 && low == 0 && high == 0;
    if (!trivial) last = i + 1;
    rule.result.push_back(axis.result);
    rule.plan.axes.push_back(std::move(axis));
  }
  for (size_t i = last; i < rank; ++i) rule.plan.line *= shape[i];
  rule.plan.axes.resize(last);
  for (const WindowAxis& axis : rule.plan.axes) rule.plan.windows *= axis.result;
  return rule;
}

template <typename Function>
Kernel ReduceWindowKernel(const WindowPlan& plan, Function function) {
  return Kernel([plan, function](Inputs inputs, Outputs outputs) {
    const std::vector<float> from = Widened<float>(*inputs[0]);
    const float init = Widened<float>(*inputs[1])[0];
    std::vector<float> results(static_cast<size_t>(Elements(outputs[0].shape)), init);
    plan.ForWindows([&](int64_t window, const std::vector<int64_t>& sources) {
      float* to = results.data() + window * plan.line;
      for (const int64_t source : sources) {
        const float* next = from.data() + source;
        for (int64_t i = 0; i < plan.line; ++i) to[i] = function(to[i], next[i]);
      }
    });
    Narrow(results.data(), &outputs[0]);
  });
}

// Whether what was selected so far stays selected beside a new value.
template <typename Body>
Kernel WithSelection(const Region& region, Type type, const Body& body) {
  if (region->only_op() == "stablehlo.compare" && !region->swapped() &&
      region->direction() == "GE") {
    return body([](float a, float b) { return a >= b; });
  }
  return body([region, type](float a, float b) {
    return *RunOn(*region, {FloatScalar(type, a), FloatScalar(type, b)})[0].data<bool>();
  });
}

template <typename Selection, typename Function>
Kernel SelectAndScatterKernel(const WindowPlan& plan, Selection keeps, Function function) {
  return Kernel([plan, keeps, function](Inputs inputs, Outputs outputs) {
    const std::vector<float> operand = Widened<float>(*inputs[0]);
    const std::vector<float> source = Widened<float>(*inputs[1]);
    std::vector<float> sums(operand.size(), Widened<float>(*inputs[2])[0]);
    plan.ForWindows([&](int64_t window, const std::vector<int64_t>& sources) {
      if (sources.empty()) return;  // all of it lies beside the operand
      const float* values = source.data() + window * plan.line;
      for (int64_t i = 0; i < plan.line; ++i) {
        auto selected = static_cast<size_t>(sources[0] + i);
        for (const int64_t begin : sources) {
          const auto candidate = static_cast<size_t>(begin + i);
          if (candidate != selected && !keeps(operand[selected], operand[candidate])) {
            selected = candidate;
          }
        }
        sums[selected] = function(sums[selected], values[i]);
      }
    });
    Narrow(sums.data(), &outputs[0]);
  });
}

}  // namespace

// One operand and a scalar of its type; the result's extents by the rule for windows.
StatusOr<Kernel> ReduceWindow(const Operation& op) {
  RING_RETURN_IF_ERROR(op.Expect(2, 1, 1));
  const Type type = op.operand(0).type;
  const TensorType scalar{type, {}};
  if (!IsFloat(type)) return op.Fail("only of floats here, got {}", Name(type));
  RING_RETURN_IF_ERROR(op.ExpectOperand(1, scalar));
  RING_RETURN_IF_ERROR(op.ExpectRegion(0, {scalar, scalar}, {scalar}));
  RING_ASSIGN_OR_RETURN(const WindowRule rule, PlanWindows(op, op.operand(0).shape, true));
  RING_RETURN_IF_ERROR(op.ExpectResult({type, rule.result}));
  return WithRegion(op.region(0), type,
                    [&](auto function) { return ReduceWindowKernel(rule.plan, function); });
}

// operand, source of the shape that its windows have, scalar; of each window the element that the
// first region keeps gets the source's value by the second.
StatusOr<Kernel> SelectAndScatter(const Operation& op) {
  RING_RETURN_IF_ERROR(op.Expect(3, 1, 2));
  const Type type = op.operand(0).type;
  const TensorType scalar{type, {}};
  if (!IsFloat(type)) return op.Fail("only of floats here, got {}", Name(type));
  RING_ASSIGN_OR_RETURN(const WindowRule rule, PlanWindows(op, op.operand(0).shape, false));
  RING_RETURN_IF_ERROR(op.ExpectOperand(1, {type, rule.result}));
  RING_RETURN_IF_ERROR(op.ExpectOperand(2, scalar));
  RING_RETURN_IF_ERROR(op.ExpectRegion(0, {scalar, scalar}, {{Type::kPred, {}}}));
  RING_RETURN_IF_ERROR(op.ExpectRegion(1, {scalar, scalar}, {scalar}));
  RING_RETURN_IF_ERROR(op.ExpectResult(op.operand(0)));
  return WithSelection(op.region(0), type, [&](auto keeps) {
    return WithRegion(op.region(1), type, [&](auto function) {
      return SelectAndScatterKernel(rule.plan, keeps, function);
    });
  });
}

}  // namespace ringmaster::testing::stablehlo
