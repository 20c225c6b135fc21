// The open session streams by id: how the control loop reaches a worker; and the tickets of their
// workers: how other calls are known to be a worker's. Thread-safe. It knows no jobs.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/mutex.h"
#include "common/sha256.h"
#include "coordinator/access/access_store.h"
#include "coordinator/logic/action.h"
#include "coordinator/logic/event.h"
#include "ringmaster/v1/fleet.pb.h"

namespace ringmaster::coordinator {

// One stream, as seen from outside gRPC. Thread-safe; no call blocks.
class SessionStream {
 public:
  virtual ~SessionStream() = default;
  virtual void Send(const v1::CoordinatorMessage& message) = 0;
  // Sends what is queued, then ends the stream.
  virtual void End(const Refusal& refusal) = 0;
  // Breaks the stream off, whatever is on its way to the peer.
  virtual void Cancel(const std::string& reason) = 0;
  // Breaks the stream off when its peer has taken nothing of what it is being sent for too long:
  // such a stream cannot end by itself.
  virtual void CancelIfStuck(std::chrono::steady_clock::time_point now) = 0;
};

class SessionTable {
 public:
  // nullopt when no more streams are taken: too many, or the table is closed.
  [[nodiscard]] std::optional<SessionId> Add(std::shared_ptr<SessionStream> stream);
  void Remove(SessionId session);

  // Nothing happens when the stream is gone.
  void Send(SessionId session, const v1::CoordinatorMessage& message);
  // The session is this worker's: sends Attached with a new ticket, and the one that the worker had
  // before is worth nothing any more.
  void Admit(SessionId session, const std::string& worker, const v1::Attached& attached);
  void End(SessionId session, const Refusal& refusal);
  // Breaks off all that are stuck.
  void CancelStuck(std::chrono::steady_clock::time_point now);
  // Ends all, takes no more.
  void Close(const Refusal& refusal);

  // Whose ticket it is; nothing when it is nobody's, or who shows it has the certificate of
  // somebody else.
  struct Holder {
    SessionId session{};
    std::string worker;
    bool open = true;  // the session; else its worker has opened no other since, as far as is known
  };
  [[nodiscard]] std::optional<Holder> FindByTicket(const std::string& ticket,
                                                   const std::optional<IdentityName>& shows) const;

 private:
  // By its hash, so that a look-up takes a time that says nothing about a ticket.
  using TicketKey = Sha256Digest;
  struct Ticket {
    std::string ticket;
    Holder holder;
  };
  std::shared_ptr<SessionStream> Find(SessionId session) const;
  std::vector<std::shared_ptr<SessionStream>> All() const;
  void Forget(const TicketKey& key) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void EndTicket(SessionId session) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  mutable Mutex mu_;
  std::map<SessionId, std::shared_ptr<SessionStream>> streams_ ABSL_GUARDED_BY(mu_);
  std::map<TicketKey, Ticket> tickets_ ABSL_GUARDED_BY(mu_);
  std::map<SessionId, TicketKey> by_session_ ABSL_GUARDED_BY(mu_);   // of those that are open
  std::map<std::string, TicketKey> by_worker_ ABSL_GUARDED_BY(mu_);  // the newest of each
  std::deque<TicketKey> ended_ ABSL_GUARDED_BY(mu_);                 // oldest first
  uint64_t next_ ABSL_GUARDED_BY(mu_) = 1;
  bool closed_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace ringmaster::coordinator
