#include "worker/plan.h"

#include <algorithm>
#include <bit>
#include <iostream>
#include <thread>
#include <utility>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "common/amount.h"
#include "common/log.h"
#include "worker/devices.h"
#include "worker/offline_job.h"
#include "worker/train/shard_shapes.h"
#include "worker/train/training_job.h"

namespace ringmaster::worker {
namespace {

constexpr int kDoesNotFit = 1, kWrongPlan = 2;
constexpr uint64_t kMostShardSamples = 1 << 24;  // of a shard
constexpr size_t kShownBuffers = 10;
constexpr uint64_t kLanes = 8;  // of a vector of float32

// What a backend says of the programs of a job.
class Planner {
 public:
  [[nodiscard]] static StatusOr<Planner> Create(v1::ResultSpec result, uint32_t threads,
                                                Backend* backend) {
    Planner planner(std::move(result));
    RING_ASSIGN_OR_RETURN(ProgramSet programs, ProgramSet::Build(planner.result_));
    planner.programs_ = std::make_unique<ProgramSet>(std::move(programs));
    RING_ASSIGN_OR_RETURN(planner.weights_, backend->MakeWeights(planner.programs_->training()));
    RING_ASSIGN_OR_RETURN(planner.core_, backend->MakeCore({.name = "plan", .threads = threads}));
    return planner;
  }

  [[nodiscard]] const v1::ResultSpec& result() const { return result_; }
  [[nodiscard]] const ProgramSet& programs() const { return *programs_; }

  // Of a core that runs all of them; `peak`, where it is wanted, of the largest.
  [[nodiscard]] StatusOr<uint64_t> CoreBytes(const ProgramSet& programs, graph::Peak* peak) {
    uint64_t most = 0;
    for (const auto& [shape, program] : programs.programs()) {
      RING_ASSIGN_OR_RETURN(const CoreLayout layout, core_->Plan(program, *weights_));
      if (layout.bytes <= most) continue;
      most = layout.bytes;
      if (peak != nullptr) *peak = graph::PeakOf(program, layout.plan);
    }
    return most;
  }

  // Of a core whose shards have so many samples.
  [[nodiscard]] StatusOr<uint64_t> ShardBytes(uint64_t samples) {
    RING_ASSIGN_OR_RETURN(const ProgramSet programs,
                          ProgramSet::Build(WithShard(result_, static_cast<uint32_t>(samples))));
    return CoreBytes(programs, nullptr);
  }

 private:
  explicit Planner(v1::ResultSpec result) : result_(std::move(result)) {}

