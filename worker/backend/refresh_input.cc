#include "worker/backend/refresh_input.h"

#include <numeric>

#include "worker/backend/core_layout.h"

namespace ringmaster {

RefreshSizes::RefreshSizes(const graph::Program& program) {
  for (const graph::Parameter& parameter : program.parameters) {
    parameters.push_back(static_cast<uint64_t>(graph::Elements(parameter.shape)));
  }
  for (const graph::Parameter& parameter : program.frozen) {
    frozen_offsets.push_back(frozen_elements);
    frozen_elements += AlignUp(static_cast<size_t>(graph::Elements(parameter.shape)),
                               size_t{exact::kBlockElements});
  }
  for (const graph::Normalization& normalization : program.normalizations) {
    channels.push_back(static_cast<uint64_t>(normalization.channels));
  }
}

Status RefreshSizes::Check(const exact::BlockLayout& layout, std::span<const float> values,
                           std::span<const float> moving_means,
                           std::span<const float> moving_variances) const {
  if (layout.tensors().size() != parameters.size() || values.size() < layout.arena_elements()) {
    return InvalidArgument(
        "weights: expected {} parameters in an arena of {} elements, got {} in one of {}",
        parameters.size(), layout.arena_elements(), layout.tensors().size(), values.size());
  }
  RING_RETURN_IF_ERROR(CheckStatistics(moving_means, moving_variances));
  return CheckLayout(layout);
}

Status RefreshSizes::CheckLayout(const exact::BlockLayout& layout) const {
  if (layout.tensors().size() != parameters.size()) {
    return InvalidArgument("weights: expected a layout of {} parameters, got one of {}",
                           parameters.size(), layout.tensors().size());
  }
  for (uint32_t p = 0; p < parameters.size(); ++p) {
    const uint64_t elements = layout.tensor(p).elements;
    if (elements == parameters[p]) continue;
    return InvalidArgument("weights: expected parameter {} to have {} elements, got {}", p,
                           parameters[p], elements);
  }
  return absl::OkStatus();
}

Status RefreshSizes::CheckFrozen(std::span<const float> values) const {
  if (values.size() == frozen_elements) return absl::OkStatus();
  return InvalidArgument("weights: expected {} elements of frozen parameters, got {}",
                         frozen_elements, values.size());
}

Status RefreshSizes::CheckStatistics(std::span<const float> moving_means,
                                     std::span<const float> moving_variances) const {
  const uint64_t statistics = std::accumulate(channels.begin(), channels.end(), uint64_t{0});
  if (moving_means.size() == statistics && moving_variances.size() == statistics) {
    return absl::OkStatus();
  }
  return InvalidArgument("weights: expected {} moving means and variances, got {} and {}",
                         statistics, moving_means.size(), moving_variances.size());
}

}  // namespace ringmaster
