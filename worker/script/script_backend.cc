#include "worker/script/script_backend.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstdint>
#include <optional>
#include <set>
#include <utility>

#include <spdlog/spdlog.h>

#include "common/amount.h"
#include "common/check.h"
#include "common/crc32c.h"
#include "common/exact/block_layout.h"
#include "common/sha256.h"
#include "worker/backend/core_thread.h"
#include "worker/backend/failure.h"
#include "worker/process/subprocess.h"

namespace ringmaster::script {
namespace {

using std::chrono::steady_clock;

constexpr uint32_t kMostDeaths = 5;  // of children that one shard may cost
constexpr uint32_t kMostAhead = 64;

// The parameters of S(k) in memory that children map: it is the master arena.
class ScriptWeights final : public Weights {
 public:
  static StatusOr<std::unique_ptr<ScriptWeights>> Create(const graph::Program& program) {
    std::vector<exact::BlockLayout::Tensor> tensors;
    for (const uint32_t number : program.gradient_order) {
      const auto elements = graph::Elements(program.parameters[number].shape);
      tensors.push_back({number, static_cast<uint64_t>(elements)});
    }
    RING_ASSIGN_OR_RETURN(const exact::BlockLayout blocks, exact::BlockLayout::Create(tensors));
    auto weights = std::make_unique<ScriptWeights>();
    v1::ScriptLayout& layout = weights->layout_;
    layout.set_bytes(blocks.arena_elements() * sizeof(float));
    for (uint32_t i = 0; i < program.parameters.size(); ++i) {
      layout.add_offsets(blocks.tensor(i).offset() * sizeof(float));
      weights->elements_.push_back(blocks.tensor(i).elements);
    }
    RING_ASSIGN_OR_RETURN(weights->memory_, SharedMemory::Create("ringmaster-state", layout.bytes(),
                                                                 SharedMemory::Access::kRead));
    return weights;
  }

  // No child computes while the worker changes it.
  std::span<float> master() override {
    return {reinterpret_cast<float*>(memory_.data()), memory_.bytes() / sizeof(float)};
  }
  // Children evaluate nothing: no average is shown to them.
  Status Refresh(const exact::BlockLayout& /*layout*/, std::span<const float> /*parameters*/,
                 std::span<const float> /*means*/, std::span<const float> /*variances*/) override {
    return absl::OkStatus();
  }

  [[nodiscard]] const v1::ScriptLayout& layout() const { return layout_; }
  [[nodiscard]] const std::vector<uint64_t>& elements() const { return elements_; }
  [[nodiscard]] const SharedMemory& memory() const { return memory_; }

 private:
  v1::ScriptLayout layout_;
  std::vector<uint64_t> elements_;  // of each tensor
  SharedMemory memory_;
};

// What of a shard its sink has: tensors as they came from a child, or, where that one died, from
// the next one. What it has it does not take again, and both must have given the same bits.
class TakenTensors {
 public:
  explicit TakenTensors(const GradientSink* sink) : sink_(sink) {}

  void Take(uint32_t tensor, std::span<const float> gradient) {
    const std::span<const uint8_t> bytes(reinterpret_cast<const uint8_t*>(gradient.data()),
                                         gradient.size_bytes());
    const uint32_t sum = ExtendCrc32c(0, bytes);
    if (tensor < sums_.size()) {
      if (sums_[tensor] != sum && !differs_) differs_ = tensor;
      return;
    }
    sums_.push_back(sum);
    sink_->take(tensor, 0, gradient);
  }
  [[nodiscard]] bool any() const { return !sums_.empty(); }
  [[nodiscard]] std::optional<uint32_t> differs() const { return differs_; }

 private:
  const GradientSink* const sink_;
  std::vector<uint32_t> sums_;  // CRC-32C, by tensor
  std::optional<uint32_t> differs_;
};

// CANCELLED says that nothing was taken.
Status EndsInShard() { return absl::AbortedError("the run ends in the middle of a shard"); }

// A core's child, and another one where it died.
class ScriptCore final : public Core {
 public:
  ScriptCore(const ScriptOptions& options, ChildSource* children, CoreOptions core, uint32_t number)
      : options_(options), children_(children), core_(std::move(core)), number_(number) {}

