#include "coordinator/service/control_loop.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <memory>
#include <set>
#include <type_traits>
#include <utility>
#include <variant>

#include "common/check.h"
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
constexpr int kMostInRow = 64;                         // events before the queue is looked at

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
      retirement_({hands.checkpoints, hands.disk,
                   [this](std::function<void()> task) { (void)loop_.Post(std::move(task)); },
                   [this](const CheckpointRecord& record) {
                     return Judge(commits_.Call([&record](coordinator::Store& store) {
                              return store.RemoveCheckpoint(record);
                            }),
                                  "forget a checkpoint")
                         .ok();
                   },
                   [this](const CheckpointRecord& record, const std::string& why) {
                     Handle(CheckpointRetained{record, why});
                   }}),
      commits_(hands.store,
               [this](std::function<void()> task) { (void)loop_.Post(std::move(task)); }),
      loop_({"control", kMaxEvents, kTick, [this] { OnTick(); }}) {}

Status ControlLoop::Restore() {
  RING_ASSIGN_OR_RETURN(const Restored restored, LoadAll(*hands_.store, *hands_.checkpoints));
  for (const CheckpointRecord& checkpoint : restored.checkpoints) retirement_.Add(checkpoint);
  spdlog::info("term={} jobs={} checkpoints={}", restored.term, restored.jobs.size(),
               restored.checkpoints.size());
  commits_.Start();
  outcome_ = std::make_shared<Outcome>();
  CarryOut(logic_.Restore(restored, ReadClocks()));
  commits_.Finish();
  return absl::OkStatus();
}

void ControlLoop::Stop() {
  loop_.Stop();
  commits_.Finish();
  commits_.Stop();
}

Now ControlLoop::ReadClocks() const {
  using std::chrono::duration_cast;
  using std::chrono::milliseconds;
  const auto now = std::chrono::steady_clock::now();
  Now read;
  read.steady = duration_cast<milliseconds>(now.time_since_epoch());
  read.unix_ms =
      duration_cast<milliseconds>(std::chrono::system_clock::now().time_since_epoch()).count();
  read.waited = duration_cast<milliseconds>(now - came_);
  return read;
}

Status ControlLoop::PostSized(size_t bytes, std::function<void()> task, const PostTask& post) {
  const size_t counted = bytes < kLargeEvent ? 0 : bytes;
  const size_t waiting = waiting_bytes_.fetch_add(counted) + counted;
  Status status;
  if (counted > 0 && waiting > kMaxWaitingBytes) {
    status = Error(absl::StatusCode::kResourceExhausted,
                   "{} MiB of large messages wait for the coordinator, {} allowed; try again",
                   (waiting - counted) >> 20, kMaxWaitingBytes >> 20);
  } else if (!post([this, counted, task = std::move(task)] {
               waiting_bytes_ -= counted;
               task();
             })) {
    status = Stopping();
  }
  if (!status.ok()) waiting_bytes_ -= counted;
  return status;
}

Status ControlLoop::PostEvent(size_t bytes, std::function<void()> task) {
  ++waiting_events_;
  Status posted = PostSized(
      bytes,
      [this, came = std::chrono::steady_clock::now(), task = std::move(task)] {
        --waiting_events_;
        came_ = came;
        waits_.Add(std::chrono::steady_clock::now() - came);
        task();
      },
      [this](std::function<void()> sized) { return loop_.Post(std::move(sized)); });
  if (!posted.ok()) --waiting_events_;
  return posted;
}

Status ControlLoop::Run(size_t bytes, std::function<void()> task) {
  return PostSized(bytes, std::move(task),
                   [this](std::function<void()> sized) { return commits_.Post(std::move(sized)); });
}

Status ControlLoop::Post(Event event, std::function<void()> done) {
  const size_t bytes = BytesOf(event);
  return PostEvent(bytes, [this, event = std::move(event), done = std::move(done)] {
    Handle(event);
    if (done) done();
  });
}

