#include "coordinator/service/control_loop.h"

#include <spdlog/spdlog.h>

#include <memory>
#include <utility>
#include <variant>

#include "common/check.h"
#include "coordinator/service/checkpoint_check.h"

namespace ringmaster::coordinator {
namespace {

constexpr std::chrono::milliseconds kTick{50};
constexpr size_t kMaxEvents = 65'536;

Now ReadClocks() {
  using std::chrono::duration_cast;
  using std::chrono::milliseconds;
  return {duration_cast<milliseconds>(std::chrono::steady_clock::now().time_since_epoch()),
          duration_cast<milliseconds>(std::chrono::system_clock::now().time_since_epoch()).count()};
}

}  // namespace

ControlLoop::ControlLoop(const Options& options, const Hands& hands)
    : hands_(hands), logic_(options), loop_({"control", kMaxEvents, kTick, [this] { OnTick(); }}) {}

Status ControlLoop::Restore() {
  Restored restored;
  restored.term = hands_.store->term();
  RING_ASSIGN_OR_RETURN(restored.jobs, hands_.store->LoadJobs());
  RING_ASSIGN_OR_RETURN(restored.checkpoints, hands_.store->LoadCheckpoints());
  std::vector<std::string> known;
  for (const CheckpointRecord& checkpoint : restored.checkpoints) {
    known.push_back(checkpoint.ref.path());
  }
  RING_RETURN_IF_ERROR(hands_.checkpoints->Sweep(known));
  spdlog::info("term={} jobs={} checkpoints={}", restored.term, restored.jobs.size(), known.size());
  CarryOut(logic_.Restore(restored, ReadClocks()));
  return absl::OkStatus();
}

bool ControlLoop::Post(Event event, std::function<void()> done) {
  return loop_.Post([this, event = std::move(event), done = std::move(done)] {
    Handle(event);
    if (done) done();
  });
}

void ControlLoop::Ask(Event event, std::function<void(const Reply&)> done) {
  const bool posted = loop_.Post([this, event = std::move(event), done] {
    reply_ = {{Internal("bug: the event was not answered"), "INTERNAL"}, "", false};
    Handle(event);
    done(reply_);
  });
  if (posted) return;
  done({{Error(absl::StatusCode::kUnavailable,
               "the coordinator is stopping or overloaded; try "
               "again"),
         "UNAVAILABLE"},
        "",
        false});
}

void ControlLoop::Handle(const Event& event) {
  RING_CHECK(loop_.InLoop(), "events are handled on the control loop");
  write_failed_ = false;
  CarryOut(logic_.Step(event, ReadClocks()));
}

void ControlLoop::CarryOut(const Actions& actions) {
  for (const Action& action : actions) {
    std::visit([this](const auto& a) { Do(a); }, action);
  }
}

void ControlLoop::OnTick() {
  // Oldest debt first: what is shown must be stored.
  for (auto entry = unsaved_.begin(); entry != unsaved_.end();) {
    if (!hands_.store->SaveJob(entry->second).ok()) break;
    if (auto view = withheld_.extract(entry->first))
      hands_.board->Publish(std::move(view.mapped()));
    entry = unsaved_.erase(entry);
  }
  for (const FindCheckpoint& search : std::exchange(put_off_, {})) Do(search);
  Handle(Tick{});
}

Status ControlLoop::Write(const Status& status, const std::string& what) {
  if (status.ok()) return status;
  write_failed_ = true;
  spdlog::error("store: {}: {}", what, Message(status));
  return Error(absl::StatusCode::kUnavailable, "the coordinator cannot write its store: {}",
               Message(status));
}

void ControlLoop::Do(const Send& action) { hands_.sessions->Send(action.session, action.message); }

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
  CarryOut(logic_.Step(CheckpointInserted{action.record, action.digest, status}, ReadClocks()));
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
  std::vector<v1::CheckpointRef> refs;
  for (const CheckpointRecord& candidate : action.candidates) refs.push_back(candidate.ref);
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

void ControlLoop::Do(const RemoveCheckpoint& action) {
  const CheckpointRecord& record = action.record;
  if (!Write(hands_.store->RemoveCheckpoint(record), "forget a checkpoint").ok()) return;
  const bool posted = hands_.disk->Post([folder = hands_.checkpoints, path = record.ref.path()] {
    const Status status = folder->Remove(path);
    if (!status.ok()) spdlog::warn("checkpoint not removed: {}", Message(status));
  });
  if (!posted)
    spdlog::warn("checkpoint not removed: path={} the disk queue is full", record.ref.path());
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

void ControlLoop::Do(const Reply& action) {
  reply_ = action;
  if (!write_failed_ || !reply_.refusal.status.ok()) return;
  reply_.refusal = {Error(absl::StatusCode::kUnavailable,
                          "the coordinator cannot write its store; see its log, then try again"),
                    "STORE_UNAVAILABLE"};
}

void ControlLoop::Do(const Note& action) { spdlog::info("{} {}", action.subject, action.text); }

}  // namespace ringmaster::coordinator
