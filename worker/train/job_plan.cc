#include "worker/train/job_plan.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "common/amount.h"
#include "common/graph/cost.h"
#include "common/graph/update/optimizer.h"
#include "worker/backend/core_layout.h"
#include "worker/backend/failure.h"
#include "worker/ring/all_reduce.h"
#include "worker/state/checkpoint_writer.h"

namespace ringmaster::worker {
namespace {

constexpr uint64_t kMostShardSamples = 1 << 24;  // of a shard
constexpr uint64_t kLanes = 8;                   // of a vector of float32, rows of a tile
constexpr uint64_t kTile = 128;                  // columns of one
constexpr uint64_t kFramesUnderWay = 8;          // of a ring, at both neighbours
constexpr double kMuchSaved = 0.9;               // less than this part of it is worth an advice

// Seen with bench/plan_memory.py: pages of libraries that a job is the first to touch, stacks of
// its threads, pieces of a checkpoint on their way; and of each node of a program its description,
// and on each core its kernel.
constexpr uint64_t kLibraries = uint64_t{8} << 20, kMessages = uint64_t{13} << 20;
constexpr uint64_t kNodeBytes = 2 << 10, kKernelBytes = 10 << 10;

uint64_t Sum(const std::vector<WorkerMemory::Part>& parts) {
  uint64_t bytes = 0;
  for (const WorkerMemory::Part& part : parts) bytes += part.bytes;
  return bytes;
}

std::string Words(const std::vector<WorkerMemory::Part>& parts) {
  std::string text;
  for (const WorkerMemory::Part& part : parts) {
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", part.what, FormatBytes(part.bytes));
  }
  return text;
}

uint64_t CeilDivide(uint64_t a, uint64_t b) { return (a + b - 1) / b; }

// A row of every column, as a shard's batch holds it.
uint64_t SampleBytes(const graph::Program& training, bool pixels) {
  uint64_t bytes = sizeof(uint64_t);  // its index
  for (const graph::Column& column : training.columns) {
    const graph::Value& value = training.graph.value(column.value);
    const auto elements = static_cast<uint64_t>(graph::Elements(value.shape) / value.shape[0]);
    bytes += elements * (pixels && column.name == "image" ? 1 : graph::ByteSize(value.dtype));
  }
  return bytes;
}

uint64_t NodesOf(const ProgramSet& programs) {
  uint64_t nodes = 0;
  for (const auto& [shape, program] : programs.programs()) nodes += program.graph.nodes().size();
  return nodes;
}

}  // namespace

uint64_t WorkerMemory::usual() const { return Sum(always); }
uint64_t WorkerMemory::most() const { return Sum(always) + Sum(at_times); }

std::string WorkerMemory::Text() const {
  return Words(always) + (at_times.empty() ? "" : "; at times also " + Words(at_times));
}

WorkerMemory MemoryOf(const v1::ResultSpec& result, const ProgramSet& programs,
                      const StateLayout& layout, const MemoryUse& use) {
  const exact::BlockLayout& blocks = layout.blocks();
  const bool exact_sums = result.reduction() != v1::REDUCTION_FLOAT32;
  const uint64_t elements = blocks.arena_elements();
  const uint64_t rest = layout.frozen().arena_elements() * sizeof(float) +
                        2 * layout.channels() * sizeof(float) +  // moving statistics
                        blocks.block_count() * sizeof(int16_t);  // exponents
  const uint64_t parameters = elements * sizeof(float);
  const uint64_t slots = parameters * layout.slot_names().size();
  const Predicted predicted = PredictedOf(result);
  const uint64_t rows = predicted.samples * layout.row_elements() * sizeof(float);
  const uint64_t state = parameters + slots + rest + rows;
  const size_t copies = CheckpointWriter::MostKept(use.checkpoints, result.watches_size() > 0);
  const uint64_t sample = SampleBytes(programs.any(), use.own_memory);
  const uint64_t shard = CeilDivide(result.batch(), result.shards());
  const uint64_t own_shards = CeilDivide(result.shards(), use.workers);
  // A reader is two steps ahead, within its limit or by a shard, and each core has one in hand.
  const auto read = [&](uint64_t shards) {
    const uint64_t ahead =
        std::min(2 * shards * shard * sample, std::max<uint64_t>(use.input, shard * sample));
    return ahead + std::min<uint64_t>(shards, use.cores) * shard * sample;
  };
  WorkerMemory memory;
  memory.always = {{"parameters", parameters},
                   {"optimizer slots", slots},
                   {"statistics and exponents", rest},
                   {exact_sums ? "integer sums" : "float32 sums",
                    2 * elements * (exact_sums ? sizeof(int64_t) : sizeof(float))}};
  memory.always.push_back({"compute copies of weights", use.weights});
  if (use.exchanged > 0) {
    memory.always.push_back({"columns and gradients on their way", use.exchanged});
  }
  if (rows > 0) {
    // As the ring has them, what is sent and what comes of it.
    const uint64_t step = 2 * predicted.batch * layout.row_elements() * sizeof(int64_t);
    memory.always.push_back({"predictions", rows + step});
  }
  memory.always.push_back({"samples read ahead", read(own_shards)});
  memory.copy = state;
  memory.always.push_back({"a copy for a checkpoint", memory.copy});
  const uint64_t nodes = NodesOf(programs);
  memory.always.push_back(
      {"programs and kernels", nodes * (kNodeBytes + kKernelBytes * use.cores)});
  memory.always.push_back({"libraries", kLibraries});
  memory.always.push_back({"messages", kMessages});
  const uint64_t frames = kFramesUnderWay * ring::AllReduce::LargestPayload({});
  if (use.workers > 1) memory.always.push_back({"frames of the ring", frames});

  if (copies > 1) {
    memory.at_times.push_back(
        {fmt::format("{} more for checkpoints", copies - 1), (copies - 1) * state});
  }
  // From a checkpoint or another worker; what a peer reads is no copy.
  memory.at_times.push_back({"a checkpoint that is restored", state});
  memory.at_times.push_back({"a second state while one is taken over", state});
  if (use.workers == 1) memory.at_times.push_back({"frames of the ring", frames});
  if (own_shards < result.shards()) {
    memory.at_times.push_back(
        {"samples of the other workers' shards", read(result.shards()) - read(own_shards)});
  }
  return memory;
}

uint64_t HostShare(const WorkerMemory& host, uint64_t cores) {
  return CeilDivide(host.most(), cores);
}

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

namespace {

// What a worker takes for one batch of the job.
class Planner {
 public:
  Planner(const v1::ResultSpec& result, const PlanOptions& options, Backend* backend)
      : result_(result), options_(options), backend_(backend) {}