  v1::ResultSpec result_;
  std::unique_ptr<ProgramSet> programs_;  // in front of what was made of it
  std::unique_ptr<Weights> weights_;
  std::unique_ptr<Core> core_;
};

// Reduce-scatter and all-gather send (N - 1) / N of all elements each. An element of the sum over
// V shards is below V 2^bits in magnitude; blocks go at an even number of bits (docs/ring.md).
uint64_t WireBytes(const v1::ResultSpec& result, uint64_t elements, uint64_t workers) {
  uint64_t bits = 32;
  if (result.reduction() != v1::REDUCTION_FLOAT32) {
    bits = result.precision_bits() + 1 + std::bit_width(result.shards() - 1);
    bits += bits % 2;
  }
  return 2 * (workers - 1) * (elements / workers) * bits / 8;
}

uint64_t ParametersOf(const graph::Program& program) {
  uint64_t elements = 0;
  for (const graph::Parameter& parameter : program.parameters) {
    elements += static_cast<uint64_t>(graph::Elements(parameter.shape));
  }
  return elements;
}

std::vector<std::string> AdviceOn(const JobPlan& plan) {
  std::vector<std::string> advice;
  if (plan.samples % kLanes != 0) {
    advice.push_back(fmt::format(
        "shards of {} samples are no multiple of {}, which kernels like: batch {} has shards of {}",
        plan.samples, kLanes, AlignUp(plan.samples, kLanes) * plan.shards,
        AlignUp(plan.samples, kLanes)));
  }
  const uint64_t all = plan.cores * plan.workers;
  if (all > plan.shards) {
    advice.push_back(fmt::format("{} of {} cores of {} workers have nothing to do with {} shards",
                                 all - plan.shards, all, plan.workers, plan.shards));
  } else if (plan.shards % all != 0) {
    advice.push_back(
        fmt::format("{} shards do not divide among {} cores of {} workers: some wait for others",
                    plan.shards, all, plan.workers));
  }
  if (!plan.core_fits() && plan.largest_batch > 0) {
    advice.push_back(fmt::format("batch {} fits", plan.largest_batch));
  }
  if (!plan.core_fits()) {
    advice.emplace_back("more shards make smaller ones; they are part of the result");
  }
  if (!plan.host_fits()) {
    advice.push_back(fmt::format("the state takes {}: a smaller model, or more memory a core",
                                 FormatBytes(plan.host.total)));
  }
  return advice;
}

}  // namespace

StatusOr<uint64_t> LargestWithin(uint64_t limit, uint64_t most,
                                 const std::function<StatusOr<uint64_t>(uint64_t)>& bytes) {
  uint64_t low = 0, high = most + 1;  // low fits, high does not
  std::vector<std::pair<uint64_t, uint64_t>> known;
  const auto probe = [&](uint64_t n) -> Status {
    const StatusOr<uint64_t> taken = bytes(n);
    const bool unbuildable =
        absl::IsInvalidArgument(taken.status()) || absl::IsResourceExhausted(taken.status());
    if (unbuildable && n > 1) {
      high = n;
      return absl::OkStatus();
    }
    RING_RETURN_IF_ERROR(taken.status());
    (*taken <= limit ? low : high) = n;
    known.emplace_back(n, *taken);
    return absl::OkStatus();
  };
  for (const uint64_t n : {uint64_t{1}, std::min<uint64_t>(9, most)}) {
    if (low < n && n < high) RING_RETURN_IF_ERROR(probe(n));
  }
  // Where the line through the last two meets the limit; every third time the middle, so that it
  // ends wherever there is no line.
  for (int round = 1; high - low > 1; ++round) {
    uint64_t next = low + (high - low) / 2;
    if (round % 3 != 0 && known.size() >= 2) {
      const auto& [a, at_a] = known[known.size() - 2];
      const auto& [b, at_b] = known.back();
      const double slope = (static_cast<double>(at_b) - static_cast<double>(at_a)) /
                           (static_cast<double>(b) - static_cast<double>(a));
      const double meets =
          static_cast<double>(b) + (static_cast<double>(limit) - static_cast<double>(at_b)) / slope;
      if (meets >= 0 && meets < 1e15) next = static_cast<uint64_t>(meets);
    }
    RING_RETURN_IF_ERROR(probe(std::clamp(next, low + 1, high - 1)));
  }
  return low;
}

StatusOr<JobPlan> PlanJob(const v1::JobSpec& spec, const PlanFlags& flags, Backend* backend) {
  RING_ASSIGN_OR_RETURN(v1::ResultSpec result, ResultWithoutCluster(spec, flags.data_root));
  const std::string title = TitleOf(spec, result);
  RING_ASSIGN_OR_RETURN(Planner planner,
                        Planner::Create(std::move(result), flags.threads_per_core, backend));
  RING_ASSIGN_OR_RETURN(StateMemory host, PlanState(planner.result(), planner.programs().training(),
                                                    !spec.checkpoint().best().empty()));
  const uint64_t shards = planner.result().shards();
  JobPlan plan = {.title = title,
                  .device = backend->numerics_class(flags.threads_per_core).backend(),
                  .batch = planner.result().batch(),
                  .shards = shards,
                  .samples = (planner.result().batch() + shards - 1) / shards,
                  .cores = flags.cores,
                  .memory_per_core = flags.memory_per_core,
                  .host = std::move(host),
                  .workers = flags.workers};
  RING_ASSIGN_OR_RETURN(plan.core_bytes, planner.CoreBytes(planner.programs(), &plan.peak));
  RING_ASSIGN_OR_RETURN(
      const uint64_t samples,
      LargestWithin(flags.memory_per_core, kMostShardSamples / shards,
                    [&](uint64_t samples) { return planner.ShardBytes(samples); }));
  plan.largest_batch = samples * shards;
  plan.wire_bytes =
      WireBytes(planner.result(), ParametersOf(planner.programs().training()), flags.workers);
  plan.advice = AdviceOn(plan);
  return plan;
}

void PrintPlan(const JobPlan& plan, std::ostream& out) {
  out << plan.title << "\n"
      << fmt::format("batch {} in {} shards of at most {} samples, on {} cores of {} memory\n\n",
                     plan.batch, plan.shards, plan.samples, plan.cores,
                     FormatBytes(plan.memory_per_core))
      << fmt::format("core            {} of {}: {}\n", FormatBytes(plan.core_bytes),
                     FormatBytes(plan.memory_per_core), plan.core_fits() ? "fits" : "does not fit")
      << fmt::format("host            {} beside the cores: {}\n", FormatBytes(plan.host.total),
                     plan.host.Text())
      << fmt::format("wire            at most {} a step, from each of {} workers\n",
                     FormatBytes(plan.wire_bytes), plan.workers)
      << fmt::format("largest batch   {}\n\n", plan.largest_batch)
      << fmt::format("a core's largest buffers while {} runs:\n", plan.peak.node);
  for (size_t i = 0; i < std::min(plan.peak.buffers.size(), kShownBuffers); ++i) {
    const graph::PeakBuffer& buffer = plan.peak.buffers[i];
    out << fmt::format("  {:>10}  {} {} {} {}\n", FormatBytes(buffer.bytes), buffer.name, buffer.op,
                       graph::ToString(buffer.shape), graph::Name(buffer.dtype));
  }
  for (const std::string& advice : plan.advice) out << "\nadvice: " << advice;
  out << (plan.advice.empty() ? "" : "\n");
}

std::string ToJson(const JobPlan& plan) {
  nlohmann::ordered_json peak = nlohmann::ordered_json::array();
  for (size_t i = 0; i < std::min(plan.peak.buffers.size(), kShownBuffers); ++i) {
    const graph::PeakBuffer& buffer = plan.peak.buffers[i];
    peak.push_back({{"name", buffer.name},
                    {"op", buffer.op},
                    {"shape", buffer.shape},
                    {"type", graph::Name(buffer.dtype)},
                    {"bytes", buffer.bytes}});
  }
  return nlohmann::ordered_json{{"fits", plan.fits()},
                                {"largest_batch", plan.largest_batch},
                                {"bytes_per_core", {{plan.device, plan.core_bytes}}},
                                {"memory_per_core_bytes", plan.memory_per_core},
                                {"host_bytes", plan.host.total},
                                {"peak", std::move(peak)},
                                {"wire_bytes_per_step", plan.wire_bytes},
                                {"seconds_per_step", nullptr},
                                {"advice", plan.advice}}
      .dump(2);
}

namespace {

void AddPlanOptions(CLI::App* app, PlanFlags* flags, std::string* device, std::string* memory) {
  app->add_option("FILE", flags->job_file, "the job file, YAML; - is stdin")->required();
  app->add_option("--set", flags->overrides,
                  "replace a value of the file, e.g. batch=512; repeatable")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false)
      ->take_all();
  app->add_option("--device", *device, "auto, cpu, cuda, or one GPU as cuda:INDEX")
      ->capture_default_str()
      ->envname("RINGMASTER_DEVICE");
  app->add_option("--cores", flags->cores, "of one worker; default: those of this host")
      ->check(CLI::Range(1U, 4096U).description(""));
  app->add_option("--threads-per-core", flags->threads_per_core, "that compute one shard together")
      ->capture_default_str()
      ->check(CLI::Range(1U, 1024U).description(""));
  app->add_option("--memory-per-core", *memory,
                  "e.g. 8GiB; default: an equal part of what this host has")
      ->type_name("BYTES");
  app->add_option("--workers", flags->workers, "in the ring, for what goes over the wire")
      ->capture_default_str()
      ->check(CLI::Range(1U, 4096U).description(""));
  app->add_option("--data-root", flags->data_root,
                  "folder that holds the dataset: its counts decide how large the last batch is");
  app->add_flag("--json", flags->json, "for programs");
}

// What the command line leaves to the device.
void FillIn(const Backend& backend, PlanFlags* flags) {
  if (flags->cores == 0) {
    flags->cores = std::max(1U, std::thread::hardware_concurrency() / flags->threads_per_core);
  }
  if (flags->memory_per_core != 0) return;
  const uint64_t device = backend.device_profile().memory_per_core();
  flags->memory_per_core = device != 0 ? device : HostMemory() / 5 * 4 / flags->cores;
}

Status Plan(PlanFlags flags, bool* fits) {
  RING_ASSIGN_OR_RETURN(const v1::JobSpec spec, ReadJob(flags.job_file, flags.overrides));
  RING_ASSIGN_OR_RETURN(const auto backend, OpenBackend(flags.device));
  FillIn(*backend, &flags);
  RING_ASSIGN_OR_RETURN(const JobPlan plan, PlanJob(spec, flags, backend.get()));
  *fits = plan.fits();
  if (flags.json) {
    std::cout << ToJson(plan) << "\n";
  } else {
    PrintPlan(plan, std::cout);
  }
  std::cout.flush();
  if (!plan.fits()) std::cerr << "ringworker plan: " << spec.name() << " does not fit\n";
  return absl::OkStatus();
}

}  // namespace

int PlanMain(int argc, const char* const* argv) {
  PlanFlags flags;
  std::string device = "cpu", memory;
  CLI::App app{"says whether a job fits this host's cores, and what it takes, before it starts"};
  app.name("ringworker plan");
  AddPlanOptions(&app, &flags, &device, &memory);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kWrongPlan;
  }
  const auto fail = [](const Status& status) {
    std::cerr << "ringworker plan: " << Message(status) << "\n";
    return absl::IsInvalidArgument(status) ? kWrongPlan : kDoesNotFit;
  };
  const auto choice = ParseDevice(device);
  if (!choice.ok()) return fail(choice.status());
  flags.device = *choice;
  if (!memory.empty()) {
    const auto bytes = ParseBytes(memory, "--memory-per-core");
    if (!bytes.ok()) return fail(bytes.status());
    flags.memory_per_core = *bytes;
  }
  bool fits = false;
  const Status planned = Plan(flags, &fits);
  if (!planned.ok()) return fail(planned);
  return fits ? 0 : kDoesNotFit;
}

}  // namespace ringmaster::worker
