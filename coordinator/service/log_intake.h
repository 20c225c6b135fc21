// ShipLogs calls: each chunk that shows the ticket of its worker's newest session is stored by the
// logs thread and acknowledged only then, one at a time on a stream. A call lives until gRPC is
// done with it (it holds itself until then). Thread-safe.
#pragma once

#include <grpcpp/support/server_callback.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <utility>
#include <vector>

#include "common/loop.h"
#include "common/mutex.h"
#include "coordinator/service/open_calls.h"
#include "coordinator/service/session_table.h"
#include "coordinator/service/status_board.h"
#include "coordinator/store/log_folder.h"
#include "ringmaster/v1/fleet.pb.h"

namespace ringmaster::coordinator {

class LogIntake;

// The open ones, so that the daemon can end them. Owned by the daemon; thread-safe.
class LogIntakes {
 public:
  struct Hands {
    LogFolder& folder;  // logs thread only
    Loop& logs;
    StatusBoard& board;
    const SessionTable& sessions;
  };
  explicit LogIntakes(const Hands& hands) : hands_(hands) {}

  // A new call, or one that ends at once: too many, or closed.
  [[nodiscard]] std::shared_ptr<LogIntake> Begin(std::shared_ptr<OpenCall> call);
  // Ends all, takes no more.
  void Close();

 private:
  const Hands hands_;
  Mutex mu_;
  std::vector<std::weak_ptr<LogIntake>> open_ ABSL_GUARDED_BY(mu_);
  bool closed_ ABSL_GUARDED_BY(mu_) = false;
};

class LogIntake : public CountedCall<grpc::ServerBidiReactor<v1::LogChunk, v1::LogAck>>,
                  public std::enable_shared_from_this<LogIntake> {
 public:
  LogIntake(const LogIntakes::Hands& hands, std::shared_ptr<OpenCall> call)
      : CountedCall(std::move(call)), hands_(hands) {}

  void Begin();
  // It has been open for so long, and never showed whose it is.
  [[nodiscard]] bool SilentFor(std::chrono::seconds least) const {
    return !spoke_ && std::chrono::steady_clock::now() - since_ >= least;
  }
  // After the acknowledgement that is being written.
  void End(const grpc::Status& status);

 private:
  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnCancel() override { End(grpc::Status::CANCELLED); }
  void OnDone() override {
    call_->Leave();
    self_.reset();
  }

  void Store();  // logs thread
  void Acknowledge(uint64_t number);

  const LogIntakes::Hands hands_;
  const std::chrono::steady_clock::time_point since_ = std::chrono::steady_clock::now();
  std::atomic<bool> spoke_{false};
  std::shared_ptr<LogIntake> self_;
  v1::LogChunk chunk_;  // one of gRPC and logs thread at a time
  v1::LogAck ack_;

  Mutex mu_;
  bool writing_ ABSL_GUARDED_BY(mu_) = false;
  bool ending_ ABSL_GUARDED_BY(mu_) = false;
  grpc::Status end_ ABSL_GUARDED_BY(mu_);
};

}  // namespace ringmaster::coordinator