  [[nodiscard]] Status Open() {
    RING_ASSIGN_OR_RETURN(
        core_, backend_->MakeCore({.name = "plan", .threads = options_.threads_per_core}));
    RING_ASSIGN_OR_RETURN(optimizer_, graph::MakeOptimizer(graph::UpdateOptionsOf(result_)));
    return absl::OkStatus();
  }

  struct Taken {
    uint64_t core = 0, elements = 0;
    WorkerMemory host;
    double operations = 0;
  };
  // `peak`: nullptr where nobody asks, as it takes long to find.
  [[nodiscard]] StatusOr<Taken> Take(const v1::ResultSpec& result, const v1::MemoryOptions& memory,
                                     graph::Peak* peak = nullptr) {
    RING_ASSIGN_OR_RETURN(const ProgramSet programs, ProgramSet::Build(result, memory));
    RING_ASSIGN_OR_RETURN(const auto layout,
                          StateLayout::Create(programs.any(), optimizer_->slot_names()));
    RING_ASSIGN_OR_RETURN(const auto weights, backend_->MakeWeights(programs.any()));
    Taken taken;
    uint64_t exchanged = 0;  // a lane has room for the program that needs most
    const graph::Program* largest = nullptr;
    graph::MemoryPlan plan;
    for (const auto& [shape, program] : programs.programs()) {
      RING_ASSIGN_OR_RETURN(CoreLayout core, core_->Plan(program, *weights));
      exchanged = std::max<uint64_t>(exchanged, core.host_bytes);
      if (core.bytes <= taken.core) continue;
      taken.core = core.bytes;
      taken.elements = core.element_bytes;
      taken.operations = graph::Operations(program.graph);
      largest = &program;
      plan = std::move(core.plan);
    }
    if (peak != nullptr && largest != nullptr) *peak = graph::PeakOf(*largest, plan);
    taken.host = MemoryOf(result, programs, *layout,
                          {.weights = weights->HostBytes(),
                           .exchanged = options_.cores * exchanged,
                           .cores = options_.cores,
                           .workers = options_.workers,
                           .own_memory = own_memory()});
    return taken;
  }

