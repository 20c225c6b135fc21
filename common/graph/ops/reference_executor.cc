#include "common/graph/ops/reference_executor.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace ringmaster::graph {
namespace {

// A binary format with subnormals and infinities.
struct Format {
  int precision;    // bits, the leading one included
  int least, most;  // exponents of normal numbers
};
constexpr Format kBFloat16Format = {8, -126, 127};
constexpr Format kFloat16Format = {11, -14, 15};

// Direct from float64, so that there is one rounding and not two.
double RoundTo(const Format& format, double value) {
  if (!std::isfinite(value) || value == 0) return value;
  const int exponent = std::max(std::ilogb(value), format.least);
  const double unit = std::ldexp(1.0, exponent - format.precision + 1);
  const double rounded = std::nearbyint(value / unit) * unit;
  const double beyond = std::ldexp(1.0, format.most + 1);
  return std::abs(rounded) >= beyond ? std::copysign(HUGE_VAL, value) : rounded;
}

Status CheckFeed(const Graph& graph, const Node& node, ValueId id,
                 const std::vector<double>& value) {
  const auto expected = static_cast<size_t>(Elements(graph.value(id).shape));
  if (value.size() == expected) return absl::OkStatus();
  return InvalidArgument("{} reads {}, which expects {} elements; {} were fed", node.name,
                         graph.value(id).name, expected, value.size());
}

Status CheckKeys(const Graph& graph, const Node& node, const RandomKeys& keys) {
  if (node.attributes<DropoutAttributes>() == nullptr) return absl::OkStatus();
  const auto rows = static_cast<size_t>(graph.value(node.inputs[0]).shape[0]);
  if (keys.samples.size() == rows) return absl::OkStatus();
  return InvalidArgument("{} expects the sample number of {} rows, got {}", node.name, rows,
                         keys.samples.size());
}

}  // namespace

double Round(double value, DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return static_cast<double>(static_cast<float>(value));
    case DType::kBFloat16:
      return RoundTo(kBFloat16Format, value);
    case DType::kFloat16:
      return RoundTo(kFloat16Format, value);
    case DType::kInt32:
      break;
  }
  return value;
}

StatusOr<std::vector<std::vector<double>>> RunReference(const Graph& graph,
                                                        const ReferenceFeeds& feeds,
                                                        const RandomKeys& keys, Rounding rounding) {
  std::vector<std::vector<double>> values(graph.values().size());
  const auto round = [&](ValueId id) {
    if (rounding == Rounding::kNone) return;
    for (double& element : values[static_cast<size_t>(id)]) {
      element = Round(element, graph.value(id).dtype);
    }
  };
  for (const auto& [id, elements] : feeds) {
    values[static_cast<size_t>(id)] = elements;
    round(id);
  }
  for (const Node& node : graph.nodes()) {
    RING_RETURN_IF_ERROR(CheckKeys(graph, node, keys));
    ReferenceCall call = {graph, node, {}, {}, keys};
    for (ValueId input : node.inputs) {
      const std::vector<double>& value = values[static_cast<size_t>(input)];
      RING_RETURN_IF_ERROR(CheckFeed(graph, node, input, value));
      call.inputs.emplace_back(value);
    }
    for (ValueId output : node.outputs) {
      std::vector<double>& value = values[static_cast<size_t>(output)];
      value.assign(static_cast<size_t>(Elements(graph.value(output).shape)), 0.0);
      call.outputs.emplace_back(value);
    }
    OpOf(node).reference(call);
    for (ValueId output : node.outputs) round(output);
  }
  return values;
}

}  // namespace ringmaster::graph
