// While the ring cannot run: too few workers, or nobody who is there has the newest state. Also
// the way out of a restart, and of a state that only leaves.
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "common/job/class_map.h"
#include "coordinator/logic/run/run.h"

namespace ringmaster::coordinator {
namespace {

constexpr size_t kMostNamed = 4;  // workers in a reason

}  // namespace

void Run::StepWaiting(Now now, Actions& actions) {
  if (!started_ && LacksWorkers()) return;
  if (SaveBeforeLeaving(now, actions)) return;
  ReleaseLeavers();
  LiftBars(now, actions);
  const StateCustody::Where where = custody_.Judge(members_, committed_, MayJoin(now), now);
  const bool enough = EnoughReady(now);
  if (enough && where == StateCustody::Where::kHere) {
    BeginFence(FenceWhen::kNow, last_loss_.empty() ? "enough workers are ready" : last_loss_, now,
               actions);
    return;
  }
  state_ = v1::JOB_STATE_WAITING;
  if (!enough) {
    reason_ = LacksReason(now);
  } else if (where == StateCustody::Where::kMayReturn) {
    reason_ = fmt::format("waits {} ms for a worker that holds the state of step {} to come back",
                          options_.holder_wait.count(), committed_);
  } else {
    reason_ = fmt::format("nobody holds the state of step {}: looks for a checkpoint", committed_);
    Become(Phase::kSearching, now);
  }
}

// The search has no limit: a slow or full disk is no proof that nothing is there. Who comes back
// with the newest state ends it.
void Run::StepSearching(Now now) {
  if (started_ && EnoughReady(now) && NewestIsHere(now)) Become(Phase::kWaiting, now);
}

std::string Run::LacksReason(Now now) const {
  const size_t least = std::max<size_t>(min_, 1), have = CountEligible(now);
  size_t others = 0;
  std::string names;
  for (const Member& member : members_) {
    if (member.role == Role::kReady || ++others > kMostNamed) continue;
    names += (names.empty() ? "" : ", ") + member.name();
    if (!member.phase.empty()) names += fmt::format(" (in {})", member.phase);
  }
  if (others > kMostNamed) names += fmt::format(" and {} more", others - kMostNamed);
  std::string text = fmt::format("needs {} worker{}, {} {} ready", least, least == 1 ? "" : "s",
                                 have, have == 1 ? "is" : "are");
  if (others > 0) {
    text += fmt::format(" and {} {} on the way: {}", others, others == 1 ? "is" : "are", names);
  }
  if (const std::vector<std::string> missing = MissingReady(now);
      !missing.empty() && map().classes_size() > 1) {
    text += fmt::format("; of its class map {} has no worker", fmt::join(missing, " and "));
  }
  text += fmt::format("; it goes on at step {} by itself", committed_);
  if (!last_loss_.empty()) text += ". " + last_loss_;
  return text;
}

std::vector<std::string> Run::Advise(Now now) const {
  if (phase_ == Phase::kRunning) return AdviseFinishing();
  if (phase_ == Phase::kSaving) {
    return {
        "make room on the disk of the coordinator's checkpoints, if it is full: its log says so",
        fmt::format("or keep the worker: `ringctl drain {} --resume`", custody_.saver())};
  }
  if (phase_ == Phase::kSearching) {
    return {
        "wait: it looks at the checkpoints as long as it takes; the coordinator's log says what "
        "is wrong with its disk"};
  }
  const std::string known = "wait: workers that were lost join it by themselves when they are back";
  if (EnoughReady(now)) {
    return {
        fmt::format("start a worker that has the state of step {} again, within {} ms, or wait: "
                    "the job goes back to its newest checkpoint then",
                    committed_, options_.holder_wait.count())};
  }
  std::vector<std::string> advice;
  size_t coming = 0;
  for (const Member& member : members_) {
    if (member.role == Role::kReady || member.leaving || ++coming > 1) continue;
    advice.push_back(
        fmt::format("wait: {} is on its way; `ringctl logs {} --worker {}` shows what "
                    "it does",
                    member.name(), job_id_, member.name()));
  }
  const std::vector<std::string> missing = MissingReady(now);
  if (!missing.empty() && map().classes_size() > 1) {
    advice.push_back(fmt::format("start a worker of {} (`ringctl workers` shows classes)",
                                 fmt::join(missing, ", and one of ")));
    advice.push_back(known);
    if (!MayFallBack()) {
      advice.emplace_back(
          "submit it again with workers.mix fallback: others would take the shards of a class that "
          "is lost, as another result");
    }
    return advice;
  }
  const size_t least = std::max<size_t>(min_, 1), have = CountEligible(now);
  const size_t more = least - std::min(least, have);
  const auto like =
      std::ranges::find_if(members_, [&](const Member& member) { return Eligible(member, now); });
  if (more > 0) {
    advice.push_back(fmt::format(
        "start {} more worker{} {}", more, more == 1 ? "" : "s",
        like != members_.end() ? "like " + like->name() : "of " + map().classes(0).class_()));
  }
  advice.push_back(known);
  return advice;
}

Run::Lacking Run::FindLacking(Now now) const {
  if (phase_ != Phase::kWaiting || !resolved_ || EnoughReady(now)) return {};
  const std::vector<std::string> missing = MissingReady(now);
  if (!missing.empty() && map().classes_size() > 1) {
    return {missing.size(), {missing.begin(), missing.end()}};
  }
  const size_t least = std::max<size_t>(min_, 1), have = CountEligible(now);
  const auto coming = static_cast<size_t>(std::ranges::count_if(members_, [](const Member& member) {
    return member.role != Role::kReady && !member.leaving;
  }));
  Lacking lacking{least - std::min(least, have + coming), {}};
  for (const v1::MappedClass& each : map().classes()) lacking.classes.insert(each.class_());
  return lacking;
}

std::vector<std::string> Run::AdviseFinishing() const {
  const uint64_t step = custody_.kept_step();
  const std::string kept = step == 0 ? std::string("without any checkpoint")
                                     : fmt::format("with the checkpoint of step {}", step);
  return {
      "make room on the disk of the coordinator's checkpoints, if it is full: its log says so; "
      "the checkpoint is sent again every few seconds",
      fmt::format("`ringctl logs {}` shows why it was not taken", job_id_),
      fmt::format("`ringctl cancel {}` ends the job {}: what came after it is lost", job_id_,
                  kept)};
}

bool Run::NewestIsHere(Now now) const {
  return custody_.IsHere(members_, committed_, MayJoin(now));
}

// Who was left out of a ring, and alone is left with the newest state, need not wait any longer.
void Run::LiftBars(Now now, Actions& actions) {
  if (custody_.settles_for_less() || NewestIsHere(now)) return;
  for (const Member& member : members_) {
    const bool holds = !member.leaving && custody_.Holds(member, committed_);
    if (!holds || !Barred(member.attach, now)) continue;
    readmission_.Lift(member.name(), now);
    actions.push_back(Note{"job=" + job_id_,
                           fmt::format("{} may join again at once: nobody else holds the state of "
                                       "step {}",
                                       member.called(), committed_)});
  }
}

// ---- leaving ------------------------------------------------------------------------------------

// True: the only holder of the newest state keeps it until it is stored.
bool Run::SaveBeforeLeaving(Now now, Actions& actions) {
  const auto leaver = custody_.FindLeaver(members_, committed_, [&](const Member& member) {
    return !member.owes && !fence_.Silent(member, now);
  });
  if (!leaver) return false;
  state_ = v1::JOB_STATE_WAITING;
  if (!leaver->waits) {
    AskToSave(*leaver->holder, now, actions);
  } else {
    reason_ = fmt::format(
        "{} leaves, and nobody else has its state of step {}: waits for it to "
        "answer",
        leaver->holder->called(), leaver->holder->applied);
  }
  return true;
}

void Run::AskToSave(const Member& holder, Now now, Actions& actions) {
  v1::CoordinatorMessage message;
  message.mutable_save_state()->set_job_id(job_id_);
  Send(holder, message, actions);
  custody_.BeginSave(holder.name());
  reason_ = fmt::format("{} leaves, and writes the state of step {} before, as nobody else has it",
                        holder.called(), holder.holding.applied);
  Become(Phase::kSaving, now);
}

void Run::StepSaving(Now now, Actions& actions) {
  if (!custody_.MustSave(members_, committed_, MayJoin(now))) {
    return Become(Phase::kWaiting, now);
  }
  if (limit_.count() == 0 || now.steady < deadline_) return;
  AskToSave(*Find(custody_.saver()), now, actions);
}

void Run::OnSaved(Member& from, const v1::StateSaved& said, Now now) {
  if (phase_ != Phase::kSaving || from.name() != custody_.saver()) return;
  if (!said.error().empty() && said.applied() >= custody_.NeededStep(committed_)) {
    const StateCustody::Pause pause = custody_.FailSave();
    reason_ = fmt::format(
        "{} leaves, and its state of step {}, which nobody else has, could not "
        "be saved: {}; it keeps it, and tries again after {} ms",
        from.called(), from.holding.applied, said.error(), pause.lasts.count());
    if (pause.first) Tell(event_type::kWorkerLeft, Severity::kWarning, reason_, from.name());
    return GiveTime(pause.lasts, now);
  }
  custody_.WaitUntil(now.steady);  // it does not come back with it
  ReleaseLeavers();
  Become(Phase::kWaiting, now);
}

void Run::ReleaseLeavers() {
  std::vector<std::string> names;
  for (const Member& member : members_) {
    if (member.leaving) names.push_back(member.name());
  }
  for (const std::string& name : names) {
    const Member& member = *Find(name);
    if (member.role == Role::kReady) {
      last_loss_ = fmt::format("{} left at step {}{}{}", member.called(), member.holding.applied,
                               member.leaves_why.empty() ? "" : ": ", member.leaves_why);
      Tell(event_type::kWorkerLeft, Severity::kInfo, last_loss_, name);
    }
    left_.insert(name);
    LetGo(name, false, "it leaves");
  }
}

// ---- after a restart ----------------------------------------------------------------------------

void Run::StepAdopting(Now now, Actions& actions) {
  bool same = true, all_known = true;
  std::string missing;
  for (const Place& place : members_.ring()) {
    const Member* member = At(place);
    same = same && member != nullptr && member->holding.started == generation_;
    if (member != nullptr) continue;
    all_known = all_known && !custody_.Misses(place.name);
    missing += (missing.empty() ? "" : ", ") + place.name;
  }
  if (same) {  // the next one may have been stored, with another map, and nobody told
    same = std::ranges::all_of(members_.ring(), [this](const Place& place) {
      return job::TextOf(*At(place)->class_maps) == asked_maps_;
    });
  }
  if (same) return TakeOver(now);
  reason_ = missing.empty()
                ? "the coordinator restarted: the ring is formed again"
                : fmt::format("the coordinator restarted: waits for {} to attach again", missing);
  if (!all_known && now.steady < deadline_) return;
  for (const Place& place : members_.ring()) {
    if (At(place) != nullptr) continue;
    last_loss_ = fmt::format(
        "{} was lost: it did not attach again with its state after the "
        "coordinator restarted",
        Called(place.name, place.host));
    Tell(event_type::kWorkerLost, Severity::kWarning, last_loss_, place.name);
  }
  custody_.WaitUntil(now.steady);  // they had their time
  // Those who are back may still run.
  BeginFence(
      FenceWhen::kNow,
      last_loss_.empty() ? "the coordinator restarted while the ring was formed" : last_loss_, now,
      actions);
}

// The generation runs on as it is.
void Run::TakeOver(Now now) {
  std::string names;
  for (const Place& place : members_.ring()) names += (names.empty() ? "" : ", ") + place.name;
  Tell(event_type::kAdopted, Severity::kInfo,
       fmt::format("generation {} runs on after the coordinator restarted: {} attached again",
                   generation_.ToString(), names),
       kJobSubject);
  for (Member& member : members_) {
    member.joined = true;
    member.idle_since.reset();
  }
  custody_.OnRing();
  started_at_ = now.steady;
  RaiseCommitted();
  Become(Phase::kRunning, now);
}

// ---- checkpoints --------------------------------------------------------------------------------

bool Run::RestoreAgain(const std::string& why, Now now, Actions& actions) {
  const bool joined =
      std::any_of(members_.begin(), members_.end(), [](const Member& m) { return m.joined; });
  if (phase_ != Phase::kRunning || custody_.found() == nullptr || joined) return false;
  const std::string whose = custody_.found()->job_id;
  if (!custody_.FailRestore()) return false;
  last_loss_ = fmt::format("the checkpoint of step {} of {} could not be restored: {}", start_step_,
                           whose, why);
  Tell(event_type::kCheckpointSkipped, Severity::kWarning, last_loss_, kJobSubject);
  BeginFence(FenceWhen::kNow, last_loss_, now, actions);
  return true;
}

Fault Run::OnCheckpointFound(const CheckpointFound& event, Now now) {
  if (phase_ != Phase::kSearching) return {};
  for (const std::string& skipped : event.skipped) {
    Tell(event_type::kCheckpointSkipped, Severity::kWarning, skipped, kJobSubject);
  }
  if (!event.found && (!started_ || continues_)) {
    const char* const does = continues_ ? "continues" : "resumes";
    return {Cause::kNoCheckpoint,
            event.skipped.empty()
                ? fmt::format("the job that it {} has no checkpoint any more", does)
                : fmt::format("no checkpoint of the job that it {} verifies: {}", does,
                              event.skipped.front()),
            ""};
  }
  custody_.OnFound(event, job_id_);
  if (!started_) {
    committed_ = event.found->ref.step();
    Tell(
        event_type::kResumed, Severity::kInfo,
        fmt::format("begins at step {} with the checkpoint of {}", committed_, event.found->job_id),
        kJobSubject);
  }
  Become(Phase::kWaiting, now);
  return {};
}

}  // namespace ringmaster::coordinator
