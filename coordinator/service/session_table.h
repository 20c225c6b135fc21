// The open session streams by id: how the control loop reaches a worker. Thread-safe. It knows
// neither names nor jobs.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>

#include "common/mutex.h"
#include "coordinator/logic/action.h"
#include "coordinator/logic/event.h"
#include "ringmaster/v1/fleet.pb.h"

namespace ringmaster::coordinator {

// One stream, as seen from outside gRPC. Thread-safe; neither call blocks.
class SessionStream {
 public:
  virtual ~SessionStream() = default;
  virtual void Send(const v1::CoordinatorMessage& message) = 0;
  // Sends what is queued, then ends the stream.
  virtual void End(const Refusal& refusal) = 0;
};

class SessionTable {
 public:
  // nullopt when no more streams are taken: too many, or the table is closed.
  [[nodiscard]] std::optional<SessionId> Add(std::shared_ptr<SessionStream> stream);
  void Remove(SessionId session);

  // Nothing happens when the stream is gone.
  void Send(SessionId session, const v1::CoordinatorMessage& message);
  void End(SessionId session, const Refusal& refusal);
  // Ends all, takes no more.
  void Close(const Refusal& refusal);

 private:
  std::shared_ptr<SessionStream> Find(SessionId session) const;

  mutable Mutex mu_;
  std::map<SessionId, std::shared_ptr<SessionStream>> streams_ ABSL_GUARDED_BY(mu_);
  uint64_t next_ ABSL_GUARDED_BY(mu_) = 1;
  bool closed_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace ringmaster::coordinator
