// Tickets: 128-bit secrets that the coordinator hands out, and that whoever wants something shows.
// A worker's session has one, and so has every generation of a ring. They are bytes, never text,
// and stand in no log. And names of what is new, which anybody may read. Thread-safe.
#pragma once

#include <cstddef>
#include <string>

#include "common/mutex.h"

namespace ringmaster {

inline constexpr size_t kTicketBytes = 16;

// From the system's generator of random numbers. The process ends when that has none.
[[nodiscard]] std::string RandomTicket();

// 128 random bits, in hexadecimal: of a process, a folder, a socket. As above.
[[nodiscard]] std::string RandomName();

// In a time that does not depend on where they differ. False when one of them is no ticket.
[[nodiscard]] bool SameTicket(const std::string& a, const std::string& b);

// Another ticket for each text, the same for the same one: nobody without `secret` can tell it.
[[nodiscard]] std::string TicketFor(const std::string& secret, const std::string& text);

// The ticket that a process holds now; empty = none.
class HeldTicket {
 public:
  void Set(const std::string& ticket) {
    MutexLock lock(mu_);
    ticket_ = ticket;
  }
  [[nodiscard]] std::string Get() const {
    MutexLock lock(mu_);
    return ticket_;
  }

 private:
  mutable Mutex mu_;
  std::string ticket_ ABSL_GUARDED_BY(mu_);
};

}  // namespace ringmaster
