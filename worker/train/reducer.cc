#include "worker/train/reducer.h"

#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "common/check.h"
#include "common/mutex.h"
#include "common/numeric/float_mode.h"

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
  news_ = {};
  reduced_.clear();
  failed_.store(!aborted_.ok(), std::memory_order_relaxed);
  ring_.waits().Reset();
  stage_ = Stage::kReducing;
  changed_.NotifyAll();
}

void Reducer::BucketReady(uint32_t bucket) {
  {
    MutexLock lock(mu_);
    news_.buckets.push_back(bucket);
    changed_.NotifyAll();
  }
  ring_.Nudge();
}

void Reducer::SubmitRecord(exact::Record own, EndsAtBoundary ends, RowBits rows) {
  ring_.waits().CountFrom(std::chrono::steady_clock::now());
  {
    MutexLock lock(mu_);
    news_.own = {std::move(own), ends, std::move(rows)};
    changed_.NotifyAll();
  }
  ring_.Nudge();
}

std::vector<uint32_t> Reducer::WaitForBuckets() {
  MutexLock lock(mu_);
  buckets_wanted_ = true;
  WaitFor(changed_, mu_, [this]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    return stage_ == Stage::kDone || !reduced_.empty();
  });
  buckets_wanted_ = false;
  if (stage_ == Stage::kDone) return {};
  return std::exchange(reduced_, {});
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
  {
    MutexLock lock(mu_);
    if (aborted_.ok()) aborted_ = std::move(reason);
    changed_.NotifyAll();
  }
  ring_.Nudge();
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

StatusOr<Reducer::News> Reducer::TakeNews(bool wait) {
  MutexLock lock(mu_);
  if (wait) {
    WaitFor(changed_, mu_, [this]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
      return !aborted_.ok() || !news_.buckets.empty() || news_.own.has_value();
    });
  }
  if (!aborted_.ok()) return aborted_;
  return std::exchange(news_, {});
}

StatusOr<exact::Record> Reducer::ReduceAll() {
  ring_.Begin(ContextOf());
  unfinished_ = gradient_buckets() + 1;
  record_.reset();
  bool ends = !options_.ends_together || round_ != Round::kStep || options_.link == nullptr;
  while (true) {
    for (const uint32_t index : ring_.TakeFinished()) RING_RETURN_IF_ERROR(Finished(index));
    if (unfinished_ == 0 && ends) return Unpack();
    if (unfinished_ == 0) {
      ends = true;
      RING_RETURN_IF_ERROR(AddEnd());
    }
    RING_ASSIGN_OR_RETURN(News news, TakeNews(ring_.idle()));
    if (news.own) ring_.SetUrgent(true);  // it comes last
    RING_RETURN_IF_ERROR(Add(std::move(news)));
    RING_RETURN_IF_ERROR(ring_.Work(ring::AllReduce::Until::kNews));
  }
}

Status Reducer::Add(News news) {
  for (const uint32_t index : news.buckets) RING_RETURN_IF_ERROR(AddBucket(index));
  return news.own ? AddOwn(*std::move(news.own)) : absl::OkStatus();
}

ring::Context Reducer::ContextOf() const {
  return {.job = options_.job,
          .generation = options_.generation,
          .step = step_,
          .purpose = round_ == Round::kStep ? ring::Purpose::kStep : ring::Purpose::kEvaluate};
}

template <typename Work>
Status Reducer::OnDevice(Work work) {
  if (device_ == nullptr) return absl::OkStatus();
  const Status status = work();
  return status.ok() ? status : Leave(status);
}

Status Reducer::AddBucket(uint32_t index) {
  const exact::Bucket& bucket = sum_->buckets()[index];
  const auto blocks = layout_->blocks().subspan(bucket.first_block, bucket.block_count);
  const size_t first = bucket.first_block * exact::kBlockElements;
  const size_t count = bucket.block_count * exact::kBlockElements;
  if (options_.link == nullptr) {  // nobody adds anything: the update reads this worker's own sums
    --unfinished_;
    pulse_->Tick();
    return absl::OkStatus();
  }
  if (totals_->floats.size() > 0) {
    return ring_.AddFloat32(index, blocks, sum_->floats(bucket),
                            totals_->floats.span().subspan(first, count));
  }
  if (device_ != nullptr) {
    const std::span<int64_t> integers = totals_->of_device.span().subspan(first, count);
    RING_RETURN_IF_ERROR(OnDevice([&] { return device_->ReadSums(bucket, integers); }));
    return ring_.AddExact(index, blocks, std::span<const int64_t>(integers), integers);
  }
  return ring_.AddExact(index, blocks, {&sum_->integers(), bucket.first_block},
                        {&totals_->integers, bucket.first_block});
}

