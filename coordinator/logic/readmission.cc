#include "coordinator/logic/readmission.h"

#include <algorithm>

namespace ringmaster::coordinator {

std::chrono::milliseconds Readmission::Bar(const std::string& worker,
                                           const std::string& incarnation, Now now) {
  Record& record = records_[worker];
  if (record.incarnation != incarnation) record = {incarnation, {}, {}, false};
  record.lasts = record.lasts.count() == 0 ? kFirst : std::min(2 * record.lasts, kMost);
  record.until = now.steady + record.lasts;
  record.told = false;
  return record.lasts;
}

void Readmission::Lift(const std::string& worker, Now now) {
  const auto record = records_.find(worker);
  if (record != records_.end()) record->second.until = std::min(record->second.until, now.steady);
}

bool Readmission::Barred(const std::string& worker, const std::string& incarnation, Now now) const {
  const auto record = records_.find(worker);
  return record != records_.end() && record->second.incarnation == incarnation &&
         now.steady < record->second.until;
}

bool Readmission::TakeEnded(Now now) {
  bool ended = false;
  for (auto& [worker, record] : records_) {
    if (record.told || now.steady < record.until) continue;
    ended = record.told = true;
  }
  return ended;
}

void Readmission::Excuse(std::chrono::milliseconds late) {
  for (auto& [worker, record] : records_) record.until += late;
}

}  // namespace ringmaster::coordinator
