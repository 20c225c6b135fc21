#include "worker/data/batch_plan.h"

#include <utility>

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

BatchPlan::BatchPlan(const ShardLoader* loader, std::vector<uint32_t> shards, uint64_t start_step)
    : loader_(loader), shards_(std::move(shards)) {
  if (shards_.empty()) return;
  if (start_step < loader_->spec().total_steps()) {
    next_ = BatchId::OfStep(loader_->spec(), start_step, shards_.front());
    return;
  }
  if (Predicts()) return;
  // The last state, be it the first one of a job that only evaluates.
  next_ = BatchId::Evaluation(start_step, job::SampleSet::kValidation, 0, shards_.front());
  PassEmptySets();
}

bool BatchPlan::Predicts() const { return loader_->spec().kind() == v1::JOB_KIND_PREDICT; }

void BatchPlan::Advance() {
  Step();
  PassTaken();
}

void BatchPlan::Take(const BatchId& id) {
  if (!next_ || id < *next_) return;
  taken_.insert(id);
  PassTaken();
}

void BatchPlan::SkipTo(const BatchId& id) {
  const BatchId first{id.step, id.set, id.batch, 0};
  std::erase_if(taken_, [&](const BatchId& taken) { return taken < first; });
  if (!next_ || !(*next_ < first)) return;
  next_ = first;
  next_->shard = shards_.front();
  shard_index_ = 0;
  PassTaken();
}

void BatchPlan::PassTaken() {
  while (next_ && taken_.erase(*next_) > 0) Step();
}

void BatchPlan::Step() {
  const v1::ResultSpec& spec = loader_->spec();
  BatchId& at = *next_;
  shard_index_ = (shard_index_ + 1) % shards_.size();
  at.shard = shards_[shard_index_];
  if (shard_index_ > 0) return;
  if (Predicts()) {
    at = BatchId::OfStep(spec, at.step + 1, at.shard);
    if (at.step >= spec.total_steps()) next_.reset();
    return;
  }
  if (at.set != job::SampleSet::kTrain && ++at.batch < loader_->evaluation_batches(at.set)) return;
  at.batch = 0;
  at.set = NextSet(at.set);
  if (at.set == job::SampleSet::kValidation) {
    ++at.step;
    const bool evaluates =
        job::EvaluatesAfter(at.step, spec.evaluation_steps(), spec.total_steps());
    if (!evaluates) at.set = job::SampleSet::kTrain;
  }
  PassEmptySets();
}

void BatchPlan::PassEmptySets() {
  BatchId& at = *next_;
  while (at.set != job::SampleSet::kTrain && loader_->evaluation_batches(at.set) == 0) {
    at.set = NextSet(at.set);
  }
  if (at.set == job::SampleSet::kTrain && at.step >= loader_->spec().total_steps()) next_.reset();
}

}  // namespace ringmaster::worker
