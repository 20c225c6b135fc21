// Which incoming stream belongs to whom: accepts the predecessor of the current membership, keeps
// early streams for a while, refuses the rest with a reason. One table for Links and one for
// Pulses. Thread-safe; owned by RingPort. It opens nothing and waits for nothing.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/ids.h"
#include "common/mutex.h"
#include "worker/ring/grpc/incoming_stream.h"
#include "worker/ring/grpc/message.h"
#include "worker/ring/grpc/pulse_streams.h"
#include "worker/ring/grpc/ring_port.h"

namespace ringmaster::ring {

// Stream: IncomingStream or IncomingPulse; Stream::State is what an accepted one reports to.
template <typename Stream>
class StreamTable {
 public:
  using State = typename Stream::State;

  explicit StreamTable(const PortOptions& options)
      : waiting_streams_(options.waiting_streams), waiting_limit_(options.waiting_limit) {}

  // A new stream: accepted, refused, or kept waiting; of one sender the two newest wait.
  void Add(const std::shared_ptr<Stream>& stream);
  // The predecessor of this place is accepted from now on; the waiting streams are judged again.
  // FAILED_PRECONDITION while the membership before is not over.
  // `*lease` is what the membership lasts for.
  Status Begin(const RingPlace& place, const std::shared_ptr<State>& state,
               std::shared_ptr<const void>* lease);
  // The accepted stream of the current membership, or nullptr; after this none is accepted.
  std::shared_ptr<Stream> EndAccepting();
  // Refuses streams that waited too long; when the next one will have.
  std::optional<TimePoint> Expire(TimePoint now);
  // Fails the current membership with `reason`; refuses what waits, and everything from now on.
  void Stop(const Status& reason);

 private:
  struct Current {
    RingPlace of;
    std::weak_ptr<State> state;
    std::weak_ptr<const void> lease;  // gone: the membership is over
    bool open = true;                 // no predecessor was accepted yet
    std::shared_ptr<Stream> accepted;
  };
  struct Waiting {
    std::shared_ptr<Stream> stream;
    TimePoint until;
  };
  // Streams whose fate was decided under the lock; what follows for gRPC may happen after it.
  struct Settled {
    std::vector<std::shared_ptr<Stream>> streams;
    ~Settled() {
      for (const std::shared_ptr<Stream>& stream : streams) stream->Run();
    }
  };
  enum class Verdict { kAccept, kWait, kRefuse };

  // For kRefuse `*refusal` says why.
  Verdict Judge(const v1::LinkHello& hello, grpc::Status* refusal) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // False when the stream is to wait. What was decided happens when the stream is Run, without the
  // lock.
  bool Settle(const std::shared_ptr<Stream>& stream) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  void Take(const std::shared_ptr<Stream>& stream, Settled* settled)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // When two wait of who sends this one.
  void EndOldestOf(const v1::LinkHello& hello, Settled* settled) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const size_t waiting_streams_;
  const std::chrono::milliseconds waiting_limit_;
  Mutex mu_;
  std::optional<Current> current_ ABSL_GUARDED_BY(mu_);
  std::vector<Waiting> waiting_ ABSL_GUARDED_BY(mu_);
  Status stopped_ ABSL_GUARDED_BY(mu_);
};

extern template class StreamTable<IncomingStream>;
extern template class StreamTable<IncomingPulse>;

}  // namespace ringmaster::ring
