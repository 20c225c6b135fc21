#include "worker/backend/cpu/cpu_executable.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace ringmaster::cpu {
namespace {

// Of the logits that meet the program's labels; 0 where none do.
int64_t ClassesOf(const graph::Program& program) {
  for (const graph::Node& node : program.graph.nodes()) {
    if (node.op == "softmax_cross_entropy") return program.graph.value(node.inputs[0]).shape[1];
  }
  return 0;
}

size_t ElementsOf(const graph::Program& program, graph::ValueId value) {
  return static_cast<size_t>(graph::Elements(program.graph.value(value).shape));
}

}  // namespace

CoreLayout LayOut(const graph::Program& program, std::vector<size_t> workspace) {
  CoreLayout layout;
  layout.plan =
      graph::PlanMemory(program, {.alignment = kAlignment, .workspace = std::move(workspace)});
  layout.bytes = AlignUp(layout.plan.arena_bytes);
  for (const graph::Parameter& parameter : program.parameters) {
    layout.gradients.push_back(layout.bytes);
    if (parameter.gradient == graph::kNoValue) continue;
    layout.bytes += AlignUp(sizeof(float) * ElementsOf(program, parameter.gradient));
  }
  return layout;
}

CpuExecutable::CpuExecutable(const graph::Program& program, CpuWeights& weights,
                             std::vector<BoundNode> nodes)
    : program_(program),
      weights_(weights),
      nodes_(std::move(nodes)),
      classes_(ClassesOf(program)) {}

StatusOr<std::unique_ptr<CpuExecutable>> CpuExecutable::Create(const graph::Program& program,
                                                               CpuWeights& weights,
                                                               std::vector<BoundNode> nodes,
                                                               const CoreLayout& layout,
                                                               std::byte* memory) {
  std::unique_ptr<CpuExecutable> executable(new CpuExecutable(program, weights, std::move(nodes)));
  RING_RETURN_IF_ERROR(executable->Place(layout, memory));
  RING_RETURN_IF_ERROR(executable->AttachKernels(layout, memory));
  return executable;
}

Status CpuExecutable::Place(const CoreLayout& layout, std::byte* memory) {
  addresses_.resize(program_.graph.values().size());
  for (size_t v = 0; v < addresses_.size(); ++v) {
    const graph::Placement& placement = layout.plan.values[v];
    if (placement.bytes > 0) addresses_[v] = memory + placement.offset;
  }
  for (size_t p = 0; p < program_.parameters.size(); ++p) {
    const graph::ValueId gradient = program_.parameters[p].gradient;
    if (gradient == graph::kNoValue) continue;
    addresses_[static_cast<size_t>(gradient)] = memory + layout.gradients[p];
  }
  for (size_t i = 0; i < program_.normalizations.size(); ++i) {
    const graph::Normalization& normalization = program_.normalizations[i];
    if (normalization.moving_mean == graph::kNoValue) continue;
    addresses_[static_cast<size_t>(normalization.moving_mean)] =
        const_cast<float*>(weights_.moving_mean(i));
    addresses_[static_cast<size_t>(normalization.moving_variance)] =
        const_cast<float*>(weights_.moving_variance(i));
  }
  return absl::OkStatus();
}

Status CpuExecutable::AttachKernels(const CoreLayout& layout, std::byte* memory) {
  for (size_t n = 0; n < nodes_.size(); ++n) {
    const graph::Node& node = program_.graph.nodes()[n];
    Operands operands;
    operands.workspace = memory + layout.plan.workspaces[n].offset;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      WeightCopy* copy = nodes_[n].copies[i];
      const auto parameter = ParameterOf(program_, node.inputs[i]);
      if (copy == nullptr && parameter) {
        const graph::DType dtype = program_.graph.value(node.inputs[i]).dtype;
        RING_ASSIGN_OR_RETURN(copy, weights_.Copy(*parameter, dtype, std::nullopt));
      }
      operands.inputs.push_back(copy != nullptr ? copy->data() : At<void>(node.inputs[i]));
      if (copy != nullptr && std::find(copies_.begin(), copies_.end(), copy) == copies_.end()) {
        copies_.push_back(copy);
      }
    }
    for (graph::ValueId output : node.outputs) operands.outputs.push_back(At<void>(output));
    RING_RETURN_IF_ERROR(nodes_[n].kernel->Attach(operands));
  }
  return absl::OkStatus();
}

Status CpuExecutable::Check(const ShardInput& input) const {
  const size_t images = ElementsOf(program_, program_.images);
  const auto rows = static_cast<size_t>(program_.samples);
  if (input.images.size() != images || input.labels.size() != rows ||
      input.samples.size() != rows) {
    return InvalidArgument(
        "shard: expected {} samples, {} labels and {} image values, got {}, {} and {}", rows, rows,
        images, input.samples.size(), input.labels.size(), input.images.size());
  }
  for (size_t i = 0; i < rows; ++i) {
    if (input.labels[i] >= 0 && input.labels[i] < classes_) continue;
    return InvalidArgument("shard: sample {} has label {}, expected 0 to {}", input.samples[i],
                           input.labels[i], classes_ - 1);
  }
  return absl::OkStatus();
}

void CpuExecutable::Feed(const ShardInput& input) {
  std::memcpy(At<void>(program_.images), input.images.data(), input.images.size_bytes());
  std::memcpy(At<void>(program_.labels), input.labels.data(), input.labels.size_bytes());
  if (program_.loss_seed != graph::kNoValue) *At<float>(program_.loss_seed) = input.loss_seed;
}

void CpuExecutable::Deliver(graph::NodeId node, size_t* next, const GradientSink& sink) const {
  const std::vector<uint32_t>& order = program_.gradient_order;
  for (; *next < order.size(); ++*next) {
    const graph::ValueId gradient = program_.parameters[order[*next]].gradient;
    if (program_.graph.value(gradient).producer > node) return;
    sink(order[*next], {At<const float>(gradient), ElementsOf(program_, gradient)});
  }
}

void CpuExecutable::Collect(ShardOutput* output) const {
  output->loss_sum = static_cast<double>(*At<float>(program_.loss_sum));
  output->correct = static_cast<uint64_t>(*At<float>(program_.correct));
  output->batch_means.clear();
  output->batch_variances.clear();
  if (program_.mode != graph::Mode::kTraining) return;
  for (const graph::Normalization& normalization : program_.normalizations) {
    const float* means = At<float>(normalization.batch_mean);
    const float* variances = At<float>(normalization.batch_variance);
    output->batch_means.insert(output->batch_means.end(), means, means + normalization.channels);
    output->batch_variances.insert(output->batch_variances.end(), variances,
                                   variances + normalization.channels);
  }
}

Status CpuExecutable::Run(const ShardInput& input, const GradientSink& sink, ShardOutput* output) {
  RING_RETURN_IF_ERROR(Check(input));
  for (WeightCopy* copy : copies_) RING_RETURN_IF_ERROR(weights_.Ensure(*copy));
  Feed(input);
  const RunKeys keys = {input.seed, input.step, input.samples};
  size_t next_gradient = 0;
  for (size_t n = 0; n < nodes_.size(); ++n) {
    RING_RETURN_IF_ERROR(nodes_[n].kernel->Run(keys));
    Deliver(static_cast<graph::NodeId>(n), &next_gradient, sink);
  }
  Collect(output);
  return absl::OkStatus();
}

}  // namespace ringmaster::cpu
