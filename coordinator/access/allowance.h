// How often something may happen for each key, a name or an address, within a time. Bounded: of
// many keys at once it forgets the one that was seen longest ago. Pure; thread-compatible.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <string>

#include "coordinator/access/access_store.h"

namespace ringmaster::coordinator {

class Allowance {
 public:
  Allowance(size_t most, std::chrono::milliseconds within, size_t most_keys = 4'096)
      : most_(most), within_(within), most_keys_(most_keys) {}

  // One more happened; false when that is more than is allowed.
  bool Take(const std::string& key, UnixTime now);
  // Whether the next Take will be refused.
  [[nodiscard]] bool IsSpent(const std::string& key, UnixTime now);
  // How many were refused since it was asked.
  [[nodiscard]] uint64_t TakeRefused(const std::string& key);

 private:
  struct Taken {
    std::deque<UnixTime> times;  // at most most_, ascending
    uint64_t refused = 0;
    UnixTime seen;
  };
  void Forget(Taken* taken, UnixTime now) const;
  void MakeRoom();

  const size_t most_;
  const std::chrono::milliseconds within_;
  const size_t most_keys_;
  std::map<std::string, Taken> taken_;
};

// Of the same one, and the same thing, one refusal a minute is told, of all sixty a minute.
class RefusalLimit {
 public:
  RefusalLimit() : each_(1, std::chrono::minutes(1)), all_(60, std::chrono::minutes(1)) {}

  // Whether it is told; then its result says how many were not, since the one before: `, 7 more`.
  // Subjects are a stranger's words: many of them are still one thing.
  [[nodiscard]] bool Admit(v1::AuditEntry* refused, UnixTime now);

 private:
  Allowance each_, all_;
};

}  // namespace ringmaster::coordinator
