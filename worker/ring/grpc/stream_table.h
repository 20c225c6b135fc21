// Which incoming stream belongs to whom: accepts the predecessor of the current membership, keeps
// early streams for a while, refuses the rest with a reason. Thread-safe; owned by RingPort. It
// opens nothing and waits for nothing.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/ids.h"
#include "common/mutex.h"
#include "worker/ring/grpc/incoming_stream.h"
#include "worker/ring/grpc/link_state.h"
#include "worker/ring/grpc/ring_port.h"

namespace ringmaster::ring {

class StreamTable {
 public:
  explicit StreamTable(PortOptions options) : options_(options) {}

  // A new stream: accepted, refused, or kept waiting.
  void Add(const std::shared_ptr<IncomingStream>& stream);
  // The membership whose predecessor is accepted from now on; the waiting streams are judged
  // again. FAILED_PRECONDITION while the one before is not over.
  // `*lease` is what the membership lasts for.
  Status Begin(const LinkOptions& options, const std::shared_ptr<LinkState>& state,
               std::shared_ptr<const void>* lease);
  // The accepted stream of the current membership, or nullptr; after this none is accepted.
  std::shared_ptr<IncomingStream> EndAccepting();
  // Refuses streams that waited too long; when the next one will have.
  std::optional<TimePoint> Expire(TimePoint now);
  // Fails the current membership with `reason`; refuses what waits, and everything from now on.
  void Stop(const Status& reason);

 private:
  struct Membership {
    std::string job_id;
    GenerationId generation;
    std::string predecessor_name, predecessor_incarnation;
    std::weak_ptr<LinkState> state;
    std::weak_ptr<const void> lease;  // gone: the membership is over
    bool open = true;                 // no predecessor was accepted yet
    std::shared_ptr<IncomingStream> accepted;
  };
  struct Waiting {
    std::shared_ptr<IncomingStream> stream;
    TimePoint until;
  };
  enum class Verdict { kAccept, kWait, kRefuse };

  // For kRefuse `*refusal` says why.
  Verdict Judge(const v1::LinkHello& hello, grpc::Status* refusal) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // False when the stream is to wait.
  bool Settle(const std::shared_ptr<IncomingStream>& stream) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const PortOptions options_;
  Mutex mu_;
  std::optional<Membership> current_ ABSL_GUARDED_BY(mu_);
  std::vector<Waiting> waiting_ ABSL_GUARDED_BY(mu_);
  Status stopped_ ABSL_GUARDED_BY(mu_);
};

}  // namespace ringmaster::ring
