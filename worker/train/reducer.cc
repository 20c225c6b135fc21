#include "worker/train/reducer.h"

#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "common/check.h"
#include "worker/train/float_mode.h"

namespace ringmaster::worker {
namespace {

// How long a wait lasts before it looks again; nothing depends on it. What is waited for is either
// this worker's own computation or bounded by the ring's progress limit.
constexpr std::chrono::minutes kWaitSlice{1};

std::chrono::steady_clock::time_point NextLook() {
  return std::chrono::steady_clock::now() + kWaitSlice;
}

}  // namespace

RecordBlocks::RecordBlocks(size_t integers) {
  for (size_t first = 0; first < integers; first += exact::kBlockElements) {
    const size_t count = std::min<size_t>(exact::kBlockElements, integers - first);
    blocks_.push_back({.tensor = exact::kRecordTensor,
                       .index = static_cast<uint32_t>(blocks_.size()),
                       .count = static_cast<uint32_t>(count)});
  }
}

Reducer::Reducer(const ReducerOptions& options, const exact::BlockLayout* layout,
                 const GradientSum* sum, Totals* totals, size_t record_size)
    : options_(options),
      layout_(layout),
      sum_(sum),
      totals_(totals),
      record_blocks_(record_size),
      ring_(options.link, options.position, options.reduce),
      record_own_(record_blocks_.padded_size()),
      record_total_(record_blocks_.padded_size()),
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

void Reducer::Begin(ring::Purpose purpose, uint64_t step) {
  MutexLock lock(mu_);
  RING_CHECK(stage_ == Stage::kIdle, "a reduction begins before the one before it ended");
  purpose_ = purpose;
  step_ = step;
  std::fill(ready_.begin(), ready_.end(), false);
  record_ready_ = false;
  failed_.store(!aborted_.ok(), std::memory_order_relaxed);
  stage_ = Stage::kReducing;
  changed_.NotifyAll();
}

void Reducer::BucketReady(uint32_t bucket) {
  MutexLock lock(mu_);
  ready_[bucket] = true;
  changed_.NotifyAll();
}

void Reducer::SubmitRecord(const exact::Record& own) {
  std::ranges::fill(record_own_.span(), 0);
  std::ranges::copy(own.integers(), record_own_.span().begin());
  MutexLock lock(mu_);
  record_ready_ = true;
  changed_.NotifyAll();
}

Status Reducer::Wait(exact::Record* total) {
  MutexLock lock(mu_);
  RING_CHECK(stage_ != Stage::kIdle, "nothing is being reduced");
  while (!changed_.WaitUntil(mu_, NextLook(), [this]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    return stage_ == Stage::kDone;
  })) {
  }
  stage_ = Stage::kIdle;
  RING_RETURN_IF_ERROR(result_);
  std::ranges::copy(record_total_.span().first(total->integers().size()),
                    total->integers().begin());
  return absl::OkStatus();
}

void Reducer::Abort(Status reason) {
  failed_.store(true, std::memory_order_relaxed);
  MutexLock lock(mu_);
  if (aborted_.ok()) aborted_ = std::move(reason);
  changed_.NotifyAll();
}

bool Reducer::aborted() {
  MutexLock lock(mu_);
  return !aborted_.ok();
}

void Reducer::Loop() {
  const DefaultFloatMode float_mode;
  while (true) {
    {
      MutexLock lock(mu_);
      changed_.WaitUntil(mu_, NextLook(), [this]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
        return stopped_ || stage_ == Stage::kReducing;
      });
      if (stopped_) return;
      if (stage_ != Stage::kReducing) continue;
    }
    Status result = ReduceAll();
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
  while (!changed_.WaitUntil(mu_, NextLook(), [&]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    return !aborted_.ok() || ready();
  })) {
  }
  return aborted_;
}

Status Reducer::ReduceAll() {
  uint32_t bucket = 0;
  if (purpose_ == ring::Purpose::kStep) {
    for (; bucket < sum_->buckets().size(); ++bucket) {
      RING_RETURN_IF_ERROR(
          WaitForOwn([&]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return ready_[bucket]; }));
      RING_RETURN_IF_ERROR(ReduceBucket(bucket));
    }
  }
  RING_RETURN_IF_ERROR(WaitForOwn([&]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return record_ready_; }));
  return ReduceRecord(bucket);
}

ring::Context Reducer::ContextOf(uint32_t bucket) const {
  return {.job = options_.job,
          .generation = options_.generation,
          .step = step_,
          .purpose = purpose_,
          .bucket = bucket};
}

Status Reducer::ReduceBucket(uint32_t index) {
  const exact::Bucket& bucket = sum_->buckets()[index];
  const auto blocks = layout_->blocks().subspan(bucket.first_block, bucket.block_count);
  const size_t first = bucket.first_block * exact::kBlockElements;
  const size_t count = bucket.block_count * exact::kBlockElements;
  if (totals_->floats.size() > 0) {
    RING_RETURN_IF_ERROR(ring_.Float32(ContextOf(index), blocks, sum_->floats(bucket),
                                       totals_->floats.span().subspan(first, count)));
  } else {
    RING_RETURN_IF_ERROR(ring_.Exact(ContextOf(index), blocks, sum_->integers(bucket),
                                     totals_->integers.span().subspan(first, count)));
  }
  reductions_.fetch_add(1, std::memory_order_relaxed);
  return absl::OkStatus();
}

Status Reducer::ReduceRecord(uint32_t bucket) {
  RING_RETURN_IF_ERROR(ring_.Exact(ContextOf(bucket), record_blocks_.blocks(), record_own_.span(),
                                   record_total_.span()));
  reductions_.fetch_add(1, std::memory_order_relaxed);
  return absl::OkStatus();
}

}  // namespace ringmaster::worker
