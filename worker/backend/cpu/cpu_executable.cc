#include "worker/backend/cpu/cpu_executable.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "worker/backend/shard_io.h"

namespace ringmaster::cpu {

CpuExecutable::CpuExecutable(const graph::Program& program, CpuWeights& weights,
                             std::vector<BoundNode> nodes)
    : program_(program),
      weights_(weights),
      nodes_(std::move(nodes)),
      moves_(weights.moves()),
      gradient_nodes_(GradientNodes(program)) {}

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
  addresses_ = AddressesOf(program_, layout, memory);
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
    Operands& operands = nodes_[n].operands;
    operands.workspace = memory + layout.plan.workspaces[n].offset;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      WeightCopy* copy = nodes_[n].copies[i];
      if (copy != nullptr) RING_RETURN_IF_ERROR(weights_.Place(*copy));
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

Status CpuExecutable::FollowMasters() {
  if (std::exchange(moves_, weights_.moves()) == weights_.moves()) return absl::OkStatus();
  for (BoundNode& node : nodes_) {
    bool moved = false;
    for (size_t i = 0; i < node.copies.size(); ++i) {
      if (node.copies[i] == nullptr) continue;
      const void* const now = node.copies[i]->data();
      moved |= std::exchange(node.operands.inputs[i], now) != now;
    }
    if (moved) RING_RETURN_IF_ERROR(node.kernel->Attach(node.operands));
  }
  return absl::OkStatus();
}

void CpuExecutable::Feed(const ShardInput& input) {
  for (size_t i = 0; i < program_.columns.size(); ++i) {
    const std::span<const std::byte> bytes = input.columns[i];
    std::memcpy(At<void>(program_.columns[i].value), bytes.data(), bytes.size());
  }
  for (const graph::Seed& seed : program_.seeds) {
    *At<float>(seed.value) = input.loss_seed * seed.weight;
  }
  if (program_.share != graph::kNoValue) *At<float>(program_.share) = input.share;
}

void CpuExecutable::Deliver(graph::NodeId node, size_t* next, const GradientSink& sink) const {
  const std::vector<uint32_t>& order = program_.gradient_order;
  for (; *next < order.size(); ++*next) {
    if (gradient_nodes_[*next] > node) return;
    const graph::ValueId gradient = program_.parameters[order[*next]].gradient;
    const auto* const elements = At<const float>(gradient);
    if (elements != nullptr) sink.take(order[*next], 0, {elements, ElementsOf(program_, gradient)});
  }
}

Status CpuExecutable::Run(const ShardInput& input, const GradientSink& sink, ShardOutput* output) {
  RING_RETURN_IF_ERROR(CheckShard(program_, nullptr, input));
  for (WeightCopy* copy : copies_) RING_RETURN_IF_ERROR(weights_.Ensure(*copy));
  RING_RETURN_IF_ERROR(FollowMasters());
  Feed(input);
  const RunKeys keys = {input.seed, input.step, input.samples};
  size_t next_gradient = 0;
  for (size_t n = 0; n < nodes_.size(); ++n) {
    Kernel::TakePiece take;
    if (const auto parameter = nodes_[n].in_pieces) {
      take = [&sink, parameter](size_t first, std::span<const float> piece) {
        sink.take(*parameter, first, piece);
      };
    }
    RING_RETURN_IF_ERROR(nodes_[n].kernel->Run(keys, take));
    Deliver(static_cast<graph::NodeId>(n), &next_gradient, sink);
  }
  CollectOutput(
      program_, [this](graph::ValueId value) { return At<const float>(value); }, output);
  return absl::OkStatus();
}

}  // namespace ringmaster::cpu