void ControlLoop::Ask(Event event, std::function<void(const Reply&)> done) {
  const size_t bytes = BytesOf(event);
  Status posted = PostEvent(bytes, [this, event = std::move(event), done] {
    const auto asked = std::make_shared<Asked>(Asked{done});
    asked_ = asked;
    Handle(event);
    asked_ = nullptr;
    if (asked->answered) return;
    done({{Internal("bug: the event was not answered"), "INTERNAL"}, "", false});
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
  const bool posted = commits_.Post([this, request, done] {
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
  outcome_ = std::make_shared<Outcome>();
  const bool comes = waiting_events_ > 0 && ++row_ < kMostInRow;
  if (!comes) row_ = 0;
  CarryOut(logic_.Step(event, ReadClocks(), comes ? Logic::Next::kComes : Logic::Next::kMayWait));
  commits_.Begin();
}

void ControlLoop::Follow(const Event& event, const std::shared_ptr<Asked>& asked) {
  outcome_ = std::make_shared<Outcome>();
  asked_ = asked;
  Now now = ReadClocks();
  now.waited = {};
  CarryOut(
      logic_.Step(event, now, commits_.goes_on() ? Logic::Next::kComes : Logic::Next::kMayWait));
  asked_ = nullptr;
}

void ControlLoop::CarryOut(Actions actions) {
  for (Action& action : actions) {
    std::visit([this](auto& a) { CarryOutOne(a); }, action);
  }
}

template <typename A>
void ControlLoop::CarryOutOne(A& action) {
  constexpr bool kAnswers = std::is_same_v<A, Reply> || std::is_same_v<A, InsertJob>;
  if (kAnswers && asked_) asked_->answered = true;
  if (kIsWrite<A> || std::is_same_v<A, Note> || commits_.idle()) return Do(action);
  commits_.Then([this, action = std::move(action), outcome = outcome_, asked = asked_] {
    outcome_ = outcome;
    asked_ = asked;
    Do(action);
    asked_ = nullptr;
  });
}

void ControlLoop::OnTick() {
  commits_.Collect();
  SaveUnsaved();
  for (const FindCheckpoint& search : std::exchange(put_off_, {})) Do(search);
  for (UploadPlaced& placed : hands_.uploads->TakeUnheard()) Handle(std::move(placed));
  // The oldest event that waits came after the one that was handled last.
  const auto now = std::chrono::steady_clock::now();
  if (waiting_events_ == 0) came_ = now;
  row_ = kMostInRow;
  Handle(Tick{});
  if (now - sessions_seen_ < kSessionPause) return;
  sessions_seen_ = now;
  hands_.sessions->CancelStuck(now);
}

// What is shown must be stored. When all of it is, one more write that changes nothing says that
// the trouble is over.
void ControlLoop::SaveUnsaved() {
  if (saving_unsaved_ || !trouble_.lasts()) return;
  if (trouble_.Recent(ReadClocks().steady, kStorePause)) return;
  saving_unsaved_ = true;
  outcome_ = std::make_shared<Outcome>();
  for (const auto& [id, record] : unsaved_) Do(SaveJob{record});
  for (auto& [id, batch] : std::exchange(unsaved_metrics_, {})) {
    Do(SaveMetrics{id, std::move(batch)});
  }
  commits_.Write(WriteNothing(), [this](const Status& status, const StoreWrite&) {
    outcome_ = std::make_shared<Outcome>();
    saving_unsaved_ = false;
    if (!Judge(status, "try it").ok() || !unsaved_.empty() || !unsaved_metrics_.empty()) return;
    const auto lasted = trouble_.End(ReadClocks().steady);
    spdlog::warn("store: it can be written again, after {} ms", lasted.count());
    hands_.board->NoteStoreTrouble("");
  });
  commits_.Begin();
}

Status ControlLoop::Judge(const Status& status, const std::string& what) {
  if (status.ok()) return status;
  outcome_->failed = true;
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

// ---- writes -------------------------------------------------------------------------------------

void ControlLoop::Do(const InsertJob& action) {
  commits_.Write(action, [this, asked = asked_, outcome = outcome_](const Status& status,
                                                                    const StoreWrite& write) {
    outcome_ = outcome;
    const JobRecord& record = std::get<InsertJob>(write).record;
    Follow(JobInserted{record, Judge(status, "insert " + record.id())}, asked);
  });
}

void ControlLoop::Do(const InsertCheckpoint& action) {
  commits_.Write(action, [this, outcome = outcome_](const Status& status, const StoreWrite& write) {
    outcome_ = outcome;
    const auto& [upload, record, digest] = std::get<InsertCheckpoint>(write);
    const Status judged = Judge(status, "checkpoint of " + record.job_id);
    if (judged.ok()) retirement_.Add(record);
    Follow(CheckpointInserted{upload, record, digest, judged}, nullptr);
  });
}

void ControlLoop::Do(const RaiseTerm& action) {
  commits_.Write(action, [this, outcome = outcome_](const Status& status, const StoreWrite& write) {
    // Two workers asked for it, and it was raised for the first one.
    if (absl::IsFailedPrecondition(status)) return;
    outcome_ = outcome;
    if (!Judge(status, "raise the term").ok()) return;
    Follow(TermRaised{std::get<RaiseTerm>(write).term}, nullptr);
  });
}

void ControlLoop::Do(const SaveJob& action) {
  commits_.Write(action, [this, outcome = outcome_](const Status& status, const StoreWrite& write) {
    outcome_ = outcome;
    OnSaved(std::get<SaveJob>(write).record, status);
  });
}

void ControlLoop::OnSaved(const JobRecord& record, const Status& status) {
  const std::string& id = record.id();
  if (!Judge(status, "save " + id).ok()) {
    unsaved_[id] = record;
    return;
  }
  unsaved_.erase(id);
  if (auto view = withheld_.extract(id)) hands_.board->Publish(std::move(view.mapped()));
}

// What could not be written goes with the next, or is tried again.
void ControlLoop::Do(const SaveMetrics& action) {
  SaveMetrics save{action.job_id, {}};
  if (auto unsaved = unsaved_metrics_.extract(action.job_id)) save.batch = unsaved.mapped();
  save.batch.Append(action.batch);
  commits_.Write(std::move(save), [this](const Status& status, const StoreWrite& write) {
    OnMetricsSaved(std::get<SaveMetrics>(write), status);
  });
}

// Nobody's answer depends on it. Behind one that failed it is written again, in their order.
void ControlLoop::OnMetricsSaved(const SaveMetrics& saved, const Status& status) {
  outcome_ = std::make_shared<Outcome>();
  const bool stored = Judge(status, "save the metrics of " + saved.job_id).ok();
  if (stored && !unsaved_metrics_.contains(saved.job_id)) return;
  unsaved_metrics_[saved.job_id].Append(saved.batch);
}

void ControlLoop::Do(const SaveDrain& action) {
  commits_.Write(action, [this, outcome = outcome_](const Status& status, const StoreWrite& write) {
    outcome_ = outcome;
    (void)Judge(status, "save the drain of " + std::get<SaveDrain>(write).record.worker);
  });
}

// ---- what may wait for them ---------------------------------------------------------------------

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

void ControlLoop::Do(const RemoveCheckpoint& action) { retirement_.Retire(action.record); }

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
  if (!outcome_->failed || !refusal.status.ok()) return refusal;
  return {Error(absl::StatusCode::kUnavailable,
                "the coordinator cannot write its store; see its log, then try again"),
          "STORE_UNAVAILABLE"};
}

void ControlLoop::Do(const Reply& action) {
  if (!asked_) return;
  Reply reply = action;
  reply.refusal = IfStored(action.refusal);
  asked_->done(reply);
}

void ControlLoop::Do(const Note& action) { spdlog::info("{} {}", action.subject, action.text); }

}  // namespace ringmaster::coordinator
