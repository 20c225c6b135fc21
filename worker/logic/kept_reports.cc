#include "worker/logic/kept_reports.h"

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

}  // namespace ringmaster::worker
