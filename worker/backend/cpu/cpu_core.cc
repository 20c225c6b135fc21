#include "worker/backend/cpu/cpu_core.h"

#include <omp.h>
#include <xmmintrin.h>

#include <algorithm>
#include <utility>

#include "common/amount.h"
#include "worker/backend/core_layout.h"
#include "worker/backend/core_thread.h"
#include "worker/backend/cpu/cpu_executable.h"
#include "worker/backend/cpu/kernel.h"
#include "worker/backend/shard_io.h"

namespace ringmaster::cpu {
namespace {

// By node: the parameter whose gradient is output 0, of that one alone, and read by no node.
std::vector<std::optional<uint32_t>> UnreadGradients(const graph::Program& program) {
  std::vector<int> users(program.graph.values().size());
  for (const graph::Node& node : program.graph.nodes()) {
    for (const graph::ValueId input : node.inputs) ++users[static_cast<size_t>(input)];
  }
  const auto& parameters = program.parameters;
  for (const graph::Parameter& parameter : parameters) {
    if (parameter.gradient != graph::kNoValue) ++users[static_cast<size_t>(parameter.gradient)];
  }
  std::vector<std::optional<uint32_t>> found(program.graph.nodes().size());
  for (size_t p = 0; p < parameters.size(); ++p) {
    const graph::ValueId gradient = parameters[p].gradient;
    if (gradient == graph::kNoValue || users[static_cast<size_t>(gradient)] > 1) continue;
    const auto producer = static_cast<size_t>(program.graph.value(gradient).producer);
    if (program.graph.nodes()[producer].outputs[0] != gradient) continue;
    found[producer] = static_cast<uint32_t>(p);
  }
  return found;
}

// Round to nearest, subnormals kept, no traps: on this thread and on those of its group, which
// OpenMP makes here and keeps. Returns how many they are.
int SetFloatMode(int threads) {
  constexpr unsigned kDefaultMode = 0x1f80;
  int group = 0;
#pragma omp parallel num_threads(threads) reduction(+ : group)
  {
    _mm_setcsr(kDefaultMode);
    ++group;
  }
  return group;
}

// Kernels split their sums among the threads that they get, so fewer would give other bits.
Status MakeGroup(const CoreOptions& options) {
  const auto wanted = static_cast<int>(options.threads);
  // oneDNN bakes the calling thread's count into its primitives, so it is set before any is made.
  omp_set_dynamic(0);
  omp_set_num_threads(wanted);
  const int group = SetFloatMode(wanted);
  if (group == wanted) return absl::OkStatus();
  return FailedPrecondition(
      "{}: expected a group of {} threads, got {}: unset OMP_THREAD_LIMIT, or take a smaller "
      "--threads-per-core",
      options.name, wanted, group);
}

}  // namespace

CpuCore::CpuCore(CoreOptions options, const Device& device, Arena arena)
    : options_(std::move(options)),
      device_(device),
      thread_(std::this_thread::get_id()),
      arena_(std::move(arena)) {}

StatusOr<std::unique_ptr<CpuCore>> CpuCore::Create(const CoreOptions& options,
                                                   const Device& device) {
  if (options.threads == 0) return InvalidArgument("{}: a core needs a thread", options.name);
  RING_RETURN_IF_ERROR(PinThread(options));
  RING_RETURN_IF_ERROR(MakeGroup(options));
  const size_t limit = options.memory_bytes == 0 ? HostMemory() : options.memory_bytes;
  RING_ASSIGN_OR_RETURN(Arena arena, Arena::Create(limit));
  return std::unique_ptr<CpuCore>(new CpuCore(options, device, std::move(arena)));
}

StatusOr<CpuWeights*> CpuCore::Own(Weights* weights) const {
  if (std::this_thread::get_id() != thread_) {
    return FailedPrecondition("{}: bound on another thread than the core's", options_.name);
  }
  auto* const own = dynamic_cast<CpuWeights*>(weights);
  if (own == nullptr) return InvalidArgument("the weights are of another backend");
  return own;
}

StatusOr<CoreLayout> CpuCore::LayOutNodes(const graph::Program& program, CpuWeights* weights,
                                          std::vector<BoundNode>* nodes) const {
  std::vector<size_t> workspace;
  std::vector<graph::ValueId> in_pieces;
  const std::vector<std::optional<uint32_t>> unread = UnreadGradients(program);
  for (const graph::Node& node : program.graph.nodes()) {
    const BindFunction bind = FindKernel(node.kind);
    if (bind == nullptr) {
      return Error(absl::StatusCode::kUnimplemented, "{}: the CPU backend has no kernel for {}",
                   node.name, node.op());
    }
    BindContext context = {program, node, device_, *weights, static_cast<int>(options_.threads)};
    auto kernel = bind(context);
    if (!kernel.ok())
      return Annotate(kernel.status(), fmt::format("{} ({})", node.name, node.op()));
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const auto parameter = ParameterOf(program, node.inputs[i]);
      if (!parameter || context.copies[i] != nullptr) continue;
      RING_ASSIGN_OR_RETURN(context.copies[i],
                            weights->Copy(*parameter, context.input(i).dtype, std::nullopt));
    }
    std::optional<uint32_t> gradient = unread[nodes->size()];
    if (gradient && !(*kernel)->MakePieces()) gradient.reset();
    if (gradient) in_pieces.push_back(node.outputs[0]);
    workspace.push_back((*kernel)->workspace_bytes());
    nodes->push_back({std::move(*kernel), std::move(context.copies), gradient});
  }
  return LayOut(program, kAlignment, std::move(workspace), in_pieces);
}

StatusOr<CoreLayout> CpuCore::Plan(const graph::Program& program, Weights& weights) {
  RING_ASSIGN_OR_RETURN(CpuWeights* const own, Own(&weights));
  std::vector<BoundNode> nodes;
  return LayOutNodes(program, own, &nodes);
}

StatusOr<std::unique_ptr<Executable>> CpuCore::Bind(const graph::Program& program, Weights& weights,
                                                    const graph::Augmenter* augmenter) {
  RING_ASSIGN_OR_RETURN(CpuWeights* const cpu_weights, Own(&weights));
  if (augmenter != nullptr) {
    return Error(absl::StatusCode::kUnimplemented,
                 "{}: the CPU backend makes no images of pixels: bind without an augmenter",
                 options_.name);
  }
  std::vector<BoundNode> nodes;
  RING_ASSIGN_OR_RETURN(const CoreLayout layout, LayOutNodes(program, cpu_weights, &nodes));
  if (options_.memory_bytes != 0) {
    RING_RETURN_IF_ERROR(CheckFits(program, layout, options_.shared_bytes, options_.memory_bytes));
  }
  RING_RETURN_IF_ERROR(arena_.Grow(layout.bytes));
  largest_ = std::max<uint64_t>(largest_, layout.bytes);
  return CpuExecutable::Create(program, *cpu_weights, std::move(nodes), layout, arena_.data());
}

}  // namespace ringmaster::cpu
