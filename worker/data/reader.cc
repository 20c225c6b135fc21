#include "worker/data/reader.h"

#include <pthread.h>

#include <algorithm>
#include <utility>

#include "common/float_mode.h"
#include "common/job/shards.h"

namespace ringmaster::worker {
namespace {

// A step, then at its end the validation set, the test set, and the next step.
job::SampleSet NextSet(job::SampleSet set) {
  switch (set) {
    case job::SampleSet::kTrain:
      return job::SampleSet::kValidation;
    case job::SampleSet::kValidation:
      return job::SampleSet::kTest;
    case job::SampleSet::kTest:
      break;
  }
  return job::SampleSet::kTrain;
}

}  // namespace

Reader::Reader(std::shared_ptr<const ShardLoader> loader, ReaderOptions options)
    : loader_(std::move(loader)),
      options_(std::move(options)),
      ahead_(options_.ahead > 0 ? options_.ahead : 2 * options_.shards.size()) {
  if (!options_.shards.empty() && options_.start_step < loader_->spec().total_steps()) {
    cursor_ = BatchId::Training(options_.start_step, options_.shards.front());
  }
  thread_ = std::jthread([this](const std::stop_token& stop) { Run(stop); });
}

Reader::~Reader() { Stop(); }

void Reader::Stop() {
  thread_.request_stop();
  MutexLock lock(mu_);
  stopped_ = true;
  changed_.NotifyAll();
}

StatusOr<std::shared_ptr<const ShardBatch>> Reader::Get(
    const BatchId& id, std::chrono::steady_clock::time_point deadline) {
  {
    MutexLock lock(mu_);
    const bool settled = changed_.WaitUntil(
        mu_, deadline, [&]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return stopped_ || loading_ != id; });
    if (stopped_) return Status(absl::StatusCode::kCancelled, "the reader was stopped");
    if (!settled) {
      return Error(absl::StatusCode::kDeadlineExceeded,
                   "shard {} of step {} was still being read at its deadline", id.shard, id.step);
    }
    SkipTo(id);
    slot_free_ = true;  // whoever asks is done with an earlier batch
    changed_.NotifyAll();
    if (const auto found = ready_.find(id); found != ready_.end()) {
      auto taken = ready_.extract(found);
      return std::move(taken.mapped());
    }
    if (cursor_ && !(id < *cursor_)) taken_.insert(id);
  }
  return loader_->Load(id);
}

size_t Reader::held() const {
  MutexLock lock(mu_);
  return ready_.size();
}

void Reader::SkipTo(const BatchId& id) {
  const BatchId first{id.step, id.set, id.batch, 0};
  std::erase_if(ready_, [&](const auto& entry) { return entry.first < first; });
  std::erase_if(taken_, [&](const BatchId& taken) { return taken < first; });
  if (!cursor_ || !(*cursor_ < first)) return;
  cursor_ = first;
  cursor_->shard = options_.shards.front();
  shard_index_ = 0;
}

void Reader::Run(const std::stop_token& stop) {
  pthread_setname_np(pthread_self(), "reader");
  const DefaultFloatMode float_mode;
  while (!stop.stop_requested()) {
    bool brings = false;
    {
      MutexLock lock(mu_);
      const auto deadline = std::chrono::steady_clock::now() + std::chrono::hours(1);
      changed_.WaitUntil(mu_, deadline, [&]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
        return stopped_ || may_load() || ToBring() != nullptr;
      });
      if (stopped_) return;
      brings = ToBring() != nullptr;
    }
    if (brings) {
      BringNext();
    } else {
      LoadNext();
    }
  }
}

void Reader::LoadNext() {
  std::optional<BatchId> id;
  {
    MutexLock lock(mu_);
    if (!may_load()) return;
    id = Next();
    loading_ = id;
  }
  if (!id) return;
  Result result = loader_->Load(*id);
  MutexLock lock(mu_);
  loading_.reset();
  ready_.emplace(*id, std::move(result));
  changed_.NotifyAll();
}

std::shared_ptr<ShardBatch> Reader::ToBring() const {
  if (options_.stage == nullptr || !slot_free_) return nullptr;
  for (const auto& [id, result] : ready_) {
    if (!result.ok() || (*result)->pixels.span().empty()) continue;
    if ((*result)->staged == nullptr) return *result;
  }
  return nullptr;
}

// Nobody else has the batch meanwhile: who asks for it waits.
void Reader::BringNext() {
  std::shared_ptr<ShardBatch> batch;
  {
    MutexLock lock(mu_);
    batch = ToBring();
    if (batch == nullptr) return;
    loading_ = batch->id;
    slot_free_ = false;
  }
  auto staged = options_.stage->Bring(batch->pixels.span());
  MutexLock lock(mu_);
  loading_.reset();
  changed_.NotifyAll();
  if (staged.ok() && *staged == nullptr) return;
  slot_free_ = true;
  const auto found = ready_.find(batch->id);
  if (found == ready_.end()) return;  // it was passed over
  if (staged.ok()) {
    batch->staged = *std::move(staged);
  } else {
    found->second = Annotate(staged.status(), "input copied ahead");
  }
}

std::optional<BatchId> Reader::Next() {
  while (cursor_) {
    const BatchId id = *cursor_;
    Advance();
    if (taken_.erase(id) == 0) return id;
  }
  return std::nullopt;
}

void Reader::Advance() {
  const v1::ResultSpec& spec = loader_->spec();
  BatchId& at = *cursor_;
  shard_index_ = (shard_index_ + 1) % options_.shards.size();
  at.shard = options_.shards[shard_index_];
  if (shard_index_ > 0) return;
  if (at.set != job::SampleSet::kTrain && ++at.batch < loader_->evaluation_batches(at.set)) return;
  at.batch = 0;
  at.set = NextSet(at.set);
  if (at.set == job::SampleSet::kValidation) {
    ++at.step;
    const bool evaluates =
        job::EvaluatesAfter(at.step, spec.evaluation_steps(), spec.total_steps());
    if (!evaluates) at.set = job::SampleSet::kTrain;
  }
  while (at.set != job::SampleSet::kTrain && loader_->evaluation_batches(at.set) == 0) {
    at.set = NextSet(at.set);
  }
  if (at.set == job::SampleSet::kTrain && at.step >= spec.total_steps()) cursor_.reset();
}

}  // namespace ringmaster::worker
