#include "worker/train/reducer.h"

#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "common/check.h"
#include "common/float_mode.h"
#include "common/mutex.h"

namespace ringmaster::worker {
namespace {

// Rounds about S(k) have a purpose of their own on the wire, and each of them a bucket.
uint32_t RecordBucket(Round round, size_t step_buckets) {
  switch (round) {
    case Round::kStep:
      return static_cast<uint32_t>(step_buckets);
    case Round::kValidation:
      return 0;
    case Round::kTest:
      return 1;
    case Round::kFarewell:
      break;
  }
  return 2;
}

}  // namespace

Reducer::Reducer(const ReducerOptions& options, const exact::BlockLayout* layout, GradientSum* sum,
                 Totals* totals, DeviceState* device, PulseBoard* pulse)
    : options_(options),
      layout_(layout),
      sum_(sum),
      totals_(totals),
      device_(device),
      pulse_(pulse),
      ring_(options.link, options.position, options.reduce),
      ready_(sum->buckets().size()),
      thread_([this] { Loop(); }) {
  pthread_setname_np(thread_.native_handle(), "ring");
}

Reducer::~Reducer() {
  Abort(absl::CancelledError("the run is over"));
  MutexLock lock(mu_);
  stopped_ = true;
  changed_.NotifyAll();
}

void Reducer::Begin(Round round, uint64_t step) {
  MutexLock lock(mu_);
  RING_CHECK(stage_ == Stage::kIdle, "a reduction begins before the one before it ended");
  round_ = round;
  step_ = step;
  std::fill(ready_.begin(), ready_.end(), false);
  own_record_.reset();
  failed_.store(!aborted_.ok(), std::memory_order_relaxed);
  ring_.waits().Reset();
  stage_ = Stage::kReducing;
  changed_.NotifyAll();
}

void Reducer::BucketReady(uint32_t bucket) {
  MutexLock lock(mu_);
  ready_[bucket] = true;
  changed_.NotifyAll();
}

void Reducer::SubmitRecord(exact::Record own, EndsAtBoundary ends, RowBits rows) {
  ring_.waits().CountFrom(std::chrono::steady_clock::now());
  MutexLock lock(mu_);
  own_record_ = std::move(own);
  own_ends_ = ends;
  own_rows_ = std::move(rows);
  changed_.NotifyAll();
}

StatusOr<exact::Record> Reducer::Wait() {
  MutexLock lock(mu_);
  RING_CHECK(stage_ != Stage::kIdle, "nothing is being reduced");
  WaitFor(changed_, mu_,
          [this]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return stage_ == Stage::kDone; });
  stage_ = Stage::kIdle;
  const bool counts = round_ != Round::kFarewell && aborted_.ok();
  if (!result_.ok() && counts) link_error_ = result_.status().code();
  return std::move(result_);
}

void Reducer::Abort(Status reason) {
  failed_.store(true, std::memory_order_relaxed);
  MutexLock lock(mu_);
  if (aborted_.ok()) aborted_ = std::move(reason);
  changed_.NotifyAll();
}

Status Reducer::Leave(Status reason) {
  Abort(reason);
  if (options_.link != nullptr) options_.link->Cancel(reason);
  return reason;
}

void Reducer::Loop() {
  const DefaultFloatMode float_mode;
  while (true) {
    {
      MutexLock lock(mu_);
      WaitFor(changed_, mu_, [this]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
        return stopped_ || stage_ == Stage::kReducing;
      });
      if (stopped_) return;
    }
    StatusOr<exact::Record> result = ReduceAll();
    if (!result.ok()) failed_.store(true, std::memory_order_relaxed);
    MutexLock lock(mu_);
    result_ = std::move(result);
    stage_ = Stage::kDone;
    changed_.NotifyAll();
  }
}

template <typename Ready>
Status Reducer::WaitForOwn(Ready ready) {
  MutexLock lock(mu_);
  WaitFor(changed_, mu_,
          [&]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return !aborted_.ok() || ready(); });
  return aborted_;
}

StatusOr<exact::Record> Reducer::ReduceAll() {
  const size_t buckets = sum_->buckets().size();
  for (uint32_t bucket = 0; round_ == Round::kStep && bucket < buckets; ++bucket) {
    RING_RETURN_IF_ERROR(
        WaitForOwn([&]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return ready_[bucket]; }));
    RING_RETURN_IF_ERROR(ReduceBucket(bucket));
  }
  RING_RETURN_IF_ERROR(
      WaitForOwn([&]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return own_record_.has_value(); }));
  return ReduceRecord(RecordBucket(round_, buckets));
}

