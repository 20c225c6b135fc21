#include "worker/backend/cuda/step_layout.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "worker/backend/shard_io.h"

namespace ringmaster::cuda {
namespace {

constexpr size_t kHostAlignment = 64;  // what a GradientSink is promised

// Scalars, rows and the statistics of the batch: whatever is no gradient.
std::vector<CopyBack> ResultCopies(const graph::Program& program) {
  std::vector<graph::ValueId> values;
  for (const graph::Scalar& scalar : program.scalars) values.push_back(scalar.value);
  for (const graph::Rows& rows : program.rows) values.push_back(rows.value);
  for (const graph::Normalization& normalization : program.normalizations) {
    values.push_back(normalization.batch_mean);
    values.push_back(normalization.batch_variance);
  }
  std::erase(values, graph::kNoValue);
  std::vector<CopyBack> copies;
  for (const graph::ValueId value : values) {
    copies.push_back({.after = program.graph.value(value).producer, .value = value});
  }
  return copies;
}

std::vector<CopyBack> GradientCopies(const graph::Program& program) {
  const std::vector<graph::NodeId> nodes = GradientNodes(program);
  std::vector<CopyBack> copies;
  for (size_t i = 0; i < nodes.size(); ++i) {
    const uint32_t parameter = program.gradient_order[i];
    copies.push_back({.after = nodes[i],
                      .value = program.parameters[parameter].gradient,
                      .parameter = parameter});
  }
  return copies;
}

}  // namespace

StepLayout LayOutStep(const graph::Program& program, size_t alignment,
                      std::vector<size_t> workspace, const AugmentBytes& augment) {
  StepLayout layout;
  layout.core = LayOut(program, alignment, std::move(workspace));
  layout.seed_and_step = layout.core.bytes;
  layout.samples = layout.seed_and_step + AlignUp(2 * sizeof(uint64_t), alignment);
  layout.flags =
      layout.samples + AlignUp(static_cast<size_t>(program.samples) * sizeof(uint64_t), alignment);

  layout.copies = ResultCopies(program);
  const std::vector<CopyBack> gradients = GradientCopies(program);
  layout.gradients = gradients.size();
  const size_t flag_bytes = gradients.size() * sizeof(uint64_t);
  layout.pixels = layout.flags + AlignUp(flag_bytes, alignment);
  layout.augment_workspace = layout.pixels + AlignUp(augment.pixels, alignment);
  layout.core.bytes = layout.augment_workspace + AlignUp(augment.workspace, alignment);
  layout.core.input_bytes = layout.core.bytes - layout.pixels;
  layout.copies.insert(layout.copies.end(), gradients.begin(), gradients.end());
  std::ranges::stable_sort(layout.copies, {}, &CopyBack::after);
  layout.host_offsets.resize(program.graph.values().size());
  for (CopyBack& copy : layout.copies) {
    copy.elements = ElementsOf(program, copy.value);
    copy.host_offset = layout.host_bytes;
    layout.host_offsets[static_cast<size_t>(copy.value)] = copy.host_offset;
    layout.host_bytes += AlignUp(copy.elements * sizeof(float), kHostAlignment);
  }
  layout.host_flags = layout.host_bytes;
  layout.host_bytes += AlignUp(flag_bytes, kHostAlignment);
  return layout;
}

}  // namespace ringmaster::cuda
