#include "worker/backend/cuda/step_layout.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "worker/backend/shard_io.h"

namespace ringmaster::cuda {
namespace {

constexpr size_t kHostAlignment = 64;  // what a GradientSink is promised

// Of the batch, in training.
std::vector<graph::ValueId> StatisticsOf(const graph::Program& program) {
  std::vector<graph::ValueId> values;
  for (const graph::Normalization& normalization : program.normalizations) {
    values.push_back(normalization.batch_mean);
    values.push_back(normalization.batch_variance);
  }
  std::erase(values, graph::kNoValue);
  return values;
}

// Scalars, rows and the statistics of the batch: whatever is no gradient.
std::vector<CopyBack> ResultCopies(const graph::Program& program, const StepLayout& layout,
                                   size_t statistic_bytes) {
  std::vector<CopyBack> copies;
  const auto add = [&](graph::ValueId value) {
    if (value == graph::kNoValue) return;
    copies.push_back({.after = program.graph.value(value).producer,
                      .value = value,
                      .elements = ElementsOf(program, value)});
  };
  for (const graph::Scalar& scalar : program.scalars) add(scalar.value);
  for (const graph::Rows& rows : program.rows) add(rows.value);
  if (layout.statistic_offsets.empty()) return copies;
  CopyBack& statistics = copies.emplace_back();
  statistics.elements = statistic_bytes / sizeof(float);
  for (const auto& [value, offset] : layout.statistic_offsets) {
    statistics.after = std::max(statistics.after, program.graph.value(value).producer);
  }
  return copies;
}

std::vector<CopyBack> GradientCopies(const graph::Program& program) {
  const std::vector<graph::NodeId> nodes = GradientNodes(program);
  std::vector<CopyBack> copies;
  for (size_t i = 0; i < nodes.size(); ++i) {
    const uint32_t parameter = program.gradient_order[i];
    const graph::ValueId gradient = program.parameters[parameter].gradient;
    copies.push_back({.after = nodes[i],
                      .value = gradient,
                      .elements = ElementsOf(program, gradient),
                      .parameter = parameter});
  }
  return copies;
}

}  // namespace

graph::ValueId ImagesOfPixels(const graph::Program& program) {
  const graph::Column* const column = PixelColumn(program);
  if (column == nullptr) return graph::kNoValue;
  const std::vector<graph::ValueId> results = graph::Results(program);
  if (std::ranges::find(results, column->value) != results.end()) return column->value;
  const graph::Node* reader = nullptr;
  for (const graph::Node& node : program.graph.nodes()) {
    for (const graph::ValueId input : node.inputs) {
      if (input != column->value) continue;
      if (reader != nullptr || node.as<graph::Cast>() == nullptr) return column->value;
      reader = &node;
    }
  }
  if (reader == nullptr) return column->value;
  const graph::ValueId cast = reader->outputs[0];
  return graph::ByteSize(program.graph.value(cast).dtype) == 2 ? cast : column->value;
}

std::vector<void*> AddressesOf(const graph::Program& program, const StepLayout& layout,
                               std::byte* memory) {
  std::vector<void*> addresses = AddressesOf(program, layout.core, memory);
  for (const auto& [value, offset] : layout.statistic_offsets) {
    addresses[static_cast<size_t>(value)] = memory + layout.statistics + offset;
  }
  return addresses;
}

StepLayout LayOutStep(const graph::Program& program, size_t alignment,
                      std::vector<size_t> workspace, const AugmentBytes& augment) {
  StepLayout layout;
  const std::vector<graph::ValueId> statistics = StatisticsOf(program);
  std::vector<graph::ValueId> elsewhere = statistics;
  if (augment.images != graph::kNoValue) {
    const graph::NodeId cast = program.graph.value(augment.images).producer;
    if (cast != graph::kFed) elsewhere.push_back(program.graph.node(cast).inputs[0]);
  }
  layout.core =
      LayOut(program, alignment, std::move(workspace), std::nullopt, std::move(elsewhere));
  size_t statistic_bytes = 0;
  for (const graph::ValueId value : statistics) {
    layout.statistic_offsets.emplace_back(value, statistic_bytes);
    statistic_bytes += AlignUp(ElementsOf(program, value) * sizeof(float), alignment);
  }
  const std::vector<CopyBack> gradients = GradientCopies(program);
  layout.gradients = gradients.size();
  const size_t flag_bytes = gradients.size() * sizeof(uint64_t);

  layout.seed_and_step = layout.core.bytes;
  layout.samples = layout.seed_and_step + AlignUp(2 * sizeof(uint64_t), alignment);
  layout.flags =
      layout.samples + AlignUp(static_cast<size_t>(program.samples) * sizeof(uint64_t), alignment);
  layout.statistics = layout.flags + AlignUp(flag_bytes, alignment);
  layout.pixels = layout.statistics + statistic_bytes;
  layout.augment_workspace = layout.pixels + AlignUp(augment.pixels, alignment);
  layout.core.bytes = layout.augment_workspace + AlignUp(augment.workspace, alignment);
  layout.core.input_bytes = layout.core.bytes - layout.pixels;

  layout.copies = ResultCopies(program, layout, statistic_bytes);
  layout.copies.insert(layout.copies.end(), gradients.begin(), gradients.end());
  std::ranges::stable_sort(layout.copies, {}, &CopyBack::after);
  layout.host_offsets.resize(program.graph.values().size());
  const auto set_host_offset = [&](graph::ValueId value, size_t offset) {
    layout.host_offsets[static_cast<size_t>(value)] = offset;
  };
  for (CopyBack& copy : layout.copies) {
    copy.host_offset = layout.host_bytes;
    layout.host_bytes += AlignUp(copy.elements * sizeof(float), kHostAlignment);
    if (copy.value != graph::kNoValue) {
      set_host_offset(copy.value, copy.host_offset);
      continue;
    }
    for (const auto& [value, offset] : layout.statistic_offsets) {
      set_host_offset(value, copy.host_offset + offset);
    }
  }
  layout.host_flags = layout.host_bytes;
  layout.host_bytes += AlignUp(flag_bytes, kHostAlignment);
  return layout;
}

}  // namespace ringmaster::cuda
