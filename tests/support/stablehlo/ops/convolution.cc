// convolution: patches of the input as rows of a matrix, times the kernel as another.
#include <algorithm>
#include <cstring>

#include "tests/support/stablehlo/ops/op_table.h"
#include "tests/support/stablehlo/ops/product.h"

namespace ringmaster::testing::stablehlo {
namespace {

// All that the computation needs, in the order batch, spatial dimensions, feature; spatial
// dimensions, input, output for the kernel.
struct Plan {
  struct Spatial {
    int64_t kernel = 0;
    int64_t result = 0;
    int64_t stride = 0;           // elements between neighbours in the input
    std::vector<int64_t> source;  // [result * kernel]: input place, or -1 beside the input
  };
  std::vector<Spatial> spatial;
  int64_t batch = 0;         // of the result
  int64_t batch_stride = 0;  // of the input
  int64_t feature_groups = 1;
  int64_t batch_groups = 1;
  int64_t group_inputs = 0;  // channels that one output sees
  int64_t group_outputs = 0;
  int64_t patch = 0;      // elements of a row
  int64_t positions = 0;  // of one sample of the result
};

struct Sources {
  Axes lhs, rhs, result;
};

StatusOr<Axes> Order(const Operation& op, const std::vector<std::string>& names, const char* first,
                     const char* last, bool kernel) {
  const size_t spatial = names.size() < 2 ? 0 : names.size() - 2;
  Axes axes;
  const auto find = [&](const std::string& name) -> Status {
    const auto found = std::ranges::find(names, name);
    if (found == names.end()) {
      return op.Fail("dimension_numbers [{}] lack {}", fmt::join(names, ", "), name);
    }
    axes.push_back(found - names.begin());
    return absl::OkStatus();
  };
  if (!kernel) RING_RETURN_IF_ERROR(find(first));
  for (size_t i = 0; i < spatial; ++i) RING_RETURN_IF_ERROR(find(fmt::format("{}", i)));
  if (kernel) RING_RETURN_IF_ERROR(find(first));
  RING_RETURN_IF_ERROR(find(last));
  if (axes.size() != names.size()) return op.Fail("dimension_numbers of rank {}", names.size());
  return axes;
}

StatusOr<Sources> ReadOrders(const Operation& op) {
  RING_ASSIGN_OR_RETURN(const ConvolutionAttribute* names,
                        op.Get<ConvolutionAttribute>("dimension_numbers"));
  Sources orders;
  RING_ASSIGN_OR_RETURN(orders.lhs, Order(op, names->lhs, "b", "f", false));
  RING_ASSIGN_OR_RETURN(orders.rhs, Order(op, names->rhs, "i", "o", true));
  RING_ASSIGN_OR_RETURN(orders.result, Order(op, names->result, "b", "f", false));
  const size_t rank = op.operand(0).shape.size();
  if (orders.lhs.size() != rank || orders.rhs.size() != op.operand(1).shape.size() ||
      orders.rhs.size() != rank || orders.result.size() != rank ||
      op.result().shape.size() != rank) {
    return op.Fail("dimension_numbers of other ranks than {}, {} and {}", Text(op.operand(0)),
                   Text(op.operand(1)), Text(op.result()));
  }
  return orders;
}

struct Windows {
  std::vector<int64_t> strides, lhs_dilation, rhs_dilation;
  std::vector<std::pair<int64_t, int64_t>> padding;
};

StatusOr<Windows> ReadWindows(const Operation& op, size_t spatial) {
  Windows windows;
  RING_ASSIGN_OR_RETURN(windows.strides, op.Array("window_strides", spatial, 1));
  RING_ASSIGN_OR_RETURN(windows.lhs_dilation, op.Array("lhs_dilation", spatial, 1));
  RING_ASSIGN_OR_RETURN(windows.rhs_dilation, op.Array("rhs_dilation", spatial, 1));
  RING_ASSIGN_OR_RETURN(windows.padding, op.Padding(spatial));
  RING_ASSIGN_OR_RETURN(const auto reversed, op.Array("window_reversal", spatial, 0));
  if (std::ranges::count(reversed, 0) != static_cast<std::ptrdiff_t>(spatial)) {
    return op.Fail("window_reversal is not known here: reverse the kernel");
  }
  for (const auto* values : {&windows.strides, &windows.lhs_dilation, &windows.rhs_dilation}) {
    for (const int64_t value : *values) {
      if (value < 1) return op.Fail("strides and dilations are at least 1, got {}", value);
    }
  }
  return windows;
}

// `input`, `kernel`: extents along spatial dimension `i`.
Plan::Spatial PlanSpatial(const Windows& windows, size_t i, int64_t input, int64_t kernel) {
  const auto [low, high] = windows.padding[i];
  const int64_t spread = windows.lhs_dilation[i];
  const int64_t dilated = input == 0 ? 0 : (input - 1) * spread + 1;
  const int64_t window = kernel == 0 ? 0 : (kernel - 1) * windows.rhs_dilation[i] + 1;
  const int64_t room = low + dilated + high - window;
  Plan::Spatial spatial;
  spatial.kernel = kernel;
  spatial.result = room < 0 ? 0 : room / windows.strides[i] + 1;
  for (int64_t at = 0; at < spatial.result; ++at) {
    for (int64_t tap = 0; tap < kernel; ++tap) {
      const int64_t place = at * windows.strides[i] + tap * windows.rhs_dilation[i] - low;
      const bool within = place >= 0 && place < dilated && place % spread == 0;
      spatial.source.push_back(within ? place / spread : -1);
    }
  }
  return spatial;
}

Status CheckGroups(const Operation& op, const Plan& plan, const Shape& lhs, const Shape& rhs) {
  const int64_t inputs = lhs.back();
  const int64_t outputs = rhs.back();
  const int64_t groups = plan.feature_groups * plan.batch_groups;
  if (plan.feature_groups < 1 || plan.batch_groups < 1 ||
      (plan.feature_groups > 1 && plan.batch_groups > 1)) {
    return op.Fail("feature_group_count {} and batch_group_count {}", plan.feature_groups,
                   plan.batch_groups);
  }
  if (inputs % plan.feature_groups != 0 || lhs[0] % plan.batch_groups != 0 ||
      outputs % groups != 0 || rhs[rhs.size() - 2] * plan.feature_groups != inputs) {
    return op.Fail(
        "a batch of {} with {} features, and a kernel from {} to {}, in {} feature groups and {} "
        "batch groups",
        lhs[0], inputs, rhs[rhs.size() - 2], outputs, plan.feature_groups, plan.batch_groups);
  }
  return absl::OkStatus();
}

// The patch of one result position from spatial dimension `axis` on; what lies beside the input is
// 0.
float* FillPatch(const Plan& plan, const std::vector<int64_t>& position, size_t axis,
                 const float* from, float* row) {
  if (axis == plan.spatial.size()) {
    return std::copy_n(from, plan.group_inputs, row);
  }
  const Plan::Spatial& spatial = plan.spatial[axis];
  int64_t inner = plan.group_inputs;
  for (size_t i = axis + 1; i < plan.spatial.size(); ++i) inner *= plan.spatial[i].kernel;
  const int64_t* source = spatial.source.data() + position[axis] * spatial.kernel;
  for (int64_t tap = 0; tap < spatial.kernel; ++tap) {
    row = source[tap] < 0
              ? std::fill_n(row, inner, 0.0f)
              : FillPatch(plan, position, axis + 1, from + source[tap] * spatial.stride, row);
  }
  return row;
}

// One group: `lhs` at its first channel of its first sample, `rhs` and `result` at its first
// output.
void Convolve(const Plan& plan, const float* lhs, const float* rhs, float* result) {
  constexpr int64_t kPatchFloats = 1 << 20;
  const int64_t outputs = plan.group_outputs * plan.feature_groups * plan.batch_groups;
  const int64_t rows = plan.batch * plan.positions;
  const int64_t most =
      std::clamp<int64_t>(kPatchFloats / std::max<int64_t>(plan.patch, 1), 16, 4096);
  float* const patches =
      Take(Room::kPatches, static_cast<size_t>(std::min(most, rows) * plan.patch));
  std::vector<int64_t> position(plan.spatial.size(), 0);
  int64_t sample = 0;
  for (int64_t begin = 0; begin < rows; begin += most) {
    const int64_t count = std::min(most, rows - begin);
    float* row = patches;
    for (int64_t i = 0; i < count; ++i) {
      row = FillPatch(plan, position, 0, lhs + sample * plan.batch_stride, row);
      size_t axis = position.size();
      while (axis > 0 && ++position[axis - 1] == plan.spatial[axis - 1].result) {
        position[--axis] = 0;
      }
      if (axis == 0) ++sample;
    }
    Product product;
    product.rows = count;
    product.inner = plan.patch;
    product.columns = plan.group_outputs;
    product.rhs_stride = outputs;
    product.result_stride = outputs;
    Multiply(product, patches, rhs, result + begin * outputs);
  }
}

}  // namespace

// The result's extents by the specification's rule for windows; groups of features or of the batch.
StatusOr<Kernel> Convolution(const Operation& op) {
  RING_RETURN_IF_ERROR(CheckProductTypes(op));
  RING_RETURN_IF_ERROR(op.Ignore<EnumListAttribute>("precision_config"));
  RING_ASSIGN_OR_RETURN(const Sources orders, ReadOrders(op));
  const Shape lhs = Permuted(op.operand(0).shape, orders.lhs);
  const Shape rhs = Permuted(op.operand(1).shape, orders.rhs);
  const size_t spatial = lhs.size() - 2;
  RING_ASSIGN_OR_RETURN(const Windows windows, ReadWindows(op, spatial));
  Plan plan;
  RING_ASSIGN_OR_RETURN(plan.feature_groups, op.Integer("feature_group_count"));
  RING_ASSIGN_OR_RETURN(plan.batch_groups, op.Integer("batch_group_count"));
  RING_RETURN_IF_ERROR(CheckGroups(op, plan, lhs, rhs));

  plan.batch = lhs[0] / plan.batch_groups;
  plan.group_inputs = lhs.back() / plan.feature_groups;
  plan.group_outputs = rhs.back() / (plan.feature_groups * plan.batch_groups);
  plan.patch = plan.group_inputs;
  plan.positions = 1;
  const Shape strides = RowMajorStrides(lhs);
  plan.batch_stride = strides[0];
  Shape canonical = {plan.batch};
  for (size_t i = 0; i < spatial; ++i) {
    plan.spatial.push_back(PlanSpatial(windows, i, lhs[i + 1], rhs[i]));
    plan.spatial.back().stride = strides[i + 1];
    plan.patch *= rhs[i];
    plan.positions *= plan.spatial.back().result;
    canonical.push_back(plan.spatial.back().result);
  }
  canonical.push_back(rhs.back());
  TensorType inferred{op.result().type, Shape(canonical.size())};
  for (size_t i = 0; i < canonical.size(); ++i) {
    inferred.shape[static_cast<size_t>(orders.result[i])] = canonical[i];
  }
  RING_RETURN_IF_ERROR(op.ExpectResult(inferred));

  const Arranged left(op.operand(0), orders.lhs);
  const Arranged right(op.operand(1), orders.rhs);
  const Placed placed(op.result(), orders.result);
  return Kernel([=](Inputs inputs, Outputs outputs) {
    const float* a = left.Of(*inputs[0], Room::kLhs);
    const float* b = right.Of(*inputs[1], Room::kRhs);
    float* c = placed.Begin(&outputs[0]);
    for (int64_t group = 0; group < plan.feature_groups * plan.batch_groups; ++group) {
      const bool of_batch = plan.batch_groups > 1;
      const int64_t from =
          of_batch ? group * plan.batch * plan.batch_stride : group * plan.group_inputs;
      const int64_t output = group * plan.group_outputs;
      Convolve(plan, a + from, b + output, c + output);
    }
    placed.Finish(c, &outputs[0]);
  });
}

}  // namespace ringmaster::testing::stablehlo
