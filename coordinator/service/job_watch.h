// One Watch call: the job's status now and after every change, until it is final, or removed. Lives
// until gRPC is done with the call (it holds itself until then). Thread-safe. One write at a time,
// always of the newest view, so that a stuck client costs nothing and delays nobody.
#pragma once

#include <grpcpp/support/server_callback.h>

#include <memory>
#include <string>
#include <utility>

#include "common/mutex.h"
#include "coordinator/service/open_calls.h"
#include "coordinator/service/status_board.h"
#include "ringmaster/v1/jobs.pb.h"

namespace ringmaster::coordinator {

[[nodiscard]] grpc::Status NoSuchJob(const std::string& job_id);

class JobWatch : public CountedCall<grpc::ServerWriteReactor<v1::JobStatus>>,
                 public StatusBoard::Listener,
                 public std::enable_shared_from_this<JobWatch> {
 public:
  JobWatch(StatusBoard& board, std::string job_id, std::shared_ptr<OpenCall> call)
      : CountedCall(std::move(call)), board_(board), job_id_(std::move(job_id)) {}

  void Begin();
  void OnChange() override;

 private:
  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override {
    call_->Leave();
    self_.reset();
  }

  void Advance() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void FinishOnce(const grpc::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  StatusBoard& board_;
  const std::string job_id_;
  std::shared_ptr<JobWatch> self_;

  Mutex mu_;
  StatusBoard::View sent_ ABSL_GUARDED_BY(mu_);  // or being sent
  v1::JobStatus message_ ABSL_GUARDED_BY(mu_);   // of it, without a model's layers
  bool writing_ ABSL_GUARDED_BY(mu_) = false;
  bool finished_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace ringmaster::coordinator