  StatusOr<std::unique_ptr<Executable>> Bind(const graph::Program& program, Weights& weights,
                                             const graph::Augmenter* augmenter) override;
  [[nodiscard]] uint64_t memory_bytes() const override { return bytes_; }

  Status Run(const ScriptWeights& weights, const ShardInput& input, const GradientSink& sink,
             ShardOutput* output);

 private:
  [[nodiscard]] Status EnsureChild(const ScriptWeights& weights);
  // Likewise in the middle of a run, which tells its sink.
  [[nodiscard]] Status EnsureChildAgain(const ScriptWeights& weights, const GradientSink& sink);
  // Tells the child what may come after this shard, each place once.
  [[nodiscard]] Status Foretell(const Outlook& outlook, const ShardCall& call, Deadline deadline);
  [[nodiscard]] StatusOr<ShardDone> Compute(const ScriptWeights& weights, const ShardCall& call,
                                            const Outlook* outlook, TakenTensors* taken);
  [[nodiscard]] Status CheckSame(const v1::ScriptFacts& facts, const std::string& process) const;

  const ScriptOptions& options_;
  ChildSource* const children_;
  const CoreOptions core_;
  const uint32_t number_;
  uint64_t bytes_ = 0;
  std::unique_ptr<Child> child_;
  std::set<Outlook::Place> foretold_;  // to this child, and not yet passed
};

class ScriptExecutable final : public Executable {
 public:
  ScriptExecutable(ScriptCore* core, const ScriptWeights* weights)
      : core_(core), weights_(weights) {}
  Status Run(const ShardInput& input, const GradientSink& sink, ShardOutput* output) override {
    return core_->Run(*weights_, input, sink, output);
  }

