#include "worker/backend/shard_io.h"

#include <algorithm>
#include <cstring>

namespace ringmaster {
namespace {

Status CheckColumn(const graph::Program& program, const graph::Column& column, size_t elements,
                   std::span<const std::byte> bytes, std::span<const uint64_t> samples) {
  static_assert(sizeof(float) == sizeof(int32_t), "both types of columns are as wide");
  if (bytes.size() != elements * sizeof(int32_t)) {
    return InvalidArgument("shard: column {} has {} bytes, expected {} elements, {} bytes",
                           column.name, bytes.size(), elements, elements * sizeof(int32_t));
  }
  if (program.graph.value(column.value).dtype != graph::DType::kInt32) return absl::OkStatus();
  for (size_t i = 0; i < elements; ++i) {
    int32_t element = 0;
    std::memcpy(&element, bytes.data() + i * sizeof(element), sizeof(element));
    if (element >= column.least && element < column.limit) continue;
    return InvalidArgument("shard: sample {} has {} {}, expected {} to {}",
                           samples[i * samples.size() / elements], column.name, element,
                           column.least, column.limit - 1);
  }
  return absl::OkStatus();
}

}  // namespace

size_t ElementsOf(const graph::Program& program, graph::ValueId value) {
  return static_cast<size_t>(graph::Elements(program.graph.value(value).shape));
}

std::optional<uint32_t> ParameterOf(const graph::Program& program, graph::ValueId value) {
  for (uint32_t p = 0; p < program.parameters.size(); ++p) {
    if (program.parameters[p].value == value) return p;
  }
  for (uint32_t i = 0; i < program.frozen.size(); ++i) {
    if (program.frozen[i].value == value) {
      return static_cast<uint32_t>(program.parameters.size()) + i;
    }
  }
  return std::nullopt;
}

const graph::Column* PixelColumn(const graph::Program& program) {
  const auto found = std::ranges::find_if(program.columns, [&](const graph::Column& column) {
    const graph::Value& value = program.graph.value(column.value);
    return value.dtype == graph::DType::kFloat32 && value.shape.size() == 4;
  });
  return found == program.columns.end() ? nullptr : &*found;
}

Status CheckShard(const graph::Program& program, const graph::Augmenter* augmenter,
                  const ShardInput& input, ShardRows allowed) {
  const auto most = static_cast<size_t>(program.samples);
  const bool fewer = allowed == ShardRows::kUpToAll && !input.samples.empty();
  const size_t rows = fewer ? std::min(most, input.samples.size()) : most;
  const size_t pixels = augmenter == nullptr ? 0 : rows * augmenter->stored().elements();
  if (input.columns.size() != program.columns.size() || input.samples.size() != rows ||
      input.pixels.size() != pixels) {
    return InvalidArgument(
        "shard: expected {} samples, {} columns and {} pixel values, got {}, {} and {}", rows,
        program.columns.size(), pixels, input.samples.size(), input.columns.size(),
        input.pixels.size());
  }
  const graph::Column* const made = augmenter == nullptr ? nullptr : PixelColumn(program);
  for (size_t i = 0; i < program.columns.size(); ++i) {
    const graph::Column& column = program.columns[i];
    const size_t elements = &column == made ? 0 : ElementsOf(program, column.value) / most * rows;
    RING_RETURN_IF_ERROR(CheckColumn(program, column, elements, input.columns[i], input.samples));
  }
  return absl::OkStatus();
}

std::vector<graph::NodeId> GradientNodes(const graph::Program& program) {
  std::vector<graph::NodeId> nodes;
  graph::NodeId last = 0;
  for (const uint32_t parameter : program.gradient_order) {
    const graph::ValueId gradient = program.parameters[parameter].gradient;
    last = std::max(last, program.graph.value(gradient).producer);
    nodes.push_back(last);
  }
  return nodes;
}

void CollectOutput(const graph::Program& program,
                   const std::function<const float*(graph::ValueId)>& at, ShardOutput* output) {
  output->scalars.clear();
  for (const graph::Scalar& scalar : program.scalars) {
    output->scalars.push_back(static_cast<double>(*at(scalar.value)));
  }
  output->rows.resize(program.rows.size());
  for (size_t i = 0; i < program.rows.size(); ++i) {
    const float* const rows = at(program.rows[i].value);
    output->rows[i].assign(rows, rows + ElementsOf(program, program.rows[i].value));
  }
  output->batch_means.clear();
  output->batch_variances.clear();
  if (program.mode != graph::Mode::kTraining) return;
  for (const graph::Normalization& normalization : program.normalizations) {
    const float* means = at(normalization.batch_mean);
    const float* variances = at(normalization.batch_variance);
    output->batch_means.insert(output->batch_means.end(), means, means + normalization.channels);
    output->batch_variances.insert(output->batch_variances.end(), variances,
                                   variances + normalization.channels);
  }
}

}  // namespace ringmaster
