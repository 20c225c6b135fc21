// One Logs call: reads stored lines on the logs thread, writes them one at a time, and with
// `follow` goes on when lines come, until the job has ended and no line came for a while. Lives
// until gRPC is done with the call (it holds itself until then). Thread-safe: one of logs thread
// and pending write works on it at a time.
#pragma once

#include <grpcpp/alarm.h>
#include <grpcpp/support/server_callback.h>

#include <chrono>
#include <deque>
#include <memory>
#include <optional>
#include <utility>

#include "common/loop.h"
#include "common/mutex.h"
#include "coordinator/service/open_calls.h"
#include "coordinator/service/status_board.h"
#include "coordinator/store/log_reader.h"
#include "ringmaster/v1/jobs.pb.h"

namespace ringmaster::coordinator {

class LogStream : public CountedCall<grpc::ServerWriteReactor<v1::LogLine>>,
                  public StatusBoard::Listener,
                  public std::enable_shared_from_this<LogStream> {
 public:
  struct Hands {
    const LogFolder& folder;  // logs thread only
    Loop& logs;
    StatusBoard& board;
    // How long followers wait, behind the end of a job, for what its workers have not yet shipped:
    // of who is here until it has said that it logs no more, and no longer than `longest`; of who
    // is gone for `quiet` after the newest line.
    std::chrono::milliseconds quiet, longest;
  };
  // The job exists.
  LogStream(const Hands& hands, v1::LogsRequest request, std::shared_ptr<OpenCall> call)
      : CountedCall(std::move(call)),
        hands_(hands),
        request_(std::move(request)),
        reader_(hands.folder, request_.job_id(), request_.worker()) {}

  void Begin();
  void OnChange() override;

 private:
  using Time = std::chrono::steady_clock::time_point;

  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

  // Has the logs thread look for lines; when it does already, once more.
  void Continue();
  void Advance();  // logs thread
  // Whether the call is over, and how, when there is no line now.
  [[nodiscard]] std::optional<grpc::Status> Over();
  [[nodiscard]] bool IsOfJob() const;
  // Whether the job ended and no more lines are to come; if not yet, an alarm asks again.
  [[nodiscard]] bool Complete();
  enum class Missing : uint8_t { kNobody, kGone, kHere };
  // Whose end of the log did not come, of those that the job ended with and all that logged for it.
  [[nodiscard]] Missing WhoIsMissing(const v1::JobStatus& status) const;
  // By whoever works on it.
  void End(const grpc::Status& status);

  const Hands hands_;
  const v1::LogsRequest request_;
  std::shared_ptr<LogStream> self_;

  // One of logs thread and pending write.
  LogReader reader_;
  std::deque<v1::LogLine> lines_;  // front: being written
  std::optional<Time> ended_;      // when the job came to its final state, once that was seen
  Time newest_{};                  // when the last line was read
  bool checked_ = false;           // that the worker is one of the job

  Mutex mu_;
  grpc::Alarm alarm_ ABSL_GUARDED_BY(mu_);
  bool alarm_set_ ABSL_GUARDED_BY(mu_) = false;
  bool cancelled_ ABSL_GUARDED_BY(mu_) = false;
  bool busy_ ABSL_GUARDED_BY(mu_) = false;   // the logs thread or a write works on it
  bool again_ ABSL_GUARDED_BY(mu_) = false;  // something changed meanwhile
};

}  // namespace ringmaster::coordinator
