#include "worker/train/state.h"

#include <algorithm>
#include <utility>

#include "common/exact/digest.h"
#include "common/graph/update/initialize.h"
#include "common/job/resolve.h"

namespace ringmaster::worker {

State::State(std::shared_ptr<const StateLayout> state_layout, int precision_bits)
    : layout(std::move(state_layout)),
      parameters(layout->blocks().arena_elements()),
      moving_means(layout->channels()),
      moving_variances(layout->channels()),
      units(&layout->blocks(), precision_bits) {
  for (size_t i = 0; i < layout->slot_names().size(); ++i) {
    slots.emplace_back(layout->blocks().arena_elements());
  }
}

void Initialize(const v1::ResultSpec& spec, State* state) {
  for (const exact::TensorRange& range : state->layout->blocks().tensors()) {
    const StateLayout::Tensor& tensor = state->layout->tensors()[range.tensor];
    graph::Parameter parameter;
    parameter.name = tensor.name;
    parameter.shape = tensor.shape;
    parameter.initializer = tensor.initializer;
    graph::Initialize(parameter, range.tensor, spec.seed(),
                      state->parameters.span().subspan(range.offset(), range.elements));
  }
  std::ranges::fill(state->moving_variances.span(), 1.0F);
  state->loss_scale = {.value = spec.initial_loss_scale(), .good_steps = 0};
  state->digest = exact::FirstDigest(job::ResultDigest(spec));
}

}  // namespace ringmaster::worker
