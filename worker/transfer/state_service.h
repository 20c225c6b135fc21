// Offers the state S(k) of this worker's job to others, on the ring's port: one States service for
// the life of the daemon, which outlives the server that it is registered with. Its thread,
// "states", opens the job's state and reads it piece by piece; gRPC's threads only pass on what is
// ready. No copy of the whole is made: a stream ends when the state goes on, which it does not
// before those who fetch it are in the ring, or left out of it; but for who follows, whose stream
// goes on with the state. Thread-safe, but for Start and
// Stop, which its one owner calls. Only who shows the ticket of the newest generation that began
// here gets a state: those whom its Start names.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>

#include "common/ids.h"
#include "common/loop.h"
#include "common/mutex.h"
#include "common/status.h"
#include "ringmaster/v1/states.grpc.pb.h"
#include "worker/state/state_row.h"

namespace ringmaster::worker {

// The words by which a fetcher knows why it was refused (google.rpc.ErrorInfo.reason).
inline constexpr char kReasonNoStateYet[] = "STATE_NOT_THERE_YET";    // ask again
inline constexpr char kReasonCrowded[] = "STATE_TOO_MANY_STREAMS";    // ask again
inline constexpr char kReasonStateGone[] = "STATE_GONE";              // past it, or another job
inline constexpr char kReasonStateProtocol[] = "STATE_PROTOCOL";      // another protocol version
inline constexpr char kReasonStateStopping[] = "STATE_SOURCE_STOPS";  // the worker ends
inline constexpr char kReasonStateTicket[] = "TICKET_NOT_VALID";      // not of that generation

class StateStream;

class StateService : public v1::States::WithRawCallbackMethod_Fetch<v1::States::Service> {
 public:
  struct Options {
    size_t max_streams = 16;  // RESOURCE_EXHAUSTED beyond
    // A fetcher that takes no piece for so long is given up. Looked at once a second.
    std::chrono::milliseconds write_limit{10'000};
  };
  // As Trainer::Open: UNAVAILABLE: not there yet; FAILED_PRECONDITION: past it, or who follows is
  // to fetch it whole. May take long. Asked for every stream.
  using OpenState =
      std::function<StatusOr<std::unique_ptr<StateSource>>(uint64_t step, Follows follows)>;

  StateService() : StateService(Options()) {}
  explicit StateService(Options options);
  ~StateService() override;

  // Before it everything is refused with UNAVAILABLE.
  void Start();
  // Refuses new streams and ends those that exist, then the thread. Before Server::Shutdown, which
  // would wait for them. Idempotent.
  void Stop();

  // From now on `open` answers for this job, and what it opens is read, on the thread "states".
  // What was offered before is withdrawn first.
  void Offer(const JobId& job, OpenState open);
  // A generation of that job begins: from now on who shows its ticket is admitted, and nobody else.
  void Admit(const JobId& job, const GenerationId& generation, const std::string& ticket);
  // Forgets the function and the generation, and returns when no call into the function, or into
  // what it opened, is under way: what they refer to may go then. Streams of it end. Never called
  // by the function itself. Idempotent.
  void Withdraw();

  grpc::ServerWriteReactor<grpc::ByteBuffer>* Fetch(grpc::CallbackServerContext* context,
                                                    const grpc::ByteBuffer* request) override;

 private:
  friend class StateStream;
  struct Offered {
    JobId job;
    OpenState open;
    uint64_t number;  // of all Offers
  };
  struct Opened {
    std::unique_ptr<StateSource> state;
    uint64_t offer;  // Offered::number
  };

  // Whether the request may become a stream.
  [[nodiscard]] grpc::Status Check(const v1::FetchRequest& request) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  [[nodiscard]] grpc::Status CheckTicket(const v1::FetchRequest& request) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // For streams: a state, a message of it, both on the thread "states"; a task for that thread; the
  // stream is over.
  [[nodiscard]] StatusOr<Opened> Open(const JobId& job, uint64_t step, Follows follows);
  [[nodiscard]] StatusOr<grpc::ByteBuffer> Read(const Opened& opened, uint64_t offset);
  [[nodiscard]] bool Post(Loop::Task task) { return loop_.Post(std::move(task)); }
  void Done(const std::shared_ptr<StateStream>& stream);

  [[nodiscard]] std::shared_ptr<Offered> BeginCall() ABSL_LOCKS_EXCLUDED(mu_);
  void EndCall() ABSL_LOCKS_EXCLUDED(mu_);
  void CancelStalled();

  const Options options_;

  Mutex mu_;
  Condition changed_;
  bool started_ ABSL_GUARDED_BY(mu_) = false;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::shared_ptr<Offered> offered_ ABSL_GUARDED_BY(mu_);
  uint64_t offers_ ABSL_GUARDED_BY(mu_) = 0;
  struct Admitted {
    JobId job;
    GenerationId generation;
    std::string ticket;
  };
  Admitted admitted_ ABSL_GUARDED_BY(mu_);  // without a job: nobody
  size_t calls_ ABSL_GUARDED_BY(mu_) = 0;   // into what is offered, under way
  std::set<std::shared_ptr<StateStream>> streams_ ABSL_GUARDED_BY(mu_);

  Loop loop_;  // "states"; last: its tasks use the rest
};

}  // namespace ringmaster::worker
