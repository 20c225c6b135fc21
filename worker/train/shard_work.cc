#include "worker/train/shard_work.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <optional>
#include <utility>

#include "common/exact/quantize.h"
#include "common/failpoint.h"
#include "common/job/sample_use.h"
#include "common/job/shards.h"
#include "common/sha256.h"
#include "worker/backend/failure.h"

namespace ringmaster::worker {
namespace {

// Of programs for such a batch.
graph::Mode ModeOf(const BatchId& id) {
  return id.use() == graph::Use::kTraining ? graph::Mode::kTraining : graph::Mode::kInference;
}

// Of a core behind `id`.
class CoreOutlook final : public Outlook {
 public:
  CoreOutlook(const TrainingJob* job, const Reader* reader, const BatchId& behind, size_t core)
      : job_(job), reader_(reader), behind_(behind), core_(core) {}
  [[nodiscard]] std::vector<Place> Next(size_t most) const override {
    std::vector<Place> places;
    for (const BatchId& id :
         ComingWork(job_->spec(), reader_->shards(), behind_, core_, job_->cores->size(), most)) {
      places.push_back({id.step, id.shard});
    }
    return places;
  }
  [[nodiscard]] std::vector<uint64_t> Samples(const Place& place) const override {
    const auto batch = job_->loader->Open(BatchId::Training(place.step, place.shard));
    return batch.ok() ? (*batch)->samples : std::vector<uint64_t>();
  }

 private:
  const TrainingJob* const job_;
  const Reader* const reader_;
  const BatchId behind_;
  const size_t core_;
};

// That a certain shard comes.
class ShardOutlook final : public Outlook {
 public:
  explicit ShardOutlook(const ShardBatch* batch) : batch_(batch) {}
  [[nodiscard]] std::vector<Place> Next(size_t /*most*/) const override {
    return {{batch_->id.step, batch_->id.shard}};
  }
  [[nodiscard]] std::vector<uint64_t> Samples(const Place& /*place*/) const override {
    return batch_->samples;
  }

