#include "worker/backend/pjrt/pjrt_weights.h"

#include <algorithm>

#include "worker/backend/core_layout.h"

namespace ringmaster::pjrt {

bool IsResident(const Argument& argument) {
  switch (argument.kind) {
    case Argument::Kind::kParameter:
    case Argument::Kind::kFrozen:
    case Argument::Kind::kMovingMean:
    case Argument::Kind::kMovingVariance:
      return true;
    default:
      return false;
  }
}

uint64_t LaneBytes(const Module& module) {
  uint64_t bytes = 0;
  for (const Argument& argument : module.arguments) {
    if (!IsResident(argument)) (void)Append(TypeOf(argument), &bytes);
  }
  for (const Result& result : module.results) (void)Append(TypeOf(result), &bytes);
  return bytes;
}

PjrtWeights::PjrtWeights(const graph::Program& training, uint64_t id) : sizes_(training) {
  table_.id = id;
  for (const graph::Parameter& parameter : training.parameters) {
    Add(WeightGroup::kParameters, parameter.shape);
  }
  for (const graph::Parameter& parameter : training.frozen) {
    Add(WeightGroup::kFrozen, parameter.shape);
  }
  for (const graph::Normalization& normalization : training.normalizations) {
    for (int statistic = 0; statistic < 2; ++statistic) {
      Add(WeightGroup::kStatistics, {normalization.channels});
    }
  }
}

void PjrtWeights::Add(WeightGroup group, const graph::Shape& shape) {
  table_.tensors.push_back(
      {.group = group,
       .place = Append({Element::kFloat32, {shape.begin(), shape.end()}}, &table_.bytes)});
}

StatusOr<std::unique_ptr<PjrtWeights>> PjrtWeights::Create(const graph::Program& training,
                                                           uint64_t id) {
  std::unique_ptr<PjrtWeights> weights(new PjrtWeights(training, id));
  RING_ASSIGN_OR_RETURN(
      weights->memory_,
      SharedMemory::Create("pjrt-weights", weights->table_.bytes, SharedMemory::Access::kRead));
  return weights;
}

float* PjrtWeights::At(size_t tensor) const {
  return reinterpret_cast<float*>(memory_.data() + table_.tensors[tensor].place.offset);
}

Status PjrtWeights::Refresh(const exact::BlockLayout& layout, std::span<const float> parameters,
                            std::span<const float> moving_means,
                            std::span<const float> moving_variances) {
  RING_RETURN_IF_ERROR(sizes_.Check(layout, parameters, moving_means, moving_variances));
  for (uint32_t p = 0; p < sizes_.parameters.size(); ++p) {
    const exact::TensorRange& range = layout.tensor(p);
    std::copy_n(parameters.data() + range.offset(), range.elements, At(p));
  }
  Bump(WeightGroup::kParameters);
  return RefreshStatistics(moving_means, moving_variances);
}

Status PjrtWeights::LoadFrozen(std::span<const float> values) {
  RING_RETURN_IF_ERROR(sizes_.CheckFrozen(values));
  for (size_t i = 0; i < sizes_.frozen_offsets.size(); ++i) {
    const size_t tensor = sizes_.parameters.size() + i;
    const size_t elements = table_.tensors[tensor].place.type.bytes() / sizeof(float);
    std::copy_n(values.data() + sizes_.frozen_offsets[i], elements, At(tensor));
  }
  Bump(WeightGroup::kFrozen);
  return absl::OkStatus();
}

Status PjrtWeights::RefreshStatistics(std::span<const float> moving_means,
                                      std::span<const float> moving_variances) {
  RING_RETURN_IF_ERROR(sizes_.CheckStatistics(moving_means, moving_variances));
  size_t tensor = sizes_.parameters.size() + sizes_.frozen_offsets.size();
  size_t channel = 0;
  for (const uint64_t channels : sizes_.channels) {
    std::copy_n(moving_means.data() + channel, channels, At(tensor++));
    std::copy_n(moving_variances.data() + channel, channels, At(tensor++));
    channel += channels;
  }
  Bump(WeightGroup::kStatistics);
  return absl::OkStatus();
}

uint64_t PjrtWeights::DeviceBytes(const DeviceStateOptions* /*state*/) const {
  return table_.bytes;
}

StatusOr<uint32_t> PjrtWeights::TensorOf(const Argument& argument) const {
  const size_t parameters = sizes_.parameters.size();
  const size_t frozen = sizes_.frozen_offsets.size();
  size_t tensor = table_.tensors.size();
  size_t end = tensor;
  switch (argument.kind) {
    case Argument::Kind::kParameter:
      tensor = argument.index;
      end = parameters;
      break;
    case Argument::Kind::kFrozen:
      tensor = parameters + argument.index;
      end = parameters + frozen;
      break;
    case Argument::Kind::kMovingMean:
    case Argument::Kind::kMovingVariance:
      tensor = parameters + frozen + 2 * argument.index +
               (argument.kind == Argument::Kind::kMovingVariance ? 1 : 0);
      break;
    default:
      break;
  }
  if (tensor < end && table_.tensors[tensor].place.type == TypeOf(argument)) {
    return static_cast<uint32_t>(tensor);
  }
  return InvalidArgument(
      "the weights were made for another program: they have no {} of number {} and kind {}",
      TypeOf(argument).Text(), argument.index, static_cast<int>(argument.kind));
}

}  // namespace ringmaster::pjrt