  // The same job with shards of so many samples.
  [[nodiscard]] StatusOr<uint64_t> Needed(uint64_t samples) {
    v1::ResultSpec result = result_;
    result.set_batch(static_cast<uint32_t>(samples * result.shards()));
    v1::DataUse& use = *result.mutable_data_use();
    use.set_train_samples(std::max<uint64_t>(use.train_samples(), result.batch()));
    if (!Trains(result))
      use.set_test_samples(std::max<uint64_t>(use.test_samples(), result.batch()));
    if (!options_.counts_known) {
      use.set_train_samples(result.batch());
      if (use.validation_samples() > 0) use.set_validation_samples(result.batch());
      if (use.test_samples() > 0) use.set_test_samples(result.batch());
    }
    RING_ASSIGN_OR_RETURN(const Taken taken, Take(result, options_.memory));
    return NeededOf(taken);
  }

  [[nodiscard]] uint64_t NeededOf(const Taken& taken) const {
    return taken.core + (own_memory() ? 0 : HostShare(taken.host, options_.cores));
  }
  [[nodiscard]] bool own_memory() const { return backend_->device_profile().memory_per_core() > 0; }

  // `taken`: what the job takes as it is.
  [[nodiscard]] StatusOr<JobPlan::Rematerialize> Compare(const Taken& taken) {
    v1::MemoryOptions other = options_.memory;
    other.set_rematerialize(!other.rematerialize());
    RING_ASSIGN_OR_RETURN(const Taken otherwise, Take(result_, other));
    const bool on = options_.memory.rematerialize();
    const Taken& with = on ? taken : otherwise;
    const Taken& without = on ? otherwise : taken;
    return JobPlan::Rematerialize{.on = on,
                                  .needed_with = NeededOf(with),
                                  .needed_without = NeededOf(without),
                                  .operations = with.operations / without.operations};
  }