// The step's record has one more block behind it, of one integer: how many members ask for the
// boundary. It is no part of the record, and so of no digest. Rows go as a bucket of their own: at
// most 32 of each integer's bits are used, and are what is sent.
Status Reducer::AddOwn(Own own) {
  const bool asked = own.ends == EndsAtBoundary::kAsked;
  if (options_.link == nullptr) {
    --unfinished_;
    pulse_->Tick();
    record_ = std::move(own.record);
    rows_ = std::move(own.rows);
    if (round_ == Round::kStep) ends_at_boundary_.store(asked, std::memory_order_relaxed);
    return absl::OkStatus();
  }
  const uint32_t index = RecordBucket(round_, gradient_buckets());
  Numbers& numbers = record_numbers_;
  numbers.blocks = own.record.blocks();
  numbers.own.assign(own.record.integers().begin(), own.record.integers().end());
  if (round_ == Round::kStep) {
    const auto number = static_cast<uint32_t>(numbers.blocks.size());
    numbers.blocks.push_back({exact::kRecordTensor, number, 1});
    numbers.own.resize(numbers.own.size() + exact::kBlockElements);
    numbers.own[number * exact::kBlockElements] = asked ? 1 : 0;
  }
  record_ = std::move(own.record);
  RING_RETURN_IF_ERROR(AddNumbers(index, &numbers));

  row_numbers_.blocks = std::move(own.rows.blocks);
  row_numbers_.own = std::move(own.rows.bits);
  if (row_numbers_.blocks.empty()) return absl::OkStatus();
  ++unfinished_;
  return AddNumbers(index + 1, &row_numbers_);
}

Status Reducer::AddNumbers(uint32_t index, Numbers* numbers) {
  numbers->totals.assign(numbers->own.size(), 0);
  return ring_.AddExact(index, numbers->blocks, std::span<const int64_t>(numbers->own),
                        std::span<int64_t>(numbers->totals));
}

// Behind the buckets of gradients, the record and rows. A member adds it when it has all of these,
// so who gets its total knows that of every other.
Status Reducer::AddEnd() {
  ++unfinished_;
  end_numbers_.blocks = {{exact::kRecordTensor, 0, 1}};
  end_numbers_.own.assign(exact::kBlockElements, 0);
  return AddNumbers(RecordBucket(round_, gradient_buckets()) + 2, &end_numbers_);
}

Status Reducer::Finished(uint32_t index) {
  --unfinished_;
  pulse_->Tick();
  if (index >= gradient_buckets()) return absl::OkStatus();
  if (device_ == nullptr) {
    MutexLock lock(mu_);
    reduced_.push_back(index);
    if (buckets_wanted_) changed_.NotifyAll();
    return absl::OkStatus();
  }
  const exact::Bucket& bucket = sum_->buckets()[index];
  return OnDevice([&] {
    return device_->WriteTotals(
        bucket, totals_->of_device.span().subspan(bucket.first_block * exact::kBlockElements,
                                                  bucket.block_count * exact::kBlockElements));
  });
}

exact::Record Reducer::Unpack() {
  exact::Record total = *std::exchange(record_, std::nullopt);
  if (options_.link == nullptr) return total;
  const size_t record = total.integers().size();
  std::copy_n(record_numbers_.totals.begin(), record, total.integers().begin());
  if (round_ == Round::kStep) {
    ends_at_boundary_.store(record_numbers_.totals[record] != 0, std::memory_order_relaxed);
  }
  rows_ = {std::exchange(row_numbers_.blocks, {}), std::exchange(row_numbers_.totals, {})};
  return total;
}

}  // namespace ringmaster::worker
