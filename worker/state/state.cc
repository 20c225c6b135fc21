#include "worker/state/state.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "common/check.h"
#include "common/exact/digest.h"
#include "common/graph/update/initialize.h"
#include "common/graph/update/optimizer.h"
#include "common/job/resolve.h"
#include "common/job/sample_use.h"

namespace ringmaster::worker {

StatusOr<std::shared_ptr<const StateLayout>> StateLayout::Create(
    const graph::Program& program, std::vector<std::string> slot_names) {
  std::vector<exact::BlockLayout::Tensor> arena_order;
  for (const uint32_t number : program.gradient_order) {
    if (number >= program.parameters.size()) {
      return Internal("gradient order names parameter {}, the model has {}", number,
                      program.parameters.size());
    }
    const auto elements = graph::Elements(program.parameters[number].shape);
    arena_order.push_back({.tensor = number, .elements = static_cast<uint64_t>(elements)});
  }
  if (arena_order.size() != program.parameters.size()) {
    return Internal("backward yields {} gradients, the model has {} parameters", arena_order.size(),
                    program.parameters.size());
  }
  RING_ASSIGN_OR_RETURN(exact::BlockLayout blocks, exact::BlockLayout::Create(arena_order));
  std::vector<exact::BlockLayout::Tensor> frozen_order;
  for (const graph::Parameter& parameter : program.frozen) {
    const auto elements = static_cast<uint64_t>(graph::Elements(parameter.shape));
    frozen_order.push_back({static_cast<uint32_t>(frozen_order.size()), elements});
  }
  RING_ASSIGN_OR_RETURN(exact::BlockLayout frozen, exact::BlockLayout::Create(frozen_order));
  std::shared_ptr<StateLayout> layout(new StateLayout(std::move(blocks), std::move(frozen)));
  const auto tensor = [](const graph::Parameter& parameter) {
    return Tensor{parameter.name, parameter.shape, parameter.initializer, parameter.index};
  };
  std::ranges::transform(program.parameters, std::back_inserter(layout->tensors_), tensor);
  std::ranges::transform(program.frozen, std::back_inserter(layout->frozen_tensors_), tensor);
  for (const graph::Normalization& norm : program.normalizations) {
    const auto channels = static_cast<size_t>(norm.channels);
    layout->normalizations_.push_back({norm.name, norm.momentum, layout->channels_, channels});
    layout->channels_ += channels;
  }
  layout->slot_names_ = std::move(slot_names);
  for (const graph::Column& column : program.columns) layout->columns_.push_back(column.name);
  for (const graph::Scalar& scalar : program.scalars) {
    layout->scalars_.push_back({.name = "", .counts = scalar.counts});
  }
  layout->outputs_ = program.outputs;
  layout->rate_groups_ = program.rate_groups;
  layout->counters_ = program.counters;
  layout->aliases_ = program.aliases;
  for (const graph::Output& output : program.outputs) {
    layout->scalars_[output.scalar].name = output.name;
  }
  for (const graph::Rows& rows : program.rows) {
    const graph::Shape& all = program.graph.value(rows.value).shape;
    const graph::Shape shape(all.begin() + 1, all.end());
    layout->rows_.push_back({rows.name, shape, static_cast<uint64_t>(graph::Elements(shape))});
  }
  return layout;
}

bool StateLayout::averages() const {
  return !slot_names_.empty() && slot_names_.back() == graph::kAverageSlot;
}

uint64_t StateLayout::row_elements() const {
  uint64_t elements = 0;
  for (const Rows& rows : rows_) elements += rows.elements;
  return elements;
}

exact::RecordShape StateLayout::evaluation_record(uint32_t shards) const {
  exact::RecordShape shape = {.shards = shards};
  for (const Scalar& scalar : scalars_) shape.counts.push_back(scalar.counts);
  return shape;
}

exact::RecordShape StateLayout::step_record(uint32_t shards) const {
  exact::RecordShape shape = evaluation_record(shards);
  shape.statistics = channels_;
  return shape;
}

std::string StateLayout::NameOf(uint32_t tensor) const {
  if (tensor == exact::kRecordTensor) return "loss or batch statistics";
  return tensor < tensors_.size() ? tensors_[tensor].name : fmt::format("tensor {}", tensor);
}

State::State(std::shared_ptr<const StateLayout> state_layout, int precision_bits,
             std::vector<Watched> watches, Predicted predicts, std::span<float> master)
    : layout(std::move(state_layout)),
      parameters(master.empty() ? Arena<float>(layout->blocks().arena_elements())
                                : Arena<float>(master)),
      frozen(layout->frozen().arena_elements()),
      moving_means(layout->channels()),
      moving_variances(layout->channels()),
      units(&layout->blocks(), precision_bits),
      watched(std::move(watches)),
      predicted(predicts) {
  RING_CHECK(parameters.size() == layout->blocks().arena_elements(), "the arena of this layout");
  for (size_t i = 0; i < layout->slot_names().size(); ++i) {
    slots.emplace_back(layout->blocks().arena_elements());
  }
  for (const StateLayout::Rows& each : layout->rows()) {
    rows.emplace_back(predicted.samples * each.elements);
  }
}

Predicted PredictedOf(const v1::ResultSpec& spec) {
  if (spec.kind() != v1::JOB_KIND_PREDICT) return {};
  const v1::DataUse& use = spec.data_use();
  return {job::SampleUse(use).count(job::HeldOutSet(use)), spec.batch()};
}

void Initialize(const v1::ResultSpec& spec, State* state, const GivenValues& given) {
  const auto draw = [&](const exact::BlockLayout& layout,
                        const std::vector<StateLayout::Tensor>& tensors, std::span<float> values) {
    for (const exact::TensorRange& range : layout.tensors()) {
      const StateLayout::Tensor& tensor = tensors[range.tensor];
      graph::Parameter parameter;
      parameter.name = tensor.name;
      parameter.shape = tensor.shape;
      parameter.initializer = tensor.initializer;
      graph::Initialize(parameter, tensor.index, spec.seed(),
                        values.subspan(range.offset(), range.elements));
    }
  };
  const StateLayout& layout = *state->layout;
  draw(layout.blocks(), layout.tensors(), state->parameters.span());
  for (const exact::TensorRange& range : layout.blocks().tensors()) {
    const auto values = state->parameters.span().subspan(range.offset(), range.elements);
    if (given && !given(range.tensor, values)) break;
  }
  draw(layout.frozen(), layout.frozen_tensors(), state->frozen.span());
  if (state->layout->averages()) {
    std::ranges::copy(state->parameters.span(), state->slots.back().span().begin());
  }
  std::ranges::fill(state->moving_variances.span(), 1.0F);
  state->loss_scale = {.value = spec.initial_loss_scale(), .good_steps = 0};
  state->digest = exact::FirstDigest(job::StatesDigest(spec));
  state->written = HashState(*state);
}

std::optional<double> Evaluation::metric(std::string_view name) const {
  const auto found = std::ranges::find(metrics, name, &graph::Metric::name);
  return found == metrics.end() ? std::nullopt : std::optional(found->value);
}

}  // namespace ringmaster::worker
