#include "coordinator/access/allowance.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace ringmaster::coordinator {

bool Allowance::Take(const std::string& key, UnixTime now) {
  if (!taken_.contains(key)) MakeRoom();
  Taken& taken = taken_[key];
  taken.seen = now;
  Forget(&taken, now);
  if (taken.times.size() >= most_) {
    ++taken.refused;
    return false;
  }
  taken.times.push_back(now);
  return true;
}

bool Allowance::IsSpent(const std::string& key, UnixTime now) {
  const auto found = taken_.find(key);
  if (found == taken_.end()) return false;
  Forget(&found->second, now);
  return found->second.times.size() >= most_;
}

uint64_t Allowance::TakeRefused(const std::string& key) {
  const auto found = taken_.find(key);
  return found == taken_.end() ? 0 : std::exchange(found->second.refused, 0);
}

// A clock that was set back leaves times in the future: they are over, too.
void Allowance::Forget(Taken* taken, UnixTime now) const {
  std::erase_if(taken->times, [&](UnixTime time) { return time > now || now - time >= within_; });
}

void Allowance::MakeRoom() {
  if (taken_.size() < most_keys_) return;
  taken_.erase(std::min_element(taken_.begin(), taken_.end(), [](const auto& a, const auto& b) {
    return a.second.seen < b.second.seen;
  }));
}

bool RefusalLimit::Admit(v1::AuditEntry* refused, UnixTime now) {
  const std::string key =
      fmt::format("{} {} {}", refused->who(), refused->what(), refused->result());
  if (!each_.Take(key, now) || !all_.Take("", now)) return false;
  const uint64_t more = each_.TakeRefused(key) + all_.TakeRefused("");
  if (more > 0) refused->set_result(fmt::format("{}, {} more", refused->result(), more));
  return true;
}

}  // namespace ringmaster::coordinator