 private:
  ScriptCore* const core_;
  const ScriptWeights* const weights_;
};

StatusOr<std::unique_ptr<Executable>> ScriptCore::Bind(const graph::Program& program,
                                                       Weights& weights,
                                                       const graph::Augmenter* /*augmenter*/) {
  if (program.rate_groups == 0) {
    return Error(absl::StatusCode::kUnimplemented, "a script's core has no kernels of its own");
  }
  auto& own = static_cast<ScriptWeights&>(weights);
  bytes_ = own.layout().bytes();  // the slot
  const Status ready = EnsureChild(own);
  if (!ready.ok() && !absl::IsUnavailable(ready))
    return ready;  // of one that died: Run has another
  return std::make_unique<ScriptExecutable>(this, &own);
}

Status ScriptCore::CheckSame(const v1::ScriptFacts& facts, const std::string& process) const {
  const v1::ScriptFacts& expected = options_.facts;
  const auto differ = [&](const char* what) {
    return WithFailure(
        v1::FAILURE_CODE_SCRIPT,
        FailedPrecondition("{}: the script is not the same in every process: {} differ; "
                           "seed what draws them before attach",
                           process, what));
  };
  if (facts.tensors_size() != expected.tensors_size()) return differ("its tensors");
  for (int i = 0; i < facts.tensors_size(); ++i) {
    const v1::ScriptTensor &a = facts.tensors(i), &b = expected.tensors(i);
    const bool same = a.name() == b.name() && std::ranges::equal(a.shape(), b.shape()) &&
                      a.role() == b.role() && a.group() == b.group();
    if (!same) return differ("its tensors");
  }
  if (facts.initial_sha256() != expected.initial_sha256()) return differ("its initial values");
  if (facts.frozen_sha256() != expected.frozen_sha256()) return differ("its frozen values");
  return absl::OkStatus();
}

Status ScriptCore::EnsureChild(const ScriptWeights& weights) {
  if (child_ != nullptr) return absl::OkStatus();
  v1::ScriptHello hello;
  hello.set_core(number_);
  hello.set_threads(core_.threads);
  hello.set_deterministic(true);
  RING_ASSIGN_OR_RETURN(StartedChild started,
                        children_->Start(hello, options_.attach_limit, core_.stop));
  RING_RETURN_IF_ERROR(CheckSame(started.attached.facts, started.child->called()));
  const std::stop_callback end(core_.stop, [child = started.child.get()] { child->Interrupt(); });
  RING_RETURN_IF_ERROR(started.child->LayOut(weights.layout(), weights.memory(),
                                             steady_clock::now() + options_.attach_limit));
  child_ = std::move(started.child);
  foretold_.clear();
  return absl::OkStatus();
}

Status ScriptCore::EnsureChildAgain(const ScriptWeights& weights, const GradientSink& sink) {
  if (child_ != nullptr || !sink.outage) return EnsureChild(weights);
  const bool wanted = sink.outage(Outage::kBegins);
  const Status ready =
      wanted ? EnsureChild(weights) : absl::CancelledError("the run ends before there is a child");
  sink.outage(Outage::kEnds);
  return ready;
}

Status ScriptCore::Foretell(const Outlook& outlook, const ShardCall& call, Deadline deadline) {
  std::erase_if(foretold_, [&](const Outlook::Place& place) { return place.step < call.step; });
  for (const Outlook::Place& place : outlook.Next(std::min(options_.facts.ahead(), kMostAhead))) {
    if (!foretold_.insert(place).second) continue;
    const std::vector<uint64_t> samples = outlook.Samples(place);
    if (samples.empty()) continue;
    RING_RETURN_IF_ERROR(child_->Foretell({place.step, call.seed, place.shard, samples}, deadline));
  }
  return absl::OkStatus();
}

StatusOr<ShardDone> ScriptCore::Compute(const ScriptWeights& weights, const ShardCall& call,
                                        const Outlook* outlook, TakenTensors* taken) {
  const std::stop_callback end(core_.stop, [child = child_.get()] { child->Interrupt(); });
  const Deadline deadline = steady_clock::now() + options_.shard_limit;
  const auto compute = [&]() -> StatusOr<ShardDone> {
    if (outlook != nullptr && options_.facts.ahead() > 0) {
      RING_RETURN_IF_ERROR(Foretell(*outlook, call, deadline));
    }
    return child_->Compute(
        call, static_cast<size_t>(options_.facts.metrics_size()),
        static_cast<size_t>(options_.facts.groups_size()), weights.elements().size(), deadline,
        [&](uint32_t tensor) {
          taken->Take(tensor, child_->slot(weights.layout().offsets(static_cast<int>(tensor)),
                                           weights.elements()[tensor]));
        });
  };
  StatusOr<ShardDone> done = compute();
  if (!absl::IsDeadlineExceeded(done.status())) return done;
  child_->Kill();
  return Error(
      absl::StatusCode::kDeadlineExceeded,
      "{} did not compute shard {} of step {} within {} (--run-limit) and was ended; where "
      "it was stands in the log",
      child_->called(), call.shard, call.step, ExactDuration(options_.shard_limit));
}

Status ScriptCore::Run(const ScriptWeights& weights, const ShardInput& input,
                       const GradientSink& sink, ShardOutput* output) {
  const ShardCall call = {.step = input.step,
                          .update = input.update,
                          .seed = input.seed,
                          .batch = input.batch,
                          .shard = input.shard,
                          .shards = input.shards,
                          .seed_scale = input.loss_seed,
                          .samples = input.samples};
  TakenTensors taken(&sink);
  StatusOr<ShardDone> done = Internal("no child was asked");
  for (uint32_t deaths = 0; !done.ok();) {
    const Status ready = EnsureChildAgain(weights, sink);
    if (ready.ok()) {
      done = Compute(weights, call, input.outlook, &taken);
    } else {
      done = absl::IsCancelled(ready) && taken.any() ? EndsInShard() : ready;
    }
    if (done.ok()) break;
    child_ = nullptr;
    if (core_.stop.stop_requested()) return taken.any() ? EndsInShard() : JobEnds();
    const bool died = absl::IsUnavailable(done.status()) || absl::IsDeadlineExceeded(done.status());
    if (!died) return done.status();
    spdlog::warn("{}; step {}, shard {} is computed again", Message(done.status()), input.step,
                 input.shard);
    if (++deaths == kMostDeaths) {
      return Annotate(done.status(), fmt::format("{} children died of one shard", kMostDeaths));
    }
  }
  if (taken.differs()) {
    return Error(absl::StatusCode::kDataLoss,
                 "step {}, shard {}: a child died in the middle of it, and the gradient of {} is "
                 "another one where it was computed again",
                 input.step, input.shard,
                 options_.facts.tensors(static_cast<int>(*taken.differs())).name());
  }
  output->scalars = {done->loss};
  output->scalars.insert(output->scalars.end(), done->metrics.begin(), done->metrics.end());
  // The rates of the last shard count, which is never empty.
  const bool says = input.shard + 1 == input.shards;
  for (const double rate : done->rates) {
    const auto bits = says ? std::bit_cast<uint64_t>(rate) : 0;
    output->scalars.push_back(static_cast<double>(bits >> 32));
    output->scalars.push_back(static_cast<double>(bits & UINT32_MAX));
  }
  return absl::OkStatus();
}

}  // namespace

StatusOr<std::unique_ptr<ScriptBackend>> ScriptBackend::Create(ScriptOptions options,
                                                               OwnedFile initial,
                                                               ChildSource* children) {
  std::unique_ptr<ScriptBackend> backend(new ScriptBackend(std::move(options), children));
  struct stat given = {};
  if (fstat(initial.get(), &given) != 0) given.st_size = 0;
  const size_t most = static_cast<size_t>(given.st_size) / sizeof(float);
  size_t elements = 0;
  for (const v1::ScriptTensor& tensor : backend->options_.facts.tensors()) {
    backend->offsets_.push_back(elements);
    size_t own = 1;
    for (const int64_t extent : tensor.shape()) {
      if (extent < 0 || __builtin_mul_overflow(own, static_cast<size_t>(extent), &own))
        own = SIZE_MAX;
    }
    if (own > most - elements) {
      return Error(absl::StatusCode::kDataLoss,
                   "the core protocol: tensor {} and those before it have more than the {} initial "
                   "values that came",
                   tensor.name(), most);
    }
    elements += own;
  }
  std::vector<float>& values = backend->initial_;
  values.resize(elements);
  const std::span<uint8_t> bytes(reinterpret_cast<uint8_t*>(values.data()),
                                 elements * sizeof(float));
  Sha256 sha;
  const bool whole = ReadExactly(initial.get(), 0, bytes).ok();
  sha.Update(bytes);
  if (whole && Hex(sha.Finish()) == backend->options_.facts.initial_sha256()) return backend;
  return Error(absl::StatusCode::kDataLoss,
               "the core protocol: the initial values are not those of their SHA-256");
}

v1::NumericsClass ScriptBackend::numerics_class(uint32_t /*threads_per_core*/) const {
  return options_.numerics;
}

v1::DeviceProfile ScriptBackend::device_profile() const {
  v1::DeviceProfile profile;
  profile.set_kind("script");
  profile.set_alignment(64);
  return profile;
}

bool ScriptBackend::Given(uint32_t parameter, std::span<float> values) const {
  RING_CHECK(offsets_[parameter] + values.size() <= initial_.size(), "initial values, forgotten");
  std::ranges::copy(std::span(initial_).subspan(offsets_[parameter], values.size()),
                    values.begin());
  return true;
}

StatusOr<std::unique_ptr<Weights>> ScriptBackend::MakeWeights(const graph::Program& training) {
  RING_ASSIGN_OR_RETURN(std::unique_ptr<Weights> weights, ScriptWeights::Create(training));
  return weights;
}

StatusOr<std::unique_ptr<Core>> ScriptBackend::MakeCore(const CoreOptions& options) {
  RING_RETURN_IF_ERROR(PinThread(options));
  return std::make_unique<ScriptCore>(options_, children_, options, cores_++);
}

}  // namespace ringmaster::script
