#include "worker/backend/cpu/cpu_core.h"

#include <omp.h>
#include <pthread.h>
#include <sched.h>
#include <unistd.h>
#include <xmmintrin.h>

#include <cstring>
#include <utility>

#include "worker/backend/cpu/cpu_executable.h"
#include "worker/backend/cpu/kernel_table.h"

namespace ringmaster::cpu {
namespace {

Status Pin(const CoreOptions& options) {
  if (options.cpus.empty()) return absl::OkStatus();
  cpu_set_t set;
  CPU_ZERO(&set);
  for (int cpu : options.cpus) {
    if (cpu < 0 || cpu >= CPU_SETSIZE) {
      return InvalidArgument("{}: there is no CPU {}", options.name, cpu);
    }
    CPU_SET(static_cast<size_t>(cpu), &set);
  }
  const int error = pthread_setaffinity_np(pthread_self(), sizeof(set), &set);
  if (error == 0) return absl::OkStatus();
  return InvalidArgument(
      "{}: cannot run on CPUs {}: {}; `nproc --all` and `taskset -p` tell what "
      "this process may use",
      options.name, fmt::join(options.cpus, ","), std::strerror(error));
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

size_t PhysicalMemory() {
  return static_cast<size_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<size_t>(sysconf(_SC_PAGESIZE));
}

std::string FormatBytes(size_t bytes) {
  constexpr double kGiB = 1U << 30;
  const double amount = static_cast<double>(bytes) / kGiB;
  return amount < 1 ? fmt::format("{:.2f}M", amount * 1024) : fmt::format("{:.2f}G", amount);
}

Status TooLarge(const graph::Program& program, const CoreLayout& layout, size_t limit) {
  return Error(absl::StatusCode::kResourceExhausted,
               "Used {} of {} memory per core (exceeded by {}): arena {}, gradients {}\n{}",
               FormatBytes(layout.bytes), FormatBytes(limit), FormatBytes(layout.bytes - limit),
               FormatBytes(layout.plan.arena_bytes),
               FormatBytes(layout.bytes - layout.plan.arena_bytes),
               graph::Describe(program, layout.plan));
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
  RING_RETURN_IF_ERROR(Pin(options));
  RING_RETURN_IF_ERROR(MakeGroup(options));
  const size_t limit = options.memory_bytes == 0 ? PhysicalMemory() : options.memory_bytes;
  RING_ASSIGN_OR_RETURN(Arena arena, Arena::Create(limit));
  return std::unique_ptr<CpuCore>(new CpuCore(options, device, std::move(arena)));
}

StatusOr<std::unique_ptr<Executable>> CpuCore::Bind(const graph::Program& program,
                                                    Weights& weights) {
  if (std::this_thread::get_id() != thread_) {
    return FailedPrecondition("{}: bound on another thread than the core's", options_.name);
  }
  auto* cpu_weights = dynamic_cast<CpuWeights*>(&weights);
  if (cpu_weights == nullptr) return InvalidArgument("the weights are of another backend");
  std::vector<BoundNode> nodes;
  std::vector<size_t> workspace;
  for (const graph::Node& node : program.graph.nodes()) {
    const BindFunction bind = FindKernel(node.op);
    if (bind == nullptr) {
      return Error(absl::StatusCode::kUnimplemented, "{}: the CPU backend has no kernel for {}",
                   node.name, node.op);
    }
    BindContext context = {program, node, device_, *cpu_weights,
                           static_cast<int>(options_.threads)};
    auto kernel = bind(context);
    if (!kernel.ok()) return Annotate(kernel.status(), fmt::format("{} ({})", node.name, node.op));
    workspace.push_back((*kernel)->workspace_bytes());
    nodes.push_back({std::move(*kernel), std::move(context.copies)});
  }
  const CoreLayout layout = LayOut(program, std::move(workspace));
  if (options_.memory_bytes != 0 && layout.bytes > options_.memory_bytes) {
    return TooLarge(program, layout, options_.memory_bytes);
  }
  RING_RETURN_IF_ERROR(arena_.Grow(layout.bytes));
  return CpuExecutable::Create(program, *cpu_weights, std::move(nodes), layout, arena_.data());
}

}  // namespace ringmaster::cpu
