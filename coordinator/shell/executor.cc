#include "coordinator/shell/executor.h"

#include <type_traits>
#include <variant>

#include "common/planted_bug.h"

namespace ringmaster::coordinator {
namespace {

constexpr std::chrono::milliseconds kStorePause{500};  // between two tries of one that fails

// For GroupCommit::ThenShow; empty: it is no view.
template <typename A>
std::string WhatIsShown(const A& action) {
  if constexpr (std::is_same_v<A, PublishJob>) return action.view.status.job_id();
  return std::is_same_v<A, PublishWorkers> ? "workers" : "";
}

}  // namespace

Executor::Executor(const Options& options, const Seams& seams)
    : seams_(seams), logic_(options), commits_(seams.committer) {}

Now Executor::ReadClocks(std::optional<Clock::Time> came) const {
  using std::chrono::duration_cast;
  using std::chrono::milliseconds;
  const Clock::Moment moment = seams_.clock->Read();
  Now read;
  read.steady = duration_cast<milliseconds>(moment.steady);
  read.unix_ms = moment.unix_ms;
  if (came) read.waited = duration_cast<milliseconds>(moment.steady - *came);
  return read;
}

void Executor::Restore(const Restored& restored) {
  outcome_ = std::make_shared<Outcome>();
  CarryOut(logic_.Restore(restored, ReadClocks()));
  commits_.Begin();
}

void Executor::Handle(const Event& event, const Arrival& arrival) {
  outcome_ = std::make_shared<Outcome>();
  CarryOut(logic_.Step(event, ReadClocks(arrival.came), arrival.next));
  commits_.Begin();
}

void Executor::Ask(const Event& event, const Arrival& arrival,
                   std::function<void(const Reply&)> done) {
  const auto asked = std::make_shared<Asked>(Asked{std::move(done)});
  asked_ = asked;
  Handle(event, arrival);
  asked_ = nullptr;
  if (asked->answered) return;
  asked->done({{Internal("bug: the event was not answered"), "INTERNAL"}, "", false});
}

void Executor::Follow(const Event& event, const std::shared_ptr<Asked>& asked) {
  outcome_ = std::make_shared<Outcome>();
  asked_ = asked;
  CarryOut(logic_.Step(event, ReadClocks(),
                       commits_.goes_on() ? Logic::Next::kComes : Logic::Next::kMayWait));
  asked_ = nullptr;
}

void Executor::CarryOut(Actions actions) {
  for (Action& action : actions) {
    std::visit([this](auto& a) { CarryOutOne(a); }, action);
  }
}

template <typename A>
void Executor::CarryOutOne(A& action) {
  constexpr bool kAnswers =
      std::is_same_v<A, Reply> || std::is_same_v<A, InsertJob> || std::is_same_v<A, RemoveJobs>;
  if (kAnswers && asked_) asked_->answered = true;
  if (RING_PLANTED(kAnswersBeforeCommit) && std::is_same_v<A, Reply>) return Do(action);
  if (RING_PLANTED(kSendsOvertake) && std::is_same_v<A, Send>) return Do(action);
  if (kIsWrite<A> || std::is_same_v<A, Note> || commits_.idle()) return Do(action);
  const std::string shows = WhatIsShown(action);
  std::function<void()> effect = [this, action = std::move(action), outcome = outcome_,
                                  asked = asked_] {
    outcome_ = outcome;
    asked_ = asked;
    Do(action);
    asked_ = nullptr;
  };
  if (shows.empty()) return commits_.Then(std::move(effect));
  commits_.ThenShow(shows, std::move(effect));
}

void Executor::OnTick(Clock::Time oldest) {
  SaveUnsaved();
  if (RING_PLANTED(kForgetsSearches)) put_off_.clear();
  for (const FindCheckpoint& search : std::exchange(put_off_, {})) Do(search);
  Handle(Tick{}, {oldest, Logic::Next::kMayWait});
}

// What is shown must be stored. When all of it is, one more write that changes nothing says that
// the trouble is over.
void Executor::SaveUnsaved() {
  if (saving_unsaved_ || !trouble_.lasts()) return;
  if (trouble_.Recent(ReadClocks().steady, kStorePause)) return;
  saving_unsaved_ = true;
  outcome_ = std::make_shared<Outcome>();
  // A newer write of the same job may be on its way: behind it this one would be the last word.
  for (const auto& [id, save] : unsaved_) {
    if (!saving_.contains(id) && !removing_.contains(id)) Do(save);
  }
  for (auto& [id, batch] : std::exchange(unsaved_metrics_, {})) {
    if (saving_metrics_.contains(id) || removing_.contains(id)) {
      unsaved_metrics_[id] = std::move(batch);
    } else {
      Do(SaveMetrics{id, std::move(batch)});
    }
  }
  commits_.Write(WriteNothing(), [this](const Status& status, const StoreWrite&) {
    outcome_ = std::make_shared<Outcome>();
    saving_unsaved_ = false;
    if (!Judge(status, "try it").ok() || !unsaved_.empty() || !unsaved_metrics_.empty()) return;
    const auto lasted = trouble_.End(ReadClocks().steady);
    seams_.log->Write(Severity::kWarning,
                      fmt::format("store: it can be written again, after {} ms", lasted.count()));
    seams_.board->NoteStoreTrouble("");
  });
  commits_.Begin();
}

Status Executor::Judge(const Status& status, const std::string& what) {
  if (status.ok()) return status;
  outcome_->failed = true;
  const std::string reason = Message(status);
  if (trouble_.Failed(status, ReadClocks().steady)) {
    seams_.log->Write(Severity::kError,
                      fmt::format("store: {}: {}; nothing is acknowledged until it can be written",
                                  what, reason));
    seams_.board->NoteStoreTrouble(fmt::format(
        "the coordinator cannot write its store ({}), so that what it shows may be old and nothing "
        "is acknowledged: make room on the disk of its --data-dir, or look at its log",
        reason));
  }
  return Error(absl::StatusCode::kUnavailable, "the coordinator cannot write its store: {}",
               reason);
}

// ---- writes -------------------------------------------------------------------------------------

void Executor::Do(const InsertJob& action) {
  commits_.Write(action, [this, asked = asked_, outcome = outcome_](const Status& status,
                                                                    const StoreWrite& write) {
    outcome_ = outcome;
    const JobRecord& record = std::get<InsertJob>(write).record;
    Follow(JobInserted{record, Judge(status, "insert " + record.id())}, asked);
  });
}

void Executor::Do(const InsertCheckpoint& action) {
  commits_.Write(action, [this, outcome = outcome_](const Status& status, const StoreWrite& write) {
    outcome_ = outcome;
    const auto& [upload, record, digest] = std::get<InsertCheckpoint>(write);
    Follow(
        CheckpointInserted{upload, record, digest, Judge(status, "checkpoint of " + record.job_id)},
        nullptr);
  });
}

void Executor::Do(const RaiseTerm& action) {
  commits_.Write(action, [this, outcome = outcome_](const Status& status, const StoreWrite& write) {
    // Two workers asked for it, and it was raised for the first one.
    if (absl::IsFailedPrecondition(status)) return;
    outcome_ = outcome;
    if (!Judge(status, "raise the term").ok()) return;
    Follow(TermRaised{std::get<RaiseTerm>(write).term}, nullptr);
  });
}

void Executor::Do(const RemoveCheckpoint& action) {
  commits_.Write(action, [this, outcome = outcome_](const Status& status, const StoreWrite& write) {
    outcome_ = outcome;
    const CheckpointRecord& record = std::get<RemoveCheckpoint>(write).record;
    Follow(CheckpointRemoved{record, Judge(status, "forget a checkpoint of " + record.job_id)},
           nullptr);
  });
}

// Behind it nothing of these jobs is written: a change that could not be, before, would bring them
// back.
void Executor::Do(const RemoveJobs& action) {
  for (const RemovedJob& job : action.jobs) removing_.insert(job.job_id);
  commits_.Write(action, [this, asked = asked_, outcome = outcome_](const Status& status,
                                                                    const StoreWrite& write) {
    outcome_ = outcome;
    const std::vector<RemovedJob>& jobs = std::get<RemoveJobs>(write).jobs;
    for (const RemovedJob& job : jobs) {
      removing_.erase(job.job_id);
      if (!status.ok()) continue;
      unsaved_.erase(job.job_id);
      withheld_.erase(job.job_id);
      unsaved_metrics_.erase(job.job_id);
    }
    Follow(JobsRemoved{jobs, Judge(status, "remove " + jobs.front().job_id)}, asked);
  });
}

void Executor::Do(const SaveJob& action) {
  saving_.insert(action.record.id());
  commits_.Write(action, [this, outcome = outcome_](const Status& status, const StoreWrite& write) {
    outcome_ = outcome;
    OnSaved(std::get<SaveJob>(write), status);
  });
}

void Executor::OnSaved(const SaveJob& save, const Status& status) {
  const std::string& id = save.record.id();
  saving_.erase(saving_.find(id));
  const auto older = unsaved_.find(id);
  const bool asks = save.asks || (older != unsaved_.end() && older->second.asks);
  if (!Judge(status, "save " + id).ok()) {
    if (!RING_PLANTED(kForgetsUnsaved)) unsaved_[id] = {save.record, asks};
    return;
  }
  unsaved_.erase(id);
  if (RING_PLANTED(kForgetsWithheld)) withheld_.erase(id);
  if (auto view = withheld_.extract(id)) seams_.board->Publish(std::move(view.mapped()));
  if (asks) Follow(JobSaved{save.record}, nullptr);
}

// What could not be written goes with the next, or is tried again.
void Executor::Do(const SaveMetrics& action) {
  SaveMetrics save{action.job_id, {}};
  if (auto unsaved = unsaved_metrics_.extract(action.job_id)) save.batch = unsaved.mapped();
  save.batch.Append(action.batch);
  saving_metrics_.insert(action.job_id);
  commits_.Write(std::move(save), [this](const Status& status, const StoreWrite& write) {
    OnMetricsSaved(std::get<SaveMetrics>(write), status);
  });
}

// Nobody's answer depends on it. Behind one that failed it is written again, in their order.
void Executor::OnMetricsSaved(const SaveMetrics& saved, const Status& status) {
  outcome_ = std::make_shared<Outcome>();
  saving_metrics_.erase(saving_metrics_.find(saved.job_id));
  const bool stored = Judge(status, "save the metrics of " + saved.job_id).ok();
  if (stored && !unsaved_metrics_.contains(saved.job_id)) return;
  unsaved_metrics_[saved.job_id].Append(saved.batch);
}

void Executor::Do(const SaveDrain& action) {
  commits_.Write(action, [this, outcome = outcome_](const Status& status, const StoreWrite& write) {
    outcome_ = outcome;
    (void)Judge(status, "save the drain of " + std::get<SaveDrain>(write).record.worker);
  });
}

// ---- what waits for them ------------------------------------------------------------------------

void Executor::Do(const EndUpload& action) {
  seams_.streams->End(EndUpload{action.upload, IfStored(action.refusal)});
}

void Executor::Do(const ForgetJob& action) {
  seams_.board->Forget(action.job_id);  // first: lines that come later are of no job
  seams_.disk->RemoveJob(action.job_id);
}

void Executor::Do(const PublishJob& action) {
  const std::string& id = action.view.status.job_id();
  if (unsaved_.contains(id) && !RING_PLANTED(kShowsUnstored)) {
    withheld_[id] = action.view;
  } else {
    seams_.board->Publish(action.view);
  }
}

Refusal Executor::IfStored(const Refusal& refusal) const {
  const bool stored = !outcome_->failed || RING_PLANTED(kAcknowledgesUnstored);
  if (stored || !refusal.status.ok()) return refusal;
  return {Error(absl::StatusCode::kUnavailable,
                "the coordinator cannot write its store; see its log, then try again"),
          "STORE_UNAVAILABLE"};
}

void Executor::Do(const Reply& action) {
  if (!asked_) return;
  Reply reply = action;
  reply.refusal = IfStored(action.refusal);
  asked_->done(reply);
}

void Executor::Do(const Note& action) {
  seams_.log->Write(Severity::kInfo, fmt::format("{} {}", action.subject, action.text));
}

}  // namespace ringmaster::coordinator
