#include "coordinator/service/control_loop.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <memory>
#include <set>
#include <utility>
#include <variant>

#include "common/check.h"
#include "common/job/resolve.h"
#include "common/sha256.h"
#include "common/ticket.h"
#include "coordinator/service/checkpoint_check.h"

namespace ringmaster::coordinator {
namespace {

constexpr std::chrono::milliseconds kTick{50};
constexpr size_t kMaxEvents = 65'536;
// Of events as they came; smaller ones are bounded by their number alone, so that who sends large
// ones keeps nobody's heartbeat out.
constexpr size_t kLargeEvent = 4 << 10;
constexpr size_t kMaxWaitingBytes = 256 << 20;
constexpr int kMaxWaitingReads = 64;  // each keeps decisions waiting for as long as it takes
constexpr size_t kMetricPageBytes = 256 << 10;
constexpr std::chrono::milliseconds kStorePause{500};  // between two tries of one that fails
constexpr std::chrono::seconds kSessionPause{1};       // between two looks for stuck sessions

Now ReadClocks() {
  using std::chrono::duration_cast;
  using std::chrono::milliseconds;
  return {duration_cast<milliseconds>(std::chrono::steady_clock::now().time_since_epoch()),
          duration_cast<milliseconds>(std::chrono::system_clock::now().time_since_epoch()).count()};
}

// As far as a peer chooses it.
size_t BytesOf(const Event& event) {
  if (const auto* said = std::get_if<WorkerSaid>(&event)) return said->message.ByteSizeLong();
  if (const auto* asked = std::get_if<SubmitAsked>(&event)) return asked->submit.ByteSizeLong();
  return 0;
}

}  // namespace

ControlLoop::ControlLoop(const Options& options, const Hands& hands)
    : hands_(hands),
      secret_(RandomTicket() + RandomTicket()),
      logic_(options),
      retirement_(
          {hands.checkpoints, hands.disk,
           [this](std::function<void()> task) { (void)loop_.Post(std::move(task)); },
           [this](const CheckpointRecord& record) {
             return Write(hands_.store->RemoveCheckpoint(record), "forget a checkpoint").ok();
           },
           [this](const CheckpointRecord& record, const std::string& why) {
             Handle(CheckpointRetained{record, why});
           }}),
      loop_({"control", kMaxEvents, kTick, [this] { OnTick(); }}) {}

Status ControlLoop::Restore() {
  Restored restored;
  restored.term = hands_.store->term();
  RING_ASSIGN_OR_RETURN(restored.jobs, hands_.store->LoadJobs());
  RING_ASSIGN_OR_RETURN(restored.checkpoints, hands_.store->LoadCheckpoints());
  RING_ASSIGN_OR_RETURN(restored.drains, hands_.store->LoadDrains());
  RING_RETURN_IF_ERROR(RestoreStrays(restored));
  for (const CheckpointRecord& checkpoint : restored.checkpoints) retirement_.Add(checkpoint);
  spdlog::info("term={} jobs={} checkpoints={}", restored.term, restored.jobs.size(),
               restored.checkpoints.size());
  CarryOut(logic_.Restore(restored, ReadClocks()));
  return absl::OkStatus();
}

// A store that was restored from an older copy knows less than the folder holds.
Status ControlLoop::RestoreStrays(Restored& restored) {
  CheckpointFolder::Known known;
  for (const JobRecord& job : restored.jobs) known.jobs.insert(job.id());
  for (const CheckpointRecord& checkpoint : restored.checkpoints) {
    known.paths.insert(checkpoint.ref.path());
  }
  RING_ASSIGN_OR_RETURN(const CheckpointFolder::Swept swept, hands_.checkpoints->Sweep(known));
  for (const std::string& warning : swept.warnings) spdlog::warn("checkpoints: {}", warning);
  restored.taken_ids = swept.unknown_jobs;
  for (const CheckpointFolder::Stray& stray : swept.strays) {
    if (const std::string why = CheckStray(stray, restored.jobs); !why.empty()) {
      spdlog::warn("checkpoints: {} is not in the store, and it is left as it is: {}",
                   stray.ref.path(), why);
      continue;
    }
    const CheckpointRecord record{stray.job_id, stray.ref, false};
    RING_RETURN_IF_ERROR(hands_.store->InsertCheckpoint(record));
    restored.checkpoints.push_back(record);
    spdlog::warn("checkpoints: {} was whole and not in the store: it is now", stray.ref.path());
  }
  return absl::OkStatus();
}

// Why it is none of its job's; empty when it is.
std::string ControlLoop::CheckStray(const CheckpointFolder::Stray& stray,
                                    const std::vector<JobRecord>& jobs) {
  const auto job = std::find_if(jobs.begin(), jobs.end(), [&](const JobRecord& record) {
    return record.id() == stray.job_id;
  });
  if (job == jobs.end() || !job->resolved) {
    return fmt::format("job {} had not started yet when the store was copied", stray.job_id);
  }
  const std::string expected = Hex(job::ResultDigest(job->resolved->result()));
  if (stray.result_digest == expected) return "";
  return fmt::format("it is of another job that had the id {}: result_digest {}, expected {}",
                     stray.job_id, stray.result_digest, expected);
}

Status ControlLoop::PostSized(size_t bytes, std::function<void()> task) {
  const size_t counted = bytes < kLargeEvent ? 0 : bytes;
  const size_t waiting = waiting_bytes_.fetch_add(counted) + counted;
  Status status;
  if (counted > 0 && waiting > kMaxWaitingBytes) {
    status = Error(absl::StatusCode::kResourceExhausted,
                   "{} MiB of large messages wait for the coordinator, {} allowed; try again",
                   (waiting - counted) >> 20, kMaxWaitingBytes >> 20);
  } else if (!loop_.Post([this, counted, came = std::chrono::steady_clock::now(),
                          task = std::move(task)] {
               waiting_bytes_ -= counted;
               waits_.Add(std::chrono::steady_clock::now() - came);
               task();
             })) {
    status = Stopping();
  }
  if (!status.ok()) waiting_bytes_ -= counted;
  return status;
}

Status ControlLoop::Post(Event event, std::function<void()> done) {
  const size_t bytes = BytesOf(event);
  return PostSized(bytes, [this, event = std::move(event), done = std::move(done)] {
    Handle(event);
    if (done) done();
  });
}

void ControlLoop::Ask(Event event, std::function<void(const Reply&)> done) {
  const size_t bytes = BytesOf(event);
  Status posted = PostSized(bytes, [this, event = std::move(event), done] {
    reply_ = {{Internal("bug: the event was not answered"), "INTERNAL"}, "", false};
    Handle(event);
    done(reply_);
  });
  if (posted.ok()) return;
  const char* word = absl::IsResourceExhausted(posted) ? "OVERLOADED" : "UNAVAILABLE";
  done({{std::move(posted), word}, "", false});
}

void ControlLoop::ReadMetrics(const v1::GetMetricsRequest& request,
                              std::function<void(const Metrics&)> done) {
  if (waiting_reads_.fetch_add(1) >= kMaxWaitingReads) {
    --waiting_reads_;
    return done(Error(absl::StatusCode::kResourceExhausted,
                      "{} requests for metrics wait for the coordinator; try again",
                      kMaxWaitingReads));
  }
  const bool posted = loop_.Post([this, request, done] {
    --waiting_reads_;
    done(LoadMetrics(request));
  });
  if (posted) return;
  --waiting_reads_;
  done(Stopping());
}

ControlLoop::Metrics ControlLoop::LoadMetrics(const v1::GetMetricsRequest& request) {
  const auto after = request.has_after() ? std::optional(request.after()) : std::nullopt;
  RING_ASSIGN_OR_RETURN(
      Store::MetricPage page,
      hands_.store->LoadMetrics(request.job_id(), request.series(), after, kMetricPageBytes));
  v1::GetMetricsResponse response;
  response.set_more(page.more);
  response.set_next_after(page.points.empty() ? request.after() : page.points.back().step());
  if (const StatusBoard::View view = hands_.board->Find(request.job_id())) {
    response.set_rewinds(view->status.rewinds());
  }
  const std::set<std::string> wanted(request.names().begin(), request.names().end());
  for (v1::MetricPoint& point : page.points) {
    if (!wanted.empty()) {
      const auto unwanted = std::remove_if(
          point.mutable_values()->begin(), point.mutable_values()->end(),
          [&](const v1::MetricValue& value) { return !wanted.contains(value.name()); });
      point.mutable_values()->erase(unwanted, point.mutable_values()->end());
    }
    if (!point.values().empty()) *response.add_points() = std::move(point);
  }
  return response;
}

void ControlLoop::Handle(const Event& event) {
  RING_CHECK(loop_.InLoop(), "events are handled on the control loop");
  write_failed_ = false;
  CarryOut(logic_.Step(event, ReadClocks()));
}

void ControlLoop::CarryOut(Actions actions) {
  queue_.CarryOut(std::move(actions), [this](const Action& action) {
    std::visit([this](const auto& a) { Do(a); }, action);
  });
}

void ControlLoop::OnTick() {
  SaveUnsaved();
  for (const FindCheckpoint& search : std::exchange(put_off_, {})) Do(search);
  for (UploadPlaced& placed : hands_.uploads->TakeUnheard()) Handle(std::move(placed));
  Handle(Tick{});
  const auto now = std::chrono::steady_clock::now();
  if (now - sessions_seen_ < kSessionPause) return;
  sessions_seen_ = now;
  hands_.sessions->CancelStuck(now);
}

// Oldest debt first: what is shown must be stored. When all of it is, one more write that changes
// nothing says that the trouble is over.
void ControlLoop::SaveUnsaved() {
  const Now now = ReadClocks();
  if (!trouble_.lasts() || trouble_.Recent(now.steady, kStorePause)) return;
  for (auto entry = unsaved_.begin(); entry != unsaved_.end();) {
    if (!Write(hands_.store->SaveJob(entry->second), "save " + entry->first).ok()) return;
    if (auto view = withheld_.extract(entry->first))
      hands_.board->Publish(std::move(view.mapped()));
    entry = unsaved_.erase(entry);
  }
  for (auto entry = unsaved_metrics_.begin(); entry != unsaved_metrics_.end();) {
    const Status saved = hands_.store->SaveMetrics(entry->first, entry->second);
    if (!Write(saved, "save the metrics of " + entry->first).ok()) return;
    entry = unsaved_metrics_.erase(entry);
  }
  if (!Write(hands_.store->TryWrite(), "try it").ok()) return;
  spdlog::warn("store: it can be written again, after {} ms", trouble_.End(now.steady).count());
  hands_.board->NoteStoreTrouble("");
}

Status ControlLoop::Write(const Status& status, const std::string& what) {
  if (status.ok()) return status;
  write_failed_ = true;
  const std::string reason = Message(status);
  if (trouble_.Failed(status, ReadClocks().steady)) {
    spdlog::error("store: {}: {}; nothing is acknowledged until it can be written", what, reason);
    hands_.board->NoteStoreTrouble(fmt::format(
        "the coordinator cannot write its store ({}), so that what it shows may be old and nothing "
        "is acknowledged: make room on the disk of its --data-dir, or look at its log",
        reason));
  }
  return Error(absl::StatusCode::kUnavailable, "the coordinator cannot write its store: {}",
               reason);
}

// Members of one generation have one ticket, which no other generation ever has. The one of a job's
// data is the same for all its members, also of those that were told by an earlier reign.
void ControlLoop::Do(const Send& action) {
  v1::CoordinatorMessage message = action.message;
  if (message.has_inspect()) {
    v1::Inspect& inspect = *message.mutable_inspect();
    inspect.set_data_ticket(TicketFor(hands_.data_secret, "data of " + inspect.job_id()));
  } else if (message.has_start()) {
    v1::Start& start = *message.mutable_start();
    const std::string generation = FromProto(start.generation()).ToString();
    start.set_ticket(TicketFor(secret_, start.job_id() + " " + generation));
  }
  hands_.sessions->Send(action.session, message);
}

void ControlLoop::Do(const Admit& action) {
  hands_.sessions->Admit(action.session, action.worker, action.attached);
}

void ControlLoop::Do(const CloseSession& action) {
  hands_.sessions->End(action.session, action.refusal);
}

void ControlLoop::Do(const InsertJob& action) {
  const Status status =
      Write(hands_.store->InsertJob(action.record), "insert " + action.record.id());
  CarryOut(logic_.Step(JobInserted{action.record, status}, ReadClocks()));
}

void ControlLoop::Do(const InsertCheckpoint& action) {
  const Status status =
      Write(hands_.store->InsertCheckpoint(action.record), "checkpoint of " + action.record.job_id);
  if (status.ok()) retirement_.Add(action.record);
  CarryOut(logic_.Step(CheckpointInserted{action.upload, action.record, action.digest, status},
                       ReadClocks()));
}

void ControlLoop::Do(const AdmitUpload& action) {
  if (const auto call = hands_.uploads->Find(action.upload)) call->Admit(action.max_bytes);
}

void ControlLoop::Do(const PlaceUpload& action) {
  const auto call = hands_.uploads->Find(action.upload);
  if (call && call->Place()) return;
  hands_.uploads->KeepUnheard(
      {action.upload, "",
       Error(absl::StatusCode::kUnavailable, "the upload ended, or the disk has too much to do")});
}

void ControlLoop::Do(const EndUpload& action) {
  if (const auto call = hands_.uploads->Find(action.upload)) call->End(IfStored(action.refusal));
}

void ControlLoop::Do(const EndBench& action) {
  if (const auto call = hands_.benches->Find(action.bench))
    call->End(action.refusal, action.report);
}

void ControlLoop::Do(const RaiseTerm& action) {
  if (!Write(hands_.store->RaiseTerm(action.term), "raise the term").ok()) return;
  CarryOut(logic_.Step(TermRaised{action.term}, ReadClocks()));
}

void ControlLoop::Do(const FindCheckpoint& action) {
  struct Search {
    FindCheckpoint action;
    CheckpointFound found;
  };
  const auto search = std::make_shared<Search>(Search{action, {action.job_id, {}, "", {}}});
  // With those that were superseded by others that may not be whole, and are still there. None of
  // them goes while they are looked at, unless two newer ones are whole: then one of these is
  // found.
  std::vector<CheckpointRecord>& candidates = search->action.candidates;
  for (CheckpointRecord& record : retirement_.Waiting(action.job_id)) {
    candidates.push_back(std::move(record));
  }
  std::stable_sort(candidates.begin(), candidates.end(),
                   [](const auto& a, const auto& b) { return a.ref.step() > b.ref.step(); });
  std::vector<v1::CheckpointRef> refs;
  for (const CheckpointRecord& candidate : candidates) refs.push_back(candidate.ref);
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
    // That nobody could look does not mean that there is none.
    (void)loop_.Post([this, search, looked = status.ok()] {
      looked ? Handle(search->found) : put_off_.push_back(search->action);
    });
  };
  CheckpointCheck::Begin(*hands_.disk, std::move(refs), std::move(hearer));
}