 private:
  const ShardBatch* const batch_;
};

// Runs one shard on the core that owns `executable`, bound to the job's program for its shape, and
// fills `result`, but for the flag that the sink has to keep. INTERNAL names a column that the
// program reads and the batch has not.
Status RunShard(const TrainingJob& job, const ShardBatch& batch, Executable* executable,
                const GradientSink& sink, ShardResult* result, const Outlook* outlook = nullptr) {
  result->shard = batch.id.shard;
  result->samples = batch.samples.size();
  result->flag = {};
  ShardInput input;
  input.seed = job.spec().seed();
  input.step = batch.id.step;
  input.update = job.state->updates;
  input.batch = batch.batch_samples;
  input.shard = batch.id.shard;
  input.shards = job.spec().shards();
  input.samples = batch.samples;
  input.pixels = batch.pixels.span();
  input.staged = batch.staged.get();
  for (const std::string& name : job.layout->columns()) {
    const auto bytes = batch.column(name);
    if (!bytes) return Internal("the model reads column {}, which the data has not", name);
    input.columns.push_back(*bytes);
  }
  input.loss_seed = job.state->loss_scale.seed(batch.batch_samples);
  input.share = batch.share;
  input.outlook = outlook;
  return executable->Run(input, sink, &result->output);
}

StatusOr<std::shared_ptr<const ShardBatch>> Fetch(TrainingJob* job, Reader* reader,
                                                  const BatchId& id, ShardResult* result) {
  const auto deadline = std::chrono::steady_clock::now() + job->options.input_limit;
  result->input_seconds = result->outage_seconds = 0;
  const InputScope input(&job->pulse, &result->input_seconds);
  return reader->Get(id, deadline);
}

Status ComputeShard(TrainingJob* job, const ShardBatch& batch, const Seat& seat,
                    const Outlook* outlook, SumsTold told, const std::function<bool()>& abandoned,
                    ShardResult* result) {
  const bool training = batch.id.use() == graph::Use::kTraining;
  RING_ASSIGN_OR_RETURN(Executable* const executable,
                        seat.executable({ModeOf(batch.id), batch.samples.size()}));

  GradientSink add{.take = [&](uint32_t tensor, size_t first, std::span<const float> piece) {
    KeepFirst(job->gradients->Add(tensor, first, piece), tensor, &result->flag);
  }};
  if (training && job->device != nullptr) {
    add.summed = [&](uint32_t tensor, exact::FlagKind kind) {
      job->gradients->AddedOnDevice(tensor);
      KeepFirst(kind, tensor, &result->flag);
    };
    add.told = told;
  }
  std::optional<OutageScope> outage;
  add.outage = [&](Outage is) {
    if (is == Outage::kBegins) {
      outage.emplace(&job->pulse, &result->outage_seconds);
    } else {
      outage.reset();
    }
    return !abandoned();
  };
  result->end = ShardEnd::kTorn;
  const Status ran = RunShard(*job, batch, executable, add, result, outlook);
  if (absl::IsCancelled(ran) && abandoned()) {
    result->end = ShardEnd::kOpen;
    return absl::OkStatus();
  }
  RING_RETURN_IF_ERROR(ran);
  result->end = ShardEnd::kDone;
  job->pulse.Tick();
  return absl::OkStatus();
}

// Hashes the integers of a piece of a gradient, from element `first` on, block by block; says
// whether a value could not be added.
exact::FlagKind HashGradient(const TrainingJob& job, uint32_t tensor, size_t first,
                             std::span<const float> piece, Sha256* sha) {
  const exact::TensorRange& range = job.state->layout->blocks().tensor(tensor);
  auto kind = exact::FlagKind::kNone;
  for (size_t at = 0; at < piece.size(); at += exact::kBlockElements) {
    const size_t block = range.first_block + (first + at) / exact::kBlockElements;
    const size_t count = std::min<size_t>(exact::kBlockElements, piece.size() - at);
    int64_t integers[exact::kBlockElements] = {};
    const exact::FlagKind found =
        exact::QuantizeAdd(piece.subspan(at, count), job.state->units.unit_exponent(block),
                           job.state->loss_scale.inverse(), job.spec().shards(), integers);
    if (kind == exact::FlagKind::kNone) kind = found;
    sha->Update(integers, count * sizeof(int64_t));
  }
  return kind;
}

// What a shard gives: of all of it, and of each tensor.
struct ShardHash {
  std::string sha256;
  std::vector<Sha256Digest> tensors;
  double loss = 0;
};

StatusOr<ShardHash> HashShard(const TrainingJob& job, const ShardBatch& batch, const Seat& seat,
                              const Outlook* outlook = nullptr) {
  RING_ASSIGN_OR_RETURN(Executable* const executable,
                        seat.executable({ModeOf(batch.id), batch.samples.size()}));
  Sha256 sha;
  ShardResult result;
  ShardHash hash;
  hash.tensors.resize(job.layout->tensors().size());
  const bool each = job.layout->rate_groups() > 0;
  const GradientSink sink{.take = [&](uint32_t tensor, size_t first, std::span<const float> piece) {
    KeepFirst(HashGradient(job, tensor, first, piece, &sha), tensor, &result.flag);
    if (!each) return;  // of a script, whose gradients come whole
    Sha256 own;
    own.Update(piece.data(), piece.size_bytes());
    hash.tensors[tensor] = own.Finish();
  }};
  RING_RETURN_IF_ERROR(RunShard(job, batch, executable, sink, &result, outlook));
  exact::Record record = job.EmptyRecord();
  AddToRecord(result, &record);
  sha.Update(record.integers().data(), record.integers().size_bytes());
  for (const std::vector<float>& rows : result.output.rows) {
    sha.Update(rows.data(), rows.size() * sizeof(float));
  }
  hash.sha256 = Hex(sha.Finish());
  if (!result.output.scalars.empty()) hash.loss = result.output.scalars.front();
  return hash;
}

uint64_t Rows(const BatchId& id, uint32_t shards, uint64_t n) {
  return job::ShardOf(id.shard, shards, n).size();
}

}  // namespace

void KeepFirst(exact::FlagKind kind, uint32_t tensor, exact::DecodedFlag* flag) {
  if (kind == exact::FlagKind::kNone) return;
  if (flag->kind != exact::FlagKind::kNone && flag->tensor < tensor) return;
  *flag = {kind, tensor};
}

std::vector<BatchId> WorkOfStep(const v1::ResultSpec& spec, std::span<const uint32_t> shards,
                                uint64_t step) {
  const job::SampleUse use(spec.data_use());
  std::vector<BatchId> work;
  for (const uint32_t shard : shards) {
    const BatchId id = BatchId::OfStep(spec, step, shard);
    const uint64_t n = job::BatchOf(step, spec.batch(), use.count(id.set)).size();
    if (Rows(id, spec.shards(), n) > 0) work.push_back(id);
  }
  return work;
}

std::vector<BatchId> EvaluationWork(const v1::ResultSpec& spec, std::span<const uint32_t> shards,
                                    job::SampleSet set, uint64_t applied) {
  const uint64_t samples = job::SampleUse(spec.data_use()).count(set);
  const uint64_t batches = (samples + spec.batch() - 1) / spec.batch();
  std::vector<BatchId> work;
  for (uint64_t batch = 0; batch < batches; ++batch) {
    const uint64_t n = job::BatchOf(batch, spec.batch(), samples).size();
    for (const uint32_t shard : shards) {
      const BatchId id = BatchId::Evaluation(applied, set, batch, shard);
      if (Rows(id, spec.shards(), n) > 0) work.push_back(id);
    }
  }
  return work;
}

std::vector<BatchId> ComingWork(const v1::ResultSpec& spec, std::span<const uint32_t> shards,
                                const BatchId& id, size_t core, size_t cores, size_t most) {
  std::vector<BatchId> coming;
  const uint64_t end = std::min(spec.total_steps(), id.step + most + 1);  // one a step, at least
  for (uint64_t step = id.step; step < end; ++step) {
    const std::vector<BatchId> work = WorkOfStep(spec, shards, step);
    for (size_t i = core; i < work.size(); i += cores) {
      if (coming.size() == most) return coming;
      if (work[i] > id) coming.push_back(work[i]);
    }
  }
  return coming;
}

Status ComputeShards(TrainingJob* job, Reader* reader, std::span<const BatchId> work, SumsTold told,
                     const std::function<bool()>& abandoned, std::span<ShardResult> results) {
  // Of a step of a script each core has its own share first, which it is told ahead; the rest goes
  // to whoever is free, in order, as all of it does elsewhere.
  const size_t cores = job->cores->size();
  const bool dealt = job->layout->rate_groups() > 0;
  std::vector<std::atomic<bool>> taken(work.size());
  std::atomic<size_t> next{dealt ? cores : 0};  // of what is dealt each core has its first at once
  std::atomic<size_t> done{0};
  std::atomic<bool> failed{false};
  const auto compute = [&](size_t i, const Seat& seat) -> Status {
    const BatchId& id = work[i];
    ShardResult* const result = &results[i];
    result->core = seat.index();
    RING_ASSIGN_OR_RETURN(const auto batch, Fetch(job, reader, id, result));
    if (failed || abandoned()) return absl::OkStatus();
    // Of what is another core's, what comes behind it is.
    const bool own = i % cores == seat.index();
    const CoreOutlook outlook(job, reader, own ? id : BatchId::Training(id.step, UINT32_MAX),
                              seat.index());
    RING_RETURN_IF_ERROR(
        ComputeShard(job, *batch, seat, dealt ? &outlook : nullptr, told, abandoned, result));
    if (result->end == ShardEnd::kOpen) return absl::OkStatus();
    const bool training = id.use() == graph::Use::kTraining;
    const bool of_step = training || Predicts(job->spec());
    if (of_step && done++ == 0) HitFailpoint("compute", id.step);
    return absl::OkStatus();
  };
  return job->cores->RunOnAll([&](const Seat& seat) -> Status {
    const auto take = [&](size_t i) -> Status {
      if (taken[i].exchange(true) || failed || abandoned()) return absl::OkStatus();
      const Status status = compute(i, seat);
      if (status.ok()) return status;
      failed = true;
      return Annotate(status, fmt::format("shard {}", work[i].shard));
    };
    for (size_t i = seat.index(); dealt && i < work.size(); i += cores) {
      RING_RETURN_IF_ERROR(take(i));
    }
    for (size_t i = next++; i < work.size(); i = next++) RING_RETURN_IF_ERROR(take(i));
    return absl::OkStatus();
  });
}

double LongestInput(std::span<const ShardResult> results, size_t cores) {
  std::vector<double> seconds(cores);
  for (const ShardResult& result : results) seconds[result.core] += result.input_seconds;
  return std::ranges::max(seconds);
}

double LongestWait(std::span<const ShardResult> results, size_t cores) {
  std::vector<double> seconds(cores);
  for (const ShardResult& result : results) {
    seconds[result.core] += result.input_seconds + result.outage_seconds;
  }
  return std::ranges::max(seconds);
}

void AddToRecord(const ShardResult& result, exact::Record* record) {
  const auto weighted = [&](const std::vector<float>& values) {
    std::vector<double> products(values.begin(), values.end());
    for (double& value : products) value *= static_cast<double>(result.samples);
    return products;
  };
  const bool flagged = result.flag.kind != exact::FlagKind::kNone;
  record->AddShard(result.shard, result.samples, result.output.scalars,
                   weighted(result.output.batch_means), weighted(result.output.batch_variances),
                   flagged ? exact::EncodeFlag(result.flag.kind, result.flag.tensor) : 0);
}

namespace {

StatusOr<std::shared_ptr<const ShardBatch>> LoadKnownShard(TrainingJob* job) {
  const v1::ResultSpec& spec = job->spec();
  return job->loader->Load(Trains(spec) ? BatchId::Training(0, spec.shards() - 1)
                                        : BatchId::Evaluation(0, job::HeldOutSet(spec.data_use()),
                                                              0, spec.shards() - 1));
}

}  // namespace

namespace {

std::string FirstDifference(const TrainingJob& job, const ShardHash& a, const ShardHash& b) {
  const auto at = std::ranges::mismatch(a.tensors, b.tensors).in1 - a.tensors.begin();
  const bool tensor = static_cast<size_t>(at) < a.tensors.size();
  return fmt::format("loss {:.6g}, then {:.6g}; {}", a.loss, b.loss,
                     tensor ? "first tensor in the order of backward: " +
                                  job.layout->NameOf(static_cast<uint32_t>(at))
                            : "its gradients are equal");
}

// A script is to be a pure function of state, step and shard: the shard once more behind another
// one, during which its samples may be read ahead, and where that differs twice in a row, which
// tells a script that keeps something from one that is not repeatable at all.
Status CheckPure(const TrainingJob& job, const ShardBatch& shard, const ShardBatch* other,
                 const ShardHash& first, const Seat& seat) {
  const ShardOutlook outlook(&shard);
  if (other != nullptr) RING_RETURN_IF_ERROR(HashShard(job, *other, seat, &outlook).status());
  RING_ASSIGN_OR_RETURN(const ShardHash again, HashShard(job, shard, seat));
  if (again.sha256 == first.sha256) return absl::OkStatus();
  RING_ASSIGN_OR_RETURN(const ShardHash third, HashShard(job, shard, seat));
  const std::string what = FirstDifference(job, first, again);
  // An op that cannot be repeated is one of backward: forward computes the same loss, and no two
  // are equal.
  if (third.sha256 == again.sha256 || third.sha256 == first.sha256 || first.loss != again.loss ||
      again.loss != third.loss) {
    return WithFailure(v1::FAILURE_CODE_SCRIPT,
                       FailedPrecondition("the script is not pure: shard {} gave other gradients "
                                          "after another shard was computed "
                                          "in between ({}). It keeps something from shard to "
                                          "shard: a batch drawn before the loop "
                                          "or one iteration early, a generator, a counter. Draw "
                                          "inside `for shard in job.shards()`",
                                          shard.id.shard, what));
  }
  return WithFailure(
      v1::FAILURE_CODE_SCRIPT,
      FailedPrecondition(
          "the script is not deterministic: shard {} gave other gradients each time ({}). What "
          "draws numbers without the generators of torch, random and numpy, the time, or an op "
          "that cannot be repeated: torch.use_deterministic_algorithms(True), which attach calls, "
          "must stay on",
          shard.id.shard, what));
}

}  // namespace

StatusOr<std::vector<std::string>> KnownShardSha256(TrainingJob* job) {
  RING_ASSIGN_OR_RETURN(const std::shared_ptr<const ShardBatch> batch, LoadKnownShard(job));
  const bool script = job->layout->rate_groups() > 0;
  std::shared_ptr<const ShardBatch> other;
  if (script && job->spec().shards() > 1) {
    RING_ASSIGN_OR_RETURN(other, job->loader->Load(BatchId::Training(0, 0)));
    if (other->samples.empty()) other = nullptr;
  }
  std::vector<std::string> hashes(job->cores->size());
  RING_RETURN_IF_ERROR(job->cores->RunOnAll([&](const Seat& seat) -> Status {
    RING_ASSIGN_OR_RETURN(ShardHash hash, HashShard(*job, *batch, seat));
    if (script) RING_RETURN_IF_ERROR(CheckPure(*job, *batch, other.get(), hash, seat));
    hashes[seat.index()] = std::move(hash.sha256);
    return absl::OkStatus();
  }));
  return hashes;
}

StatusOr<double> KnownShardSeconds(TrainingJob* job) {
  RING_ASSIGN_OR_RETURN(const std::shared_ptr<const ShardBatch> batch, LoadKnownShard(job));
  std::array<double, 3> rounds{};
  for (double& round : rounds) {
    std::vector<double> seconds(job->cores->size());
    RING_RETURN_IF_ERROR(job->cores->RunOnAll([&](const Seat& seat) -> Status {
      RING_ASSIGN_OR_RETURN(Executable* const executable,
                            seat.executable({ModeOf(batch->id), batch->samples.size()}));
      const auto begin = std::chrono::steady_clock::now();
      ShardResult result;
      const GradientSink nowhere{.take = [](uint32_t, size_t, std::span<const float>) {}};
      RING_RETURN_IF_ERROR(RunShard(*job, *batch, executable, nowhere, &result));
      const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
      seconds[seat.index()] = took.count();
      return absl::OkStatus();
    }));
    round = std::ranges::max(seconds);
  }
  std::ranges::sort(rounds);
  return rounds[1];
}

}  // namespace ringmaster::worker