ring::Context Reducer::ContextOf(uint32_t bucket) const {
  return {.job = options_.job,
          .generation = options_.generation,
          .step = step_,
          .purpose = round_ == Round::kStep ? ring::Purpose::kStep : ring::Purpose::kEvaluate,
          .bucket = bucket};
}

template <typename Work>
Status Reducer::OnDevice(Work work) {
  if (device_ == nullptr) return absl::OkStatus();
  const Status status = work();
  return status.ok() ? status : Leave(status);
}

Status Reducer::ReduceBucket(uint32_t index) {
  const exact::Bucket& bucket = sum_->buckets()[index];
  const auto blocks = layout_->blocks().subspan(bucket.first_block, bucket.block_count);
  const size_t first = bucket.first_block * exact::kBlockElements;
  const size_t count = bucket.block_count * exact::kBlockElements;
  if (totals_->floats.size() > 0) {
    RING_RETURN_IF_ERROR(ring_.Float32(ContextOf(index), blocks, sum_->floats(bucket),
                                       totals_->floats.span().subspan(first, count)));
  } else if (device_ == nullptr || options_.link != nullptr) {
    const std::span<int64_t> totals = totals_->integers.span().subspan(first, count);
    RING_RETURN_IF_ERROR(OnDevice([&] { return sum_->Fetch(bucket, device_); }));
    RING_RETURN_IF_ERROR(ring_.Exact(ContextOf(index), blocks, sum_->integers(bucket), totals));
    RING_RETURN_IF_ERROR(OnDevice([&] { return device_->WriteTotals(bucket, totals); }));
  }
  pulse_->Tick();
  return absl::OkStatus();
}

StatusOr<exact::Record> Reducer::ReduceRecord(uint32_t bucket) {
  std::optional<exact::Record> own;
  EndsAtBoundary ends;
  {
    MutexLock lock(mu_);
    own = std::exchange(own_record_, std::nullopt);
    ends = own_ends_;
    rows_ = std::exchange(own_rows_, {});
  }
  exact::Record total = *own;
  if (round_ == Round::kStep) {
    RING_RETURN_IF_ERROR(ReduceStepRecord(bucket, *own, ends, &total));
    if (!rows_.blocks.empty()) RING_RETURN_IF_ERROR(GatherRows(bucket + 1));
  } else {
    RING_RETURN_IF_ERROR(
        ring_.Exact(ContextOf(bucket), own->blocks(), own->integers(), total.integers()));
  }
  pulse_->Tick();
  return total;
}

// In one bucket, by the exact sum: at most 32 of each integer's bits are used, and are what is
// sent.
Status Reducer::GatherRows(uint32_t bucket) {
  std::vector<int64_t> totals(rows_.bits.size());
  RING_RETURN_IF_ERROR(ring_.Exact(ContextOf(bucket), rows_.blocks, rows_.bits, totals));
  rows_.bits = std::move(totals);
  return absl::OkStatus();
}

// One more block, of one integer: how many members ask for the boundary. It is no part of the
// record, and so of no digest.
Status Reducer::ReduceStepRecord(uint32_t bucket, const exact::Record& own, EndsAtBoundary ends,
                                 exact::Record* total) {
  std::vector<exact::Block> blocks = own.blocks();
  const size_t at = blocks.size() * exact::kBlockElements;
  blocks.push_back({exact::kRecordTensor, static_cast<uint32_t>(blocks.size()), 1});
  std::vector<int64_t> integers(own.integers().begin(), own.integers().end());
  integers.resize(at + exact::kBlockElements);
  integers[at] = ends == EndsAtBoundary::kAsked ? 1 : 0;
  std::vector<int64_t> totals(integers.size());
  RING_RETURN_IF_ERROR(ring_.Exact(ContextOf(bucket), blocks, integers, totals));
  std::copy_n(totals.begin(), at, total->integers().begin());
  ends_at_boundary_.store(totals[at] != 0, std::memory_order_relaxed);
  return absl::OkStatus();
}

}  // namespace ringmaster::worker
