#include "bench/training/model_flops.h"

#include "common/graph/cost.h"

namespace ringmaster::bench {
namespace {

struct Peak {
  const char* device;  // part of its name
  double bits16, float32;
};
constexpr Peak kPeaks[] = {{"H200", 989.4, 67}};

}  // namespace

ModelFlops CountFlops(const graph::Program& training) {
  ModelFlops flops;
  for (const graph::Node& node : training.graph.nodes()) {
    const double amount =
        2 * graph::MultiplyAdds(training.graph, node) / static_cast<double>(training.samples);
    flops.training += amount;
    const bool forward = node.as<graph::Conv2d>() != nullptr || node.as<graph::Dense>() != nullptr;
    if (forward) flops.forward += amount;
  }
  return flops;
}

std::optional<double> PeakTflops(const std::string& device_model, v1::Policy policy) {
  for (const Peak& peak : kPeaks) {
    if (device_model.find(peak.device) == std::string::npos) continue;
    return policy == v1::POLICY_FLOAT32 ? peak.float32 : peak.bits16;
  }
  return std::nullopt;
}

}  // namespace ringmaster::bench
