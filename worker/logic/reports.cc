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

}  // namespace ringmaster::worker
