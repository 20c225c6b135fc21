#include "coordinator/service/loop_seams.h"

#include <spdlog/spdlog.h>

#include <memory>
#include <utility>

#include "common/ticket.h"
#include "coordinator/logic/record.h"
#include "coordinator/service/checkpoint_check.h"

namespace ringmaster::coordinator {
namespace {

constexpr size_t kStoreTasks = 16'384;
constexpr std::chrono::seconds kStoreTick{1};

std::vector<v1::CheckpointRef> RefsOf(const std::vector<CheckpointRecord>& records) {
  std::vector<v1::CheckpointRef> refs;
  refs.reserve(records.size());
  for (const CheckpointRecord& record : records) refs.push_back(record.ref);
  return refs;
}

}  // namespace

Clock::Moment SystemClock::Read() const {
  using std::chrono::duration_cast;
  const auto unix_time = std::chrono::system_clock::now().time_since_epoch();
  return {Of(std::chrono::steady_clock::now()),
          duration_cast<std::chrono::milliseconds>(unix_time).count()};
}

void ProcessLog::Write(Severity severity, const std::string& line) {
  const auto level = severity == Severity::kError     ? spdlog::level::err
                     : severity == Severity::kWarning ? spdlog::level::warn
                                                      : spdlog::level::info;
  spdlog::log(level, "{}", line);
}

// ---- streams ------------------------------------------------------------------------------------

OpenStreams::OpenStreams(SessionTable* sessions, UploadTable* uploads, BenchTable* benches,
                         std::string data_secret)
    : sessions_(sessions),
      uploads_(uploads),
      benches_(benches),
      data_secret_(std::move(data_secret)),
      secret_(RandomTicket() + RandomTicket()) {}

// Members of one generation have one ticket, which no other generation ever has. The one of a job's
// data is the same for all its members, also of those that were told by an earlier reign.
void OpenStreams::Send(const coordinator::Send& action) {
  v1::CoordinatorMessage message = action.message;
  if (message.has_inspect()) {
    v1::Inspect& inspect = *message.mutable_inspect();
    inspect.set_data_ticket(TicketFor(data_secret_, "data of " + inspect.job_id()));
  } else if (message.has_start()) {
    v1::Start& start = *message.mutable_start();
    const std::string generation = FromProto(start.generation()).ToString();
    start.set_ticket(TicketFor(secret_, start.job_id() + " " + generation));
  }
  sessions_->Send(action.session, message);
}

void OpenStreams::Admit(const coordinator::Admit& action) {
  sessions_->Admit(action.session, action.worker, action.attached);
}

void OpenStreams::Close(const CloseSession& action) {
  sessions_->End(action.session, action.refusal);
}

void OpenStreams::Admit(const AdmitUpload& action) {
  if (const auto call = uploads_->Find(action.upload)) call->Admit(action.max_bytes);
}

void OpenStreams::End(const EndUpload& action) {
  if (const auto call = uploads_->Find(action.upload)) call->End(action.refusal);
}

void OpenStreams::End(const EndBench& action) {
  if (const auto call = benches_->Find(action.bench)) call->End(action.refusal, action.report);
}

// ---- the disk -----------------------------------------------------------------------------------

void DiskThread::Place(UploadId upload) {
  const auto call = hands_.uploads->Find(upload);
  if (call && call->Place()) return;
  hands_.uploads->KeepUnheard(
      {upload, "",
       Error(absl::StatusCode::kUnavailable, "the upload ended, or the disk has too much to do")});
}

void DiskThread::Find(const FindCheckpoint& action) {
  struct Search {
    FindCheckpoint action;
    CheckpointFound found;
  };
  const auto search = std::make_shared<Search>(Search{action, {action.job_id, {}, "", {}}});
  CheckpointCheck::Hearer hearer;
  hearer.tell = [search](size_t index, const CheckpointCheck::Verdict& verdict) {
    const CheckpointRecord& candidate = search->action.candidates[index];
    if (!verdict.status.ok()) {
      search->found.skipped.push_back(fmt::format("the checkpoint of step {} cannot be used: {}",
                                                  candidate.ref.step(), Message(verdict.status)));
      return CheckpointCheck::Next::kGoOn;
    }
    search->found.found = candidate;
    search->found.digest = verdict.digest;
    return CheckpointCheck::Next::kEnough;
  };
  hearer.end = [this, search](const Status& status) {
    status.ok() ? hands_.tell(search->found) : hands_.put_off(search->action);
  };
  CheckpointCheck::Begin(*hands_.disk, RefsOf(action.candidates), std::move(hearer));
}

void DiskThread::Read(const ReadBack& action) {
  const auto why = std::make_shared<std::string>();
  CheckpointCheck::Hearer hearer;
  hearer.tell = [action, why](size_t index, const CheckpointCheck::Verdict& verdict) {
    if (verdict.status.ok()) return CheckpointCheck::Next::kGoOn;
    *why = fmt::format("the one of step {} is not whole: {}", action.checkpoints[index].ref.step(),
                       Message(verdict.status));
    return CheckpointCheck::Next::kEnough;
  };
  hearer.end = [this, job = action.job_id, why](const Status& status) {
    if (!status.ok()) *why = "the newer ones could not be read: " + Message(status);
    hands_.tell(CheckpointsRead{job, *why});
  };
  CheckpointCheck::Begin(*hands_.disk, RefsOf(action.checkpoints), std::move(hearer));
}

void DiskThread::Remove(const std::string& path) {
  const bool posted = hands_.disk->Post([folder = hands_.folder, path] {
    const Status status = folder->Remove(path);
    if (!status.ok()) spdlog::warn("checkpoint not removed: {}", Message(status));
  });
  if (!posted) spdlog::warn("checkpoint not removed: path={} the disk queue is full", path);
}

void DiskThread::RemoveJob(const std::string& job_id) {
  if (hands_.remove_log) hands_.remove_log(job_id);
  const bool posted = hands_.disk->Post([folder = hands_.folder, job_id] {
    const Status status = folder->RemoveJob(job_id);
    if (!status.ok()) spdlog::warn("job={} checkpoints not removed: {}", job_id, Message(status));
  });
  if (!posted) spdlog::warn("job={} checkpoints not removed: the disk queue is full", job_id);
}

// ---- the store ----------------------------------------------------------------------------------

StoreThread::StoreThread(Store* store, std::function<void()> ended)
    : store_(store),
      ended_(std::move(ended)),
      thread_({"store", kStoreTasks, kStoreTick, nullptr}) {}

bool StoreThread::Begin(std::vector<const StoreWrite*> writes) {
  return thread_.Post([this, writes = std::move(writes)] {
    std::vector<Status> statuses = store_->WriteAll(writes);
    {
      MutexLock lock(mu_);
      statuses_ = std::move(statuses);
      condition_.NotifyAll();
    }
    ended_();
  });
}

std::optional<std::vector<Status>> StoreThread::Take() {
  MutexLock lock(mu_);
  return std::exchange(statuses_, std::nullopt);
}

std::vector<Status> StoreThread::Wait() {
  MutexLock lock(mu_);
  WaitFor(condition_, mu_,
          [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return statuses_.has_value(); });
  return *std::exchange(statuses_, std::nullopt);
}

}  // namespace ringmaster::coordinator