void ControlLoop::Do(const SaveJob& action) {
  const std::string& id = action.record.id();
  if (Write(hands_.store->SaveJob(action.record), "save " + id).ok()) {
    unsaved_.erase(id);
    withheld_.erase(id);
  } else {
    unsaved_[id] = action.record;
  }
}

// What could not be written goes with the next, or is tried again.
void ControlLoop::Do(const SaveMetrics& action) {
  MetricBatch& batch = unsaved_metrics_[action.job_id];
  batch.Append(action.batch);
  const bool failed = write_failed_;  // nobody's answer depends on this one
  if (Write(hands_.store->SaveMetrics(action.job_id, batch), "save the metrics of " + action.job_id)
          .ok()) {
    unsaved_metrics_.erase(action.job_id);
  }
  write_failed_ = failed;
}

void ControlLoop::Do(const RemoveCheckpoint& action) { retirement_.Retire(action.record); }

void ControlLoop::Do(const SaveDrain& action) {
  (void)Write(hands_.store->SaveDrain(action.record), "save the drain of " + action.record.worker);
}

void ControlLoop::Do(const PublishJob& action) {
  const std::string& id = action.view.status.job_id();
  if (unsaved_.contains(id)) {
    withheld_[id] = action.view;
  } else {
    hands_.board->Publish(action.view);
  }
}

void ControlLoop::Do(const PublishWorkers& action) { hands_.board->PublishWorkers(action.workers); }

Refusal ControlLoop::IfStored(const Refusal& refusal) const {
  if (!write_failed_ || !refusal.status.ok()) return refusal;
  return {Error(absl::StatusCode::kUnavailable,
                "the coordinator cannot write its store; see its log, then try again"),
          "STORE_UNAVAILABLE"};
}

void ControlLoop::Do(const Reply& action) {
  reply_ = action;
  reply_.refusal = IfStored(action.refusal);
}

void ControlLoop::Do(const Note& action) { spdlog::info("{} {}", action.subject, action.text); }

}  // namespace ringmaster::coordinator