 private:
  const v1::ResultSpec& result_;
  const PlanOptions& options_;
  Backend* const backend_;
  std::unique_ptr<Core> core_;
  std::unique_ptr<graph::Optimizer> optimizer_;
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
  if (plan.element_bytes > 0 && plan.samples % kTile != 0) {
    advice.push_back(
        fmt::format("a core computes {} samples at a time: shards of {} waste a part of it, batch "
                    "{} has shards "
                    "of {}",
                    kTile, plan.samples, AlignUp(plan.samples, kTile) * plan.shards,
                    AlignUp(plan.samples, kTile)));
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
  const JobPlan::Rematerialize& again = plan.rematerialize;
  const bool saves_much = static_cast<double>(again.needed_with) <
                          kMuchSaved * static_cast<double>(again.needed_without);
  if (!again.on && (saves_much || (!plan.fits() && again.needed_with <= plan.memory_per_core))) {
    advice.push_back(fmt::format(
        "memory: {{rematerialize: true}} would need {} instead of {} and {:.0f}% more operations",
        FormatBytes(again.needed_with), FormatBytes(again.needed_without),
        100 * (again.operations - 1)));
  }
  if (plan.fits()) return advice;
  if (plan.largest_batch > 0) {
    advice.push_back(fmt::format("batch {} fits", plan.largest_batch));
    advice.emplace_back("more shards make smaller ones; they are part of the result");
  } else {
    advice.push_back(
        fmt::format("no batch fits: take a smaller model, or workers with more than {} a core",
                    FormatBytes(plan.memory_per_core)));
  }
  return advice;
}

}  // namespace

StatusOr<JobPlan> PlanResult(const v1::ResultSpec& result, const PlanOptions& options,
                             Backend* backend) {
  Planner planner(result, options, backend);
  RING_RETURN_IF_ERROR(planner.Open());
  graph::Peak peak;
  RING_ASSIGN_OR_RETURN(Planner::Taken taken, planner.Take(result, options.memory, &peak));
  RING_ASSIGN_OR_RETURN(const JobPlan::Rematerialize rematerialize, planner.Compare(taken));
  const uint64_t shards = result.shards();
  JobPlan plan = {.device = backend->numerics_class(options.threads_per_core).backend(),
                  .batch = result.batch(),
                  .shards = shards,
                  .samples = CeilDivide(result.batch(), shards),
                  .cores = options.cores,
                  .memory_per_core = options.memory_per_core,
                  .core_bytes = taken.core,
                  .element_bytes = taken.elements,
                  .own_memory = planner.own_memory(),
                  .host = std::move(taken.host),
                  .workers = options.workers,
                  .peak = std::move(peak),
                  .rematerialize = rematerialize};
  RING_ASSIGN_OR_RETURN(const uint64_t samples,
                        LargestWithin(options.memory_per_core, kMostShardSamples / shards,
                                      [&](uint64_t samples) { return planner.Needed(samples); }));
  plan.largest_batch = samples * shards;
  RING_ASSIGN_OR_RETURN(const ProgramSet programs, ProgramSet::Build(result, {}));
  plan.wire_bytes = WireBytes(result, ParametersOf(programs.any()), options.workers);
  plan.advice = AdviceOn(plan);
  return plan;
}

Status JobPlan::Check() const {
  if (fits()) return absl::OkStatus();
  const auto amount = own_memory ? &FormatHbm : &FormatBytes;
  std::string text =
      fmt::format("Used {} of {} {} per core (exceeded by {}) for batch {} in {} shards\n{}",
                  amount(needed()), amount(memory_per_core), own_memory ? "hbm" : "memory",
                  amount(needed() - memory_per_core), batch, shards, TableOf(*this));
  text.pop_back();
  return OutOfMemory("{}", text);
}

namespace {

std::string CoreLines(const JobPlan& plan) {
  const char* const fits = plan.fits() ? "fits" : "does not fit";
  if (!plan.own_memory) {
    return fmt::format(
        "core            {} of {}: {} for its programs, {} its part of the host's: {}\n",
        FormatBytes(plan.needed()), FormatBytes(plan.memory_per_core), FormatBytes(plan.core_bytes),
        FormatBytes(HostShare(plan.host, plan.cores)), fits);
  }
  std::string text = fmt::format("core            Used {} of {} hbm: {}\n",
                                 FormatHbm(plan.needed()), FormatHbm(plan.memory_per_core), fits);
  if (plan.element_bytes > 0) {
    text += fmt::format(
        "padding         {} of them fill up tiles of {} x {}: {:.0f}% more\n",
        FormatHbm(plan.core_bytes - plan.element_bytes), kLanes, kTile,
        100.0 *
            (static_cast<double>(plan.core_bytes) / static_cast<double>(plan.element_bytes) - 1));
  }
  return text;
}

}  // namespace

std::string TableOf(const JobPlan& plan) {
  std::string text =
      CoreLines(plan) +
      fmt::format("host            {} beside the cores: {}\n", FormatBytes(plan.host.most()),
                  plan.host.Text()) +
      fmt::format("rematerialize   {}: {} a core with it, {} without, {:.0f}% more operations\n",
                  plan.rematerialize.on ? "on" : "off", FormatBytes(plan.rematerialize.needed_with),
                  FormatBytes(plan.rematerialize.needed_without),
                  100 * (plan.rematerialize.operations - 1)) +
      fmt::format("largest batch   {}\n", plan.largest_batch) +
      fmt::format("a core's largest buffers while {} runs:\n", plan.peak.node);
  for (size_t i = 0; i < std::min(plan.peak.buffers.size(), kShownBuffers); ++i) {
    const graph::PeakBuffer& buffer = plan.peak.buffers[i];
    const bool value = buffer.op != "workspace";
    text += fmt::format(
        "  {:>10}  {} {}{}\n", FormatBytes(buffer.bytes), buffer.name, buffer.op,
        value ? " " + graph::ToString(buffer.shape) + " " + graph::Name(buffer.dtype) : "");
  }
  return text;
}

}  // namespace ringmaster::worker
