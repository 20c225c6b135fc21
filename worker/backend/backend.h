// What a kind of device offers: the seam between the step loop and kernels. Knows no ring, no job.
//
// A Backend makes Cores; a Core binds Programs (one for each shard shape) to Executables, which
// share the core's arena because only one of them runs at a time. Weights hold the compute copies
// of the parameters, shared by all cores of the worker. Thread: Backend thread-safe; each Core and
// its Executables are used from one thread, the one that made the Core; Weights::Refresh is never
// called while an Executable runs.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "common/exact/block_layout.h"
#include "common/exact/quantize.h"
#include "common/graph/augment/augment.h"
#include "common/graph/memory_plan.h"
#include "common/graph/program.h"
#include "common/status.h"
#include "ringmaster/v1/fleet.pb.h"
#include "ringmaster/v1/jobs.pb.h"
#include "worker/backend/core_layout.h"
#include "worker/backend/device_state.h"

namespace ringmaster {

// Pixels on their way to a device while it computes something else: slots in its memory, filled
// ahead of the runs that read them. Made by Backend::MakeInputStage, one for a job, and owned by
// the job; it outlives every StagedInput. Thread-safe. It does not know which batch lies in a slot.

// The pixels of one shard in a slot, or on their way there; the slot is theirs until this goes. Any
// thread.
class StagedInput {
 public:
  virtual ~StagedInput() = default;
};

struct InputStageOptions {
  uint32_t device = 0;  // which one of Backend::devices(): that of every core of the job
  size_t slots = 1;
  size_t slot_bytes = 0;  // pixels of the largest shard
};

class InputStage {
 public:
  virtual ~InputStage() = default;
  // Begins to copy `pixels`, which may change as soon as it returns. nullptr when every slot is
  // taken; INVALID_ARGUMENT for more than a slot holds.
  [[nodiscard]] virtual StatusOr<std::shared_ptr<const StagedInput>> Bring(
      std::span<const uint8_t> pixels) = 0;
};

// What timing kernels beforehand is asked and what it says: Backend::Tune. Values.

// Whether a gradient of weights that is rounded to 16 bits on its way may win by its speed.
enum class GradientBits : uint8_t { kKept, kMayBeRounded };

struct TuneOptions {
  uint32_t device = 0;  // which one of Backend::devices()
  GradientBits gradient_bits = GradientBits::kKept;
  double seconds = 0;  // for all of it; 0: no limit
};

// A kernel table as text, whose form is the backend's own.
struct KernelTable {
  std::string source;  // its path, for messages
  std::string text;
};

// What the table had no row for, and how long a launch takes.
struct TunedKernel {
  std::string op;
  std::string shape;
  int candidates = 0;
  int tried = 0;     // of them, until the time was up
  bool row = false;  // the table has one now; else time was up, or no candidate would do
  double microseconds = 0;
  double untuned = 0;  // of what is chosen without a table
};
using TuneReport = std::function<void(const TunedKernel&)>;

// What a core will compute after a shard, as far as can be told: a job may lose or gain workers,
// and another core be sooner.
class Outlook {
 public:
  struct Place {
    uint64_t step = 0;
    uint32_t shard = 0;
    auto operator<=>(const Place& other) const = default;
  };
  virtual ~Outlook() = default;
  // The next places, fewer towards the end of the job.
  [[nodiscard]] virtual std::vector<Place> Next(size_t most) const = 0;
  // The dataset indices of its rows; none where they cannot be had.
  [[nodiscard]] virtual std::vector<uint64_t> Samples(const Place& place) const = 0;
};

// One shard of one step. Rows are samples, in the order of the shard's slice of the global batch:
// as many as the program has, or fewer where Backend::pads(). Where the program was bound with an
// augmenter, `pixels` are given and the column that is made of
// them is empty.
struct ShardInput {
  uint64_t seed = 0;  // of the job: dropout
  uint64_t step = 0;
  // Of scripts alone: applied updates before the step, samples of the whole batch, the shard.
  uint64_t update = 0, batch = 0;
  uint32_t shard = 0, shards = 0;
  std::span<const uint64_t> samples;  // dataset index of each row: dropout, augmentation
  std::span<const uint8_t> pixels;    // rows * H * W * C as they are stored
  std::vector<std::span<const std::byte>> columns;  // rows of each of the program's columns
  float loss_seed =
      1;            // S / n of the global batch, which weights of losses multiply; training only
  float share = 1;  // of a row's own label, where the program has Program::share
  const Outlook* outlook = nullptr;  // of scripts alone, in training
  // The same pixels, where an input stage of this backend has brought them ahead; else nullptr.
  const StagedInput* staged = nullptr;
};

struct ShardOutput {
  std::vector<double> scalars;           // the program's, in their order
  std::vector<std::vector<float>> rows;  // likewise, each with all of its samples
  // For each normalization in canonical order, its channels one after the other; training only.
  std::vector<float> batch_means;
  std::vector<float> batch_variances;  // biased
};

// Where an executable's gradients go. Called on the core's thread: `take` with a parameter's
// gradient, float32 in canonical layout, 64-byte aligned, valid during the call: all of it as soon
// as it is complete, in the program's gradient_order, or in pieces while it is made, from element 0
// on, each a multiple of exact::kBlockElements but for the last. Or, where `summed` is set, that
// one instead, in the same order, after the executable itself has added the gradient to the sums of
// its weights' state. `summed` says what is wrong with the first wrong element, which added 0, and
// comes as late as `told` allows: an executable that waits for each gradient waits often.
//
// `outage`: a device went down in the middle of a run, or before it, and is brought up again before
// the shard is computed once more, which may take minutes; then, whatever came of it, that this is
// over. It returns whether the run is still wanted, else that ends with CANCELLED. Nothing of a run
// that ends so was taken.
enum class Outage : uint8_t { kBegins, kEnds };
enum class SumsTold : uint8_t {
  kAtEnd,     // when the run has added all: nobody needs them before
  kByBucket,  // of each of the state's buckets as soon as all of it is added: it goes on to a ring
};
struct GradientSink {
  using Take =
      std::function<void(uint32_t parameter, size_t first, std::span<const float> gradient)>;
  using Summed = std::function<void(uint32_t parameter, exact::FlagKind kind)>;
  Take take;
  Summed summed;  // only where the weights have a state
  SumsTold told = SumsTold::kAtEnd;
  std::function<bool(Outage)> outage;
};

class Executable {
 public:
  virtual ~Executable() = default;
  virtual Status Run(const ShardInput& input, const GradientSink& sink, ShardOutput* output) = 0;
};

// Elements of a parameter: `from` to `to`, of a piece that begins at `begin`.
struct UpdatedRange {
  size_t begin, from, to;
};

// Compute copies of the parameters (and moving statistics) in whatever type and layout kernels
// want.
class Weights {
 public:
  virtual ~Weights() = default;
  // Where the master arena has to lie, as executables that train read it; zeros at first. Empty:
  // anywhere.
  [[nodiscard]] virtual std::span<float> master() { return {}; }
  // From the master arena; `layout` has one tensor for each parameter in canonical numbering.
  // `moving_means` and `moving_variances`: all normalizations' channels, canonical order.
  // `parameters` must stay valid and unchanged while executables run, until the next Refresh: a
  // backend may make a copy as late as a kernel needs it, on the core that needs it.
  virtual Status Refresh(const exact::BlockLayout& layout, std::span<const float> parameters,
                         std::span<const float> moving_means,
                         std::span<const float> moving_variances) = 0;
  // An update in place, between two calls of Refresh: BeginUpdate; Follow for ranges of elements of
  // a parameter (`values`: all of it) as soon as they have their new values, from any thread while
  // they are in its cache; EndUpdate, if all of them are what the next Refresh will give. A piece
  // of a parameter, from element `begin` on, is followed in order by one thread: `from` to `to`.
  // What copies a backend then has need not be brought up. Nothing of it is needed.
  virtual void BeginUpdate() {}
  // Of how many elements of the parameter pieces should be multiples, until the next Refresh: of
  // others nothing may follow.
  [[nodiscard]] virtual size_t FollowedUnit(uint32_t /*parameter*/) const { return 1; }
  virtual void Follow(uint32_t /*parameter*/, const float* /*values*/, const UpdatedRange& /*r*/) {}
  virtual void EndUpdate() {}
  // After a Refresh: of so many copies executables will need the new values, as they used the
  // former ones. Whoever has idle threads may bring them up, several side by side; what is left is
  // brought up by the first executable that needs it.
  [[nodiscard]] virtual size_t stale_copies() const { return 0; }
  virtual Status BringUp(size_t copy) {
    return Internal("weights without copies of their own have none of number {}", copy);
  }
  // What the program has frozen, one after the other in its order, each from a multiple of
  // exact::kBlockElements on: before the first Refresh, and whenever the state was replaced. The
  // values must stay as a Refresh's must.
  virtual Status LoadFrozen(std::span<const float> values) {
    if (values.empty()) return absl::OkStatus();
    return Error(absl::StatusCode::kUnimplemented,
                 "this kind of device has no place for frozen parameters: leave out freeze");
  }
  // The moving statistics alone, where a state updates the parameters. They are copied; a device
  // may get them as late as a program reads them.
  virtual Status RefreshStatistics(std::span<const float> moving_means,
                                   std::span<const float> moving_variances) {
    return Internal("weights without a state have no statistics of their own: {} and {} of them",
                    moving_means.size(), moving_variances.size());
  }
  // What they take of the memory of each device, beside its cores, with the state that MakeState
  // would make of `state` (nullptr: without one); 0 where the host has it. Known before anything of
  // it is allocated.
  [[nodiscard]] virtual uint64_t DeviceBytes(const DeviceStateOptions* /*state*/) const {
    return 0;
  }
  // What they take of the host's memory once programs run that were bound, or planned, with them;
  // 0 where a device has them.
  [[nodiscard]] virtual uint64_t HostBytes() const { return 0; }
  // Called at most once, when every executable that trains is bound: a state that updates these
  // weights in place, or nullptr where the backend leaves that to the host. It holds nothing yet.
  virtual StatusOr<std::unique_ptr<DeviceState>> MakeState(const DeviceStateOptions& /*options*/) {
    return nullptr;
  }
};

class Core {
 public:
  virtual ~Core() = default;
  // Binds kernels and plans memory; the core's arena grows to the largest program bound to it.
  // RESOURCE_EXHAUSTED with the plan as text when it does not fit the core's memory; UNIMPLEMENTED
  // names op and node when a kernel is missing. With an `augmenter`, where Backend::augments(),
  // runs get pixels and make the images themselves, with its bits; with nullptr they get images.
  // `program`, `weights` and `augmenter` must outlive the result.
  virtual StatusOr<std::unique_ptr<Executable>> Bind(const graph::Program& program,
                                                     Weights& weights,
                                                     const graph::Augmenter* augmenter) = 0;
  // What Bind would take of the core's memory, without taking it and whatever the core's limit.
  virtual StatusOr<CoreLayout> Plan(const graph::Program& /*program*/, Weights& /*weights*/) {
    return Error(absl::StatusCode::kUnimplemented,
                 "this kind of device knows what a program takes only once it is bound");
  }
  // What the programs bound so far take of the core's memory: that of the largest. Where programs
  // are compiled by others this is what they say, so that Bind alone can refuse.
  [[nodiscard]] virtual uint64_t memory_bytes() const = 0;
  // And of the host's, where the core's is a device's: what goes there and comes back.
  [[nodiscard]] virtual uint64_t host_bytes() const { return 0; }
};

struct CoreOptions {
  std::string name;  // of its thread, e.g. core0
  uint32_t threads = 1;
  std::vector<int> cpus;      // empty: not pinned
  uint64_t memory_bytes = 0;  // 0: no limit
  // Of them, for weights and state and input that is copied ahead: this core's part of what the
  // cores of a device, or of a host without one, share.
  uint64_t shared_bytes = 0;
  uint32_t device = 0;  // which one of Backend::devices()
  // Of the job that the core is for: ends what it compiles or runs, at once and with CANCELLED,
  // where a device can be left in the middle of that; then the core is of no use any more.
  std::stop_token stop = {};
};

// What a backend is made with. Each kind takes what concerns it.
struct BackendOptions {
  std::string plugin;          // of pjrt: a file; empty: the one of this host's TPUs
  double memory_fraction = 0;  // (0, 1]: of a device's memory that is ours; 0: what the kind takes
  std::optional<uint32_t> device = {};  // of devices(), the only one that is used; else all are
  // After which a device that starts, compiles, or runs a shard, is given up, where that can be
  // done.
  std::chrono::milliseconds start_limit{120'000};
  std::chrono::milliseconds compile_limit{600'000};
  std::chrono::milliseconds run_limit{120'000};
};

// Of a process that ends because its devices are of no use to it any more, at once or behind its
// job: another one may use them.
inline constexpr int kLostExitCode = 70;

class Backend {
 public:
  virtual ~Backend() = default;
  // compute_id is left empty: it is the daemon's.
  [[nodiscard]] virtual v1::NumericsClass numerics_class(uint32_t threads_per_core) const = 0;
  // memory_per_core: what a core may use when nobody limits it, where the device and not the host
  // decides that; else 0.
  [[nodiscard]] virtual v1::DeviceProfile device_profile() const = 0;
  // Cores can be made on devices 0 to devices() - 1: GPUs of this host; a CPU is one.
  [[nodiscard]] virtual uint32_t devices() const { return 1; }
  // What each of those devices says of itself at this moment, for people; empty where a kind cannot
  // tell. Takes milliseconds, and hangs as long as a sick driver does: only for a thread on which
  // nobody waits.
  [[nodiscard]] virtual std::vector<v1::DeviceFigures> figures() { return {}; }
  // Whether programs may be bound with an augmenter: then the host has a quarter of the bytes to
  // hand over, and nothing to compute for them.
  [[nodiscard]] virtual bool augments() const { return false; }
  // Whether an executable takes any number of rows up to its program's, so that one serves all
  // shards of a job: where binding takes long. A shard's bits are a function of its rows all the
  // same.
  [[nodiscard]] virtual bool pads() const { return false; }
  // Whether its devices are this process's alone: no other worker of the host gets one meanwhile.
  [[nodiscard]] virtual bool exclusive() const { return false; }
  // Why this process can compute no more on its devices, whatever it does; OK while it can. Whoever
  // has the backend then ends the process, with kLostExitCode. Any thread.
  [[nodiscard]] virtual Status lost() const { return absl::OkStatus(); }
  // A folder of this process's own, before the first core: what takes long to find out and is the
  // same every time may be kept there for the next process. It changes no bit.
  virtual void KeepIn(const std::string& /*folder*/) {}
  // For programs that are bound with one: RESOURCE_EXHAUSTED with the slots' size when the device
  // has no room for them; nullptr where the kind copies nothing ahead.
  virtual StatusOr<std::unique_ptr<InputStage>> MakeInputStage(
      const InputStageOptions& /*options*/) {
    return nullptr;
  }
  // What a parameter has in S(0), by its canonical number, where the backend knows that and not the
  // graph: of scripts. False: it is drawn.
  [[nodiscard]] virtual bool Given(uint32_t /*parameter*/, std::span<float> /*values*/) const {
    return false;
  }
  virtual StatusOr<std::unique_ptr<Weights>> MakeWeights(const graph::Program& training) = 0;
  // Called on the thread that will run the core: sets its thread count, affinity and float mode.
  virtual StatusOr<std::unique_ptr<Core>> MakeCore(const CoreOptions& options) = 0;
  // Before any job, with no core made: times kernels for what the program computes and adds to
  // `table` the rows that it lacks, of what takes longest first; what has a row is not timed.
  // `report` gets each of them, once its row is in `table`. After an error `table` has the rows
  // that were found before it.
  virtual Status Tune(const graph::Program& /*program*/, const TuneOptions& /*options*/,
                      KernelTable* /*table*/, const TuneReport& /*report*/) {
    return Error(absl::StatusCode::kUnimplemented,
                 "the {} backend has no kernel table: nothing to tune", device_profile().kind());
  }
};

// The only function that names concrete backends. `kind`: cpu; cuda, which is a library of its own
// and an error that says what is missing where there is no GPU; pjrt, which drives a plugin of
// PJRT; auto: a TPU or a GPU when there is one, else one line in the log and the CPU. Once a
// backend is made its library stays loaded.
StatusOr<std::unique_ptr<Backend>> MakeBackend(const std::string& kind,
                                               const BackendOptions& options = {});

}  // namespace ringmaster
