// One worker's session stream: passes its messages to the control loop one at a time, and sends
// what the loop has for it. Lives until gRPC is done with the call (it holds itself until then). A
// worker that does not read what it is sent is broken off: its queue is bounded, and so is the time
// that one write, or the end, may take. Thread-safe. It understands no message.
#pragma once

#include <grpcpp/server_context.h>
#include <grpcpp/support/server_callback.h>

#include <chrono>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "common/mutex.h"
#include "coordinator/service/control_loop.h"
#include "coordinator/service/open_calls.h"
#include "coordinator/service/session_table.h"
#include "ringmaster/v1/fleet.pb.h"

namespace ringmaster::coordinator {

class WorkerSession
    : public CountedCall<grpc::ServerBidiReactor<v1::WorkerMessage, v1::CoordinatorMessage>>,
      public SessionStream,
      public std::enable_shared_from_this<WorkerSession> {
 public:
  // A worker that has a certificate may attach with its name alone.
  WorkerSession(ControlLoop& control, SessionTable& table, grpc::CallbackServerContext& context,
                std::shared_ptr<OpenCall> call)
      : CountedCall(std::move(call)), control_(control), table_(table), context_(context) {}

  // Enters the table and begins to read, or ends the call.
  void Begin();

  void Send(const v1::CoordinatorMessage& message) override;
  void End(const Refusal& refusal) override;
  // gRPC then reports its end.
  void Cancel(const std::string& reason) override;
  void CancelIfStuck(std::chrono::steady_clock::time_point now) override;

 private:
  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

  void ReadNext();
  // Tells the loop, once.
  void Closed(const std::string& reason);
  // Writes the next message, or finishes when the end was asked for.
  void Flush() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  ControlLoop& control_;
  SessionTable& table_;
  grpc::CallbackServerContext& context_;
  SessionId session_{};

  v1::WorkerMessage incoming_;  // one read at a time
  std::shared_ptr<WorkerSession> self_;

  Mutex mu_;
  std::deque<v1::CoordinatorMessage> outgoing_ ABSL_GUARDED_BY(mu_);  // front: being written
  bool writing_ ABSL_GUARDED_BY(mu_) = false;
  bool ending_ ABSL_GUARDED_BY(mu_) = false;
  bool finished_ ABSL_GUARDED_BY(mu_) = false;
  bool told_closed_ ABSL_GUARDED_BY(mu_) = false;
  grpc::Status end_ ABSL_GUARDED_BY(mu_);
  // Since when the write, or the end, that was begun last is under way.
  std::optional<std::chrono::steady_clock::time_point> waits_since_ ABSL_GUARDED_BY(mu_);
};

}  // namespace ringmaster::coordinator
