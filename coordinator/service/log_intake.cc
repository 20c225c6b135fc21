#include "coordinator/service/log_intake.h"

#include <spdlog/spdlog.h>

#include <utility>

#include "common/rpc/rpc_status.h"
#include "common/text.h"
#include "coordinator/service/control_loop.h"

namespace ringmaster::coordinator {
namespace {

constexpr size_t kMaxIntakes = 8'192;         // one a worker, and those that are about to end
constexpr std::chrono::seconds kSilence{10};  // of a call whose place another one wants
constexpr size_t kMaxNameShown = 100;

}  // namespace

std::shared_ptr<LogIntake> LogIntakes::Begin(std::shared_ptr<OpenCall> call) {
  auto intake = std::make_shared<LogIntake>(hands_, std::move(call));
  intake->Begin();
  bool closed = false;
  std::vector<std::shared_ptr<LogIntake>> silent;
  {
    MutexLock lock(mu_);
    std::erase_if(open_, [](const auto& weak) { return weak.expired(); });
    closed = closed_;
    if (!closed && open_.size() < kMaxIntakes) {
      open_.push_back(intake);
      return intake;
    }
    for (const auto& weak : open_) {
      auto call = weak.lock();
      if (call != nullptr && call->SilentFor(kSilence)) silent.push_back(std::move(call));
    }
  }
  // Who says nothing makes room for who might, when that comes again.
  const Status full = Error(absl::StatusCode::kUnavailable,
                            "the coordinator takes no more calls with log lines now");
  for (const auto& call : silent) call->End(ToGrpc(full, "OVERLOADED"));
  intake->End(closed ? ToGrpc(Stopping()) : ToGrpc(full, "OVERLOADED"));
  return intake;
}

void LogIntakes::Close() {
  std::vector<std::weak_ptr<LogIntake>> open;
  {
    MutexLock lock(mu_);
    closed_ = true;
    open = std::exchange(open_, {});
  }
  for (const auto& weak : open) {
    if (const auto intake = weak.lock()) intake->End(ToGrpc(Stopping()));
  }
}

void LogIntake::Begin() {
  self_ = shared_from_this();
  StartRead(&chunk_);
}

void LogIntake::OnReadDone(bool ok) {
  if (!ok) return End(grpc::Status::OK);
  spoke_ = true;
  const auto holder = hands_.sessions.FindByTicket(chunk_.ticket(), call_->caller().identity);
  if (!holder || holder->worker != chunk_.worker()) {
    return End(ToGrpc(Error(absl::StatusCode::kPermissionDenied,
                            "the ticket of these lines is not that of worker {}: only workers ship "
                            "lines, with the ticket that their newest Attached brought",
                            CleanText(chunk_.worker(), kMaxNameShown)),
                      "TICKET_NOT_VALID"));
  }
  if (!hands_.logs.Post([self = self_] { self->Store(); })) End(ToGrpc(Stopping()));
}

void LogIntake::Store() {
  const auto known = [this](const std::string& job) { return hands_.board.Find(job) != nullptr; };
  const StatusOr<LogFolder::Stored> stored = hands_.folder.Store(chunk_, known);
  if (!stored.ok()) {
    spdlog::error("log lines not stored: {}", Message(stored.status()));
    const bool disk = stored.status().code() == absl::StatusCode::kUnavailable;
    return End(ToGrpc(stored.status(), disk ? "STORE_UNAVAILABLE" : "INVALID_LOG"));
  }
  for (const std::string& job : stored->jobs) {
    hands_.board.NoteLogLines(job, hands_.folder.Lost(job));
  }
  Acknowledge(stored->number);
}

void LogIntake::Acknowledge(uint64_t number) {
  MutexLock lock(mu_);
  if (ending_) return;
  writing_ = true;
  ack_.set_number(number);
  StartWrite(&ack_);
}

void LogIntake::OnWriteDone(bool ok) {
  if (!ok) End(grpc::Status::CANCELLED);
  MutexLock lock(mu_);
  writing_ = false;
  if (ending_) return Finish(end_);
  StartRead(&chunk_);
}

void LogIntake::End(const grpc::Status& status) {
  MutexLock lock(mu_);
  if (std::exchange(ending_, true)) return;
  end_ = status;
  if (!writing_) Finish(end_);
}

}  // namespace ringmaster::coordinator
