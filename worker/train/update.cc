#include "worker/train/update.h"

#include <algorithm>
#include <array>
#include <bit>
#include <functional>
#include <utility>
#include <vector>

#include "common/exact/digest.h"
#include "common/failpoint.h"
#include "common/job/resolve.h"
#include "common/job/shards.h"
#include "worker/backend/failure.h"
#include "worker/state/state_hash.h"
#include "worker/train/state_check.h"

namespace ringmaster::worker {
namespace {

void AddRecord(const exact::Record& total, exact::BlockSum* sum) {
  for (const exact::Block& block : total.blocks()) {
    const size_t at = size_t{block.index} * exact::kBlockElements;
    sum->Add(block.tensor, block.index, total.integers().subspan(at, block.count));
  }
}

void UpdateStatistics(const exact::Record& total, State* state) {
  std::vector<float> means(state->layout->channels());
  std::vector<float> variances(state->layout->channels());
  for (size_t i = 0; i < means.size(); ++i) {
    means[i] = static_cast<float>(total.mean(i));
    variances[i] = static_cast<float>(total.variance(i));
  }
  for (const StateLayout::Normalization& norm : state->layout->normalizations()) {
    const auto update = [&](const std::vector<float>& batch, Arena<float>* moving) {
      graph::UpdateMovingStatistic(norm.momentum,
                                   std::span(batch).subspan(norm.first_channel, norm.channels),
                                   moving->span().subspan(norm.first_channel, norm.channels));
    };
    update(means, &state->moving_means);
    update(variances, &state->moving_variances);
  }
}

void UpdateMetrics(const v1::ResultSpec& spec, const exact::Record& total, State* state) {
  const uint64_t epoch = state->step / spec.steps_per_epoch();
  EpochMetrics& metrics = state->metrics;
  std::vector<double> sums = total.scalars();
  std::fill_n(sums.rbegin(), 2 * state->layout->rate_groups(), 0);  // no metrics
  if (metrics.epoch != epoch) metrics = {.epoch = epoch};
  metrics.sums.resize(sums.size());
  std::ranges::transform(metrics.sums, sums, metrics.sums.begin(), std::plus<>());
  metrics.samples += total.samples();
}

// The rates that a script's shards said: the bits of a float64 in two counts each.
std::vector<double> RatesOf(const StateLayout& layout, const exact::Record& total) {
  const std::vector<double> scalars = total.scalars();
  std::vector<double> rates;
  for (size_t at = scalars.size() - 2 * layout.rate_groups(); at < scalars.size(); at += 2) {
    rates.push_back(std::bit_cast<double>((static_cast<uint64_t>(scalars[at]) << 32) |
                                          static_cast<uint64_t>(scalars[at + 1])));
  }
  return rates;
}

// What the evaluation of S(k) set, as blocks behind those of the record.
void AddWatched(const State& state, uint32_t first_index, exact::BlockSum* sum) {
  for (const Watched& each : state.watched) {
    const std::array<int64_t, 5> integers = {
        static_cast<int64_t>(each.looked), static_cast<int64_t>(each.best_step),
        static_cast<int64_t>(each.stale), std::bit_cast<int64_t>(each.best),
        std::bit_cast<int64_t>(each.reference)};
    sum->Add(exact::kRecordTensor, first_index++, integers);
  }
}

// What the state holds now was written: P is of state.written. `sum`: of the gradients.
void EndStep(const exact::Record& total, exact::BlockSum sum, TrainingJob* job) {
  job->step_work.End();
  AddRecord(total, &sum);
  State& state = *job->state;
  AddWatched(state, static_cast<uint32_t>(total.blocks().size()), &sum);
  state.link = {
      .before = state.digest, .maps = job::MapsDigest(job->spec(), state.step), .sums = sum};
  state.written.numbers = HashNumbers(state);
  state.digest = exact::NextDigest(state.link, state.step, state.written.total());
  ++state.step;
}

// Or too large to be summed: no later step would be worth anything.
template <typename... Args>
Status NotFinite(fmt::format_string<Args...> format, Args&&... args) {
  return WithFailure(v1::FAILURE_CODE_NOT_FINITE,
                     FailedPrecondition(format, std::forward<Args>(args)...));
}

// What a step does to parameters, slots and units: here, or where the device has them.
struct Trained {
  PassSums pass;
  exact::BlockSum exponents_read, exponents_written;
};

enum class Change : uint8_t { kUpdate, kNone };

StatusOr<Trained> TrainHere(TrainingJob* job, Change change, ReducedSums sums) {
  State& state = *job->state;
  if (sums.begun == nullptr) sums.begun = std::make_unique<WeightUpdate>(job, sums.source);
  Trained trained;
  trained.exponents_read = state.units.Hash();
  if (change == Change::kUpdate) {
    trained.pass = sums.begun->Apply();
  } else {
    trained.pass = sums.begun->Skip();
    state.units.Reset();
  }
  trained.exponents_written = state.units.Hash();
  return trained;
}

StatusOr<Trained> TrainOnDevice(TrainingJob* job, Change change, SumSource source) {
  DeviceCopy& device = *job->device;
  if (change == Change::kUpdate) HitFailpoint("apply", job->state->step);
  StatusOr<StepHashes> ended = change == Change::kUpdate
                                   ? device.Apply(source, job->state->updates + 1)
                                   : device.Skip(source);
  if (!ended.ok()) {  // nobody knows how far it came
    job->lost_state = ended.status();
    return job->lost_state;
  }
  StepHashes& hashes = *ended;
  Trained trained;
  trained.pass = {.totals = hashes.totals,
                  .read = std::move(hashes.read.trained),
                  .written = std::move(hashes.written.trained),
                  .not_finite = hashes.written.finite ? "" : "a parameter or a slot"};
  trained.exponents_read = hashes.read.exponents;
  trained.exponents_written = hashes.written.exponents;
  return trained;
}

// Compares what the step reads of S(k) with what was written before it changes anything that is
// not hashed on its way; then all that an update or none changes but statistics, numbers and units'
// hashes of the next state. The digest's sum over the gradients.
StatusOr<exact::BlockSum> Train(TrainingJob* job, Change change, ReducedSums sums) {
  State& state = *job->state;
  StateSums read = state.written;
  read.statistics = HashStatistics(state);
  read.numbers = HashNumbers(state);
  RING_ASSIGN_OR_RETURN(Trained trained, job->device != nullptr
                                             ? TrainOnDevice(job, change, sums.source)
                                             : TrainHere(job, change, std::move(sums)));
  read.trained = std::move(trained.pass.read);
  read.exponents = trained.exponents_read;
  // While pieces are on their way nothing is known of what is there.
  const bool whole = job->follower == nullptr;
  const std::string what = whole ? NameDifference(*state.layout, state.written, read) : "";
  if (!what.empty()) return LoseState(job, what);
  if (whole && !trained.pass.not_finite.empty()) {
    job->lost_state = NotFinite(
        "step {}: {} is not finite (NaN or infinity) after the update. A smaller learning rate, or "
        "a look at the data, may help",
        state.step, trained.pass.not_finite);
    return job->lost_state;
  }
  state.written.trained = std::move(trained.pass.written);
  state.written.exponents = trained.exponents_written;
  return trained.pass.totals;
}

}  // namespace

std::string DescribeFlag(const StateLayout& layout, const exact::Record& total) {
  const exact::Record::Flagged flagged = total.first_flag();
  const bool scalar = flagged.flag.tensor == exact::kRecordTensor;
  return fmt::format("{}{} of shard {} is {}", scalar ? "" : "the gradient of ",
                     layout.NameOf(flagged.flag.tensor), flagged.shard,
                     flagged.flag.kind == exact::FlagKind::kNotFinite
                         ? "not finite (NaN or infinity)"
                         : "too large to be summed exactly");
}

StatusOr<Verdict> Judge(const TrainingJob& job, const exact::Record& total) {
  if (total.first_flag().flag.kind == exact::FlagKind::kNone) return Verdict::kApply;
  const State& state = *job.state;
  const std::string what = DescribeFlag(*state.layout, total);
  if (!job.scaled()) {
    return NotFinite(
        "step {}: {}; nothing of this step was applied. A smaller learning rate, or a look at the "
        "data, may help",
        state.step, what);
  }
  if (state.loss_scale.value > 1) return Verdict::kSkip;
  return NotFinite(
      "step {}: {} although the loss scale is 1, which cannot be halved: the values themselves "
      "overflow. A smaller learning rate, policy mixed_bfloat16, or a look at the data, may help",
      state.step, what);
}

Status ApplyStep(TrainingJob* job, const exact::Record& total, ReducedSums sums) {
  MutexLock lock(job->state_mu);
  RING_RETURN_IF_ERROR(job->lost_state);
  State& state = *job->state;
  job->rates = RatesOf(*job->layout, total);
  RING_ASSIGN_OR_RETURN(const exact::BlockSum sum, Train(job, Change::kUpdate, std::move(sums)));
  if (job->scaled()) {
    state.loss_scale = AfterGoodStep(state.loss_scale, job->spec().growth_steps());
  }
  UpdateStatistics(total, &state);
  state.written.statistics = HashStatistics(state);
  UpdateMetrics(job->spec(), total, &state);
  ++state.updates;
  EndStep(total, sum, job);
  return absl::OkStatus();
}

Status SkipStep(TrainingJob* job, const exact::Record& total, ReducedSums sums) {
  MutexLock lock(job->state_mu);
  RING_RETURN_IF_ERROR(job->lost_state);
  State& state = *job->state;
  RING_ASSIGN_OR_RETURN(const exact::BlockSum sum, Train(job, Change::kNone, std::move(sums)));
  state.loss_scale = AfterSkippedStep(state.loss_scale);
  EndStep(total, sum, job);
  return absl::OkStatus();
}

namespace {

// Where the rows of a step's batch lie among its elements: of each output all samples, one output
// behind the other.
struct BatchRows {
  explicit BatchRows(const TrainingJob& job)
      : first(job.state->predicted.before(job.state->step)),
        samples(job.state->predicted.before(job.state->step + 1) - first),
        elements(samples * job.layout->row_elements()) {}
  uint64_t first;  // sample
  uint64_t samples;
  uint64_t elements;
};

}  // namespace

RowBits OwnRows(const TrainingJob& job) {
  const BatchRows batch(job);
  RowBits own;
  for (uint64_t at = 0; at < batch.elements; at += exact::kBlockElements) {
    const auto count =
        static_cast<uint32_t>(std::min<uint64_t>(exact::kBlockElements, batch.elements - at));
    own.blocks.push_back({exact::kRecordTensor, static_cast<uint32_t>(own.blocks.size()), count});
  }
  own.bits.resize(own.blocks.size() * exact::kBlockElements);
  for (const ShardResult& result : job.step_work.results()) {
    const job::Range places = job::ShardOf(result.shard, job.spec().shards(), batch.samples);
    uint64_t at = 0;
    for (size_t i = 0; i < job.layout->rows().size(); ++i) {
      const uint64_t elements = job.layout->rows()[i].elements;
      std::ranges::transform(
          result.output.rows[i],
          own.bits.begin() + static_cast<ptrdiff_t>(at + places.begin * elements),
          [](float x) { return int64_t{std::bit_cast<uint32_t>(x)}; });
      at += batch.samples * elements;
    }
  }
  return own;
}

void TakeRows(TrainingJob* job, const exact::Record& total, const RowBits& rows) {
  MutexLock lock(job->state_mu);
  const BatchRows batch(*job);
  State& state = *job->state;
  const int64_t* bits = rows.bits.data();
  for (size_t i = 0; i < state.rows.size(); ++i) {
    const uint64_t elements = job->layout->rows()[i].elements;
    const uint64_t count = batch.samples * elements;
    std::transform(bits, bits + count, state.rows[i].span().data() + batch.first * elements,
                   [](int64_t x) { return std::bit_cast<float>(static_cast<uint32_t>(x)); });
    bits += count;
  }
  exact::BlockSum sum;
  const auto behind = static_cast<uint32_t>(total.blocks().size());
  for (size_t b = 0; b < rows.blocks.size(); ++b) {
    sum.Add(exact::kRecordTensor, behind + rows.blocks[b].index,
            std::span(rows.bits).subspan(b * exact::kBlockElements, rows.blocks[b].count));
  }
  UpdateMetrics(job->spec(), total, &state);
  state.written.rows.Add(HashRows(state, state.step));
  EndStep(total, sum, job);
}

}  // namespace ringmaster::worker
