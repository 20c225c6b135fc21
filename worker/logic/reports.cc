#include "worker/logic/reports.h"

#include <algorithm>
#include <utility>

namespace ringmaster::worker {

void KeptReports::Keep(const v1::WorkerMessage& message) {
  switch (message.kind_case()) {
    case v1::WorkerMessage::kJoined:
      joined_ = message;
      break;
    case v1::WorkerMessage::kSuspicion:
      suspicions_.push_back(message);
      break;
    case v1::WorkerMessage::kStateSaved:
      saved_ = message;
      break;
    case v1::WorkerMessage::kJobFailed:
    case v1::WorkerMessage::kJobFinished:
    case v1::WorkerMessage::kJobStopped:
      end_ = message;
      break;
    default:
      break;
  }
}

std::vector<v1::WorkerMessage> KeptReports::All() const {
  std::vector<v1::WorkerMessage> all;
  if (joined_) all.push_back(*joined_);
  all.insert(all.end(), suspicions_.begin(), suspicions_.end());
  if (saved_) all.push_back(*saved_);
  if (end_) all.push_back(*end_);
  return all;
}

void StepDigests::Add(uint64_t step, const std::string& digest) {
  if (step <= last_) return;
  last_ = step;
  if (step % stride_ != 0) return;
  v1::StepDigest& added = *kept_.Add();
  added.set_step(step);
  added.set_digest(digest);
  while (kept_.size() > kMost) {
    stride_ *= 2;
    const auto odd = std::remove_if(kept_.begin(), kept_.end(), [this](const v1::StepDigest& kept) {
      return kept.step() % stride_ != 0;
    });
    kept_.erase(odd, kept_.end());
  }
}

StepDigests::List StepDigests::Take() {
  stride_ = 1;
  return std::exchange(kept_, {});
}

void LastingMetrics::Add(const List& metrics) {
  for (int i = 0; i < metrics.size();) {
    Of of{metrics[i].split(), metrics[i].step(), {}};
    for (; i < metrics.size() && metrics[i].split() == of.split && metrics[i].step() == of.step;
         ++i) {
      *of.metrics.Add() = metrics[i];
    }
    const auto newest = newest_.find(of.split);
    if (newest != newest_.end() && of.step <= newest->second) continue;
    newest_[of.split] = of.step;
    kept_.push_back(std::move(of));
  }
  for (; kept_.size() > kMost; kept_.pop_front()) told_ -= told_ > 0 ? 1 : 0;
}

void LastingMetrics::GoBack(uint64_t step) {
  size_t told = 0;
  for (size_t i = 0; i < told_; ++i) told += kept_[i].step <= step ? 1 : 0;
  told_ = told;
  std::erase_if(kept_, [step](const Of& of) { return of.step > step; });
  newest_.clear();
  for (const Of& of : kept_) newest_[of.split] = of.step;
}

LastingMetrics::List LastingMetrics::Take() {
  List taken;
  while (told_ < kept_.size()) {
    List next;
    size_t end = told_;
    for (; end < kept_.size() && kept_[end].step == kept_[told_].step; ++end) {
      next.MergeFrom(kept_[end].metrics);
    }
    if (!taken.empty() && taken.size() + next.size() > kMostInReport) break;
    taken.MergeFrom(next);
    told_ = end;
  }
  return taken;
}

}  // namespace ringmaster::worker
