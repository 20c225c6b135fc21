// What members say while the ring runs, whether the job is done, and what follows when a state is
// not what it should be.
#include <algorithm>
#include <cmath>
#include <utility>

#include "common/job/metrics.h"
#include "common/job/shards.h"
#include "common/planted_bug.h"
#include "coordinator/logic/run/agreement.h"
#include "coordinator/logic/run/run.h"

namespace ringmaster::coordinator {
namespace {

constexpr int kMaxDigests = 8;  // in a report: fleet.proto
constexpr size_t kDigestBytes = 64;
constexpr size_t kMaxPhaseBytes = 32;
constexpr std::chrono::milliseconds kFetchShown{1'000};
constexpr size_t kMaxReasonBytes = 500;

// What a graph can have of outputs, in each split, and what is minimized.
constexpr int kMaxMetrics = 3 * 65;
constexpr size_t kMaxMetricName = 64;
constexpr int kMaxLasting = 320;  // in a report: fleet.proto

bool IsMetric(const v1::Metric& metric) {
  const auto allowed = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
  };
  return v1::SampleSplit_IsValid(metric.split()) &&
         metric.split() != v1::SAMPLE_SPLIT_UNSPECIFIED && !metric.name().empty() &&
         metric.name().size() <= kMaxMetricName &&
         std::all_of(metric.name().begin(), metric.name().end(), allowed) &&
         std::isfinite(metric.value());
}

// They go to whoever watches, and into the store.
Fault CheckMetrics(const Member& from, const v1::Progress& said, const v1::ResultSpec& spec) {
  for (const auto& [sent, most] :
       {std::pair(said.metrics_size(), kMaxMetrics), std::pair(said.lasting_size(), kMaxLasting)}) {
    if (sent <= most) continue;
    return Violation(from,
                     fmt::format("sent {} metrics in a report, expected at most {}", sent, most));
  }
  if (!std::all_of(said.metrics().begin(), said.metrics().end(), IsMetric) ||
      !std::all_of(said.lasting().begin(), said.lasting().end(), IsMetric)) {
    return Violation(from, "sent a metric without a split or a name, or that is not finite");
  }
  for (const v1::Metric& metric : said.lasting()) {
    const bool lasts =
        job::EvaluatesAfter(metric.step(), spec.evaluation_steps(), spec.total_steps()) ||
        job::EvaluatesAfter(metric.step(), spec.steps_per_epoch(), spec.total_steps());
    if (metric.step() <= said.applied() && lasts) continue;
    return Violation(
        from, fmt::format(
                  "sent a metric of the end of an epoch at step {}; an epoch has {} steps, an "
                  "evaluation follows every {}, and it is at step {}",
                  metric.step(), spec.steps_per_epoch(), spec.evaluation_steps(), said.applied()));
  }
  return {};
}

}  // namespace

void Run::OnHeard(const std::string& worker, Now now) {
  if (Member* member = Find(worker); member != nullptr) {
    member->last_heard = std::max(member->last_heard, now.heard);
  }
}

void Run::OnJoined(Member& from, const v1::Joined& said, Now now) {
  if (phase_ != Phase::kRunning || !IsCurrent(said.generation()) || !InRing(from.name())) return;
  CatchUp();  // as long as it did not count
  from.joined = true;
  from.applied = std::max(from.applied, start_step_);
  // It has the state that the ring is at, and said before how far that was.
  if (std::exchange(from.follows, false)) from.applied = std::max(from.applied, from.beat);
  RaiseCommitted();
  if (!report_.Forms(generation_)) return;
  const bool all =
      std::all_of(members_.ring().begin(), members_.ring().end(), [&](const Place& place) {
        const Member* member = At(place);
        return member != nullptr && (member->joined || member->follows);
      });
  if (all) report_.OnFormed(generation_, now.steady - started_at_);
}

Fault Run::OnProgress(Member& from, const v1::Progress& said, Now now) {
  const bool runs =
      phase_ == Phase::kRunning || phase_ == Phase::kFencing || phase_ == Phase::kAdopting;
  if (!IsCurrent(said.generation()) || !InRing(from.name()) || !resolved_) return {};
  // A fence came before its Joined: what it holds by now its acknowledgement says.
  if (from.follows) return {};
  const v1::ResultSpec& spec = resolved_->result();
  // What members of a job that is cancelled say last: nobody is accused any more.
  const bool possible = said.applied() <= spec.total_steps();
  if (phase_ == Phase::kStopping && possible && CheckMetrics(from, said, spec).ok()) {
    report_.OnLastProgress(said, spec.steps_per_epoch(), now);
  }
  if (!runs) return {};
  if (!possible) {
    return Violation(from, fmt::format("says that it holds step {}, but the job has {} steps",
                                       said.applied(), spec.total_steps()));
  }
  if (Fault fault = CheckDigests(from, said.applied(), said.digests()); !fault.ok()) return fault;
  if (Fault fault = CheckMetrics(from, said, spec); !fault.ok()) return fault;
  report_.OnProgress(said, spec.steps_per_epoch(), now);
  unsettled_ = unsettled_ || !from.joined || phase_ != Phase::kRunning || disagreement_ ||
               !phases_.settled();
  if (said.applied() > from.applied) {
    OnHeartbeat(from, {}, now);
    if (!phases_.settled()) phases_.Finish(from.name(), now);
  }
  from.joined = true;
  from.progress = said;
  from.applied = std::max(from.applied, said.applied());
  MeasurePace(from);
  behind_ = true;
  return {};
}

void Run::CatchUp() {
  if (std::exchange(behind_, false)) RaiseCommitted();
}

// Who follows holds nothing of it yet, and lacks nothing that the others need to go on.
void Run::RaiseCommitted() {
  const Member* lowest = nullptr;
  const size_t again = RING_PLANTED(kCubicDecisions) ? members_.ring().size() : 0;
  for (size_t i = 0; i < again * again * again; ++i) (void)At(members_.ring().front());
  for (const Place& place : members_.ring()) {
    const Member* member = At(place);
    if (member == nullptr) return;
    if (member->follows) continue;
    if (lowest == nullptr || member->applied < lowest->applied) lowest = member;
  }
  if (lowest == nullptr) return;
  committed_ = std::max(committed_, lowest->applied);
  report_.CountSkipped(lowest->progress, lowest->applied);
}

uint64_t Run::EndStep() const {
  if (!AnyFinished()) return resolved_->result().total_steps();
  const auto finished = std::find_if(members_.begin(), members_.end(),
                                     [](const Member& m) { return m.finished.has_value(); });
  return finished->finished->applied();
}

// With `stop` the members know when; all of them at the same step.
bool Run::MayEndAt(uint64_t step) const {
  const bool stops = job::StopWatch(resolved_->result()).patience() > 0;
  if (!stops || AnyFinished()) return step == EndStep();
  return step > 0 && step <= resolved_->result().total_steps();
}

void Run::OnHeartbeat(Member& from, const v1::Heartbeat& said, Now now) {
  const bool due = !from.fetch || now.steady - from.fetch_heard >= kFetchShown;
  if (!said.has_data_fetch()) {
    from.fetch.reset();
  } else if (due) {
    from.fetch = Shown(said.data_fetch());
    from.fetch_heard = now.steady;
  }
  const bool worked = said.job_id().empty() || said.progress() != from.work;
  if (!said.job_id().empty()) {
    from.work = said.progress();
    if (IsCurrent(said.generation())) from.beat = said.applied();
    from.phase = said.phase().substr(0, kMaxPhaseBytes);
    from.watch.Observe(from.phase, from.work, now);
    // Between two steps it may be seen idle each time.
    if (from.phase != "idle" || worked) {
      from.idle_since.reset();
    } else if (!from.idle_since) {
      from.idle_since = now.steady;
    }
  }
  if (worked && phase_ == Phase::kRunning && !AnyFinished()) {
    deadline_ = now.steady + limit_;
  }
}

Fault Run::OnFinished(Member& from, const v1::JobFinished& said, Now now) {
  if (!IsCurrent(said.generation())) return {};
  if (phase_ == Phase::kStopping) OnStopped(from);
  if ((phase_ != Phase::kRunning && phase_ != Phase::kAdopting) || !InRing(from.name())) return {};
  if (Fault fault = CheckDigests(from, said.applied(), said.digests()); !fault.ok()) return fault;
  if (Fault fault = CheckDigest(from, said.applied(), said.digest()); !fault.ok()) return fault;
  if (!MayEndAt(said.applied())) {
    return Violation(from, fmt::format("says that it finished at step {}, but the job has {} steps",
                                       said.applied(), EndStep()));
  }
  if (phase_ == Phase::kRunning && !AnyFinished()) {
    GiveTime(options_.finish_patience, now);
  }
  if (!from.finished) ++finished_;
  from.finished = said;
  phases_.Finish(from.name(), now);
  // Its last steps were not skipped, as far as is known: a last Progress said so before this.
  from.progress.set_updates(from.progress.updates() + said.applied() - from.progress.applied());
  from.progress.set_applied(said.applied());
  from.applied = said.applied();
  RaiseCommitted();
  return {};
}

void Run::OnStopped(Member& from) {
  if (phase_ == Phase::kStopping) from.stopped = true;
}

void Run::OnDropped(const Member& from, const v1::CheckpointsDropped& said) {
  const std::string which = said.count() > 1 ? fmt::format("{} of the steps {} to {}", said.count(),
                                                           said.first_step(), said.last_step())
                                             : fmt::format("step {}", said.last_step());
  Tell(event_type::kCheckpointDropped, Severity::kWarning,
       fmt::format("{}: due, and not delivered, since training does not wait for it: {}", which,
                   said.reason().substr(0, kMaxReasonBytes)),
       from.name());
}

void Run::OnCheckpoint(const v1::CheckpointRef& ref, const std::string& digest, Actions& actions) {
  custody_.OnKept(ref, digest);
  v1::CoordinatorMessage message;
  message.mutable_checkpoint_kept()->set_job_id(job_id_);
  message.mutable_checkpoint_kept()->set_step(ref.step());
  for (const Member& member : members_) {
    if (member.role == Role::kReady) Send(member, message, actions);
  }
}

// The job is done when every member finished with the state that the last checkpoint holds.
Fault Run::CheckEnd(Now now) {
  if (RING_PLANTED(kSucceedsWithoutCheckpoint) && AnyFinished()) {
    Become(Phase::kDone, now);
    return {};
  }
  if (!resolved_ || !custody_.HasLast(EndStep())) return {};
  for (const Place& place : members_.ring()) {
    const Member* member = At(place);
    if (member == nullptr || !member->finished) return {};
  }
  for (const Place& place : members_.ring()) {
    if (EndStep() == 0) break;
    if (Fault fault = custody_.CheckLast(*At(place)); !fault.ok()) return fault;
  }
  Become(Phase::kDone, now);
  return {};
}

Fault Run::CheckDigest(const Member& from, uint64_t step, const std::string& digest) {
  if (digest.size() > kDigestBytes) {
    return Violation(from, fmt::format("sent a digest of {} bytes", digest.size()));
  }
  if (step == 0 && ClassesDraw()) return {};  // its class's own, until it has that of the first one
  const Status same = digests_.Add(step, from.name(), digest);
  if (!same.ok()) OnDisagreement(step, same);
  return {};
}

Fault Run::CheckDigests(const Member& from, uint64_t applied,
                        const google::protobuf::RepeatedPtrField<v1::StepDigest>& said) {
  if (said.size() > kMaxDigests) {
    return Violation(from, fmt::format("sent {} digests in a report, expected at most {}",
                                       said.size(), kMaxDigests));
  }
  for (const v1::StepDigest& each : said) {
    if (each.step() > applied) {
      return Violation(from, fmt::format("sent the digest of step {}, but holds that of step {}",
                                         each.step(), applied));
    }
    if (Fault fault = CheckDigest(from, each.step(), each.digest()); !fault.ok()) return fault;
  }
  return {};
}

// ---- states with wrong bits ---------------------------------------------------------------------
//
// A worker whose own state is not what it wrote, or whose digest is not that of the others. It is
// named and leaves the run; what may be made of its wrong bits goes, and the job goes back to the
// newest state that every member had reported. The second time in a job it fails.
//
// A worker looks at S(k) when it applies step k, and its gradients of that step may already be
// wrong: so states after k are spoilt on whoever has them, and those up to k are not. No checkpoint
// of a later step counts before every member said that it applied that step (FindBehind).

namespace {

constexpr uint32_t kMostStateFaults = 1;  // that a job survives

}  // namespace

std::string Run::FindBehind(const std::string& writer, uint64_t step,
                            const std::vector<SnapshotReport>& told) const {
  const bool runs =
      phase_ == Phase::kRunning || phase_ == Phase::kFencing || phase_ == Phase::kAdopting;
  // Holders of the state that a generation begins with acknowledged it.
  if (!runs || step <= start_step_) return "";
  for (const Place& place : members_.ring()) {
    const Member* member = At(place);
    if (member == nullptr || place.name == writer) continue;
    if (member->follows) continue;  // its state is in no sum
    // Progress may be held back for as long as no step ends; heartbeats are not.
    if (std::max(member->applied, member->beat) >= step) continue;
    const bool holds = std::ranges::any_of(told, [&](const SnapshotReport& report) {
      return report.worker == place.name && report.incarnation == place.incarnation;
    });
    if (holds) continue;
    return fmt::format("{} to say that it applied step {}", member->called(), step - 1);
  }
  return "";
}

Fault Run::OnStateFault(const Member& from, const v1::JobFailed& said, Now now, Actions& actions) {
  const std::string& name = from.name();
  if (!InRing(name) || !from.adds) {  // nobody has anything of its wrong bits
    if (InRing(name)) {
      disagreement_.reset();
      last_loss_ = fmt::format("{} left the ring: {}", from.called(), said.reason());
    }
    RefuseJoiner(name, said.reason(), now);
    return {};
  }
  const std::string reason =
      fmt::format("{} left the ring {}: {}", from.called(),
                  coordinator::At(said.step(), PhaseOf(from)), said.reason());
  if (disagreement_) disagreement_.reset();
  return LeaveFor({name}, said.step(), reason, now, actions);
}

// Those named leave; states after `good` go with them.
Fault Run::LeaveFor(const std::vector<std::string>& names, uint64_t good, const std::string& reason,
                    Now now, Actions& actions) {
  Tell(event_type::kStateFault, Severity::kError, reason, names.front());
  if (report_.CountStateFault() > kMostStateFaults) {
    return {Cause::kStateDiffers, reason + "; it is the second time in this job", names.front(),
            good};
  }
  last_loss_ = reason;
  spoilt_ = Spoilt{generation_, good};
  distrusted_ = good;
  for (const std::string& name : names) {
    if (const Member* member = Find(name); member != nullptr) {
      (void)readmission_.Bar(name, member->incarnation(), now);
      fence_.Forget(name);
      LetGo(name, false, reason);
    }
  }
  fence_.DropAccusation();
  if (phase_ == Phase::kRunning || fence_.at_boundary()) {
    BeginFence(FenceWhen::kNow, reason, now, actions);
  }
  return {};
}

bool Run::IsSpoilt(const GenerationId& ran, uint64_t applied) const {
  return spoilt_ && applied > spoilt_->step && ran <= spoilt_->generation;
}

// Of those who acknowledged: who has applied sums with wrong bits begins anew.
void Run::LeaveOutSpoilt(std::vector<std::string>& names) {
  for (const std::string& name : std::exchange(names, {})) {
    const Member& member = *Find(name);
    if (!IsSpoilt(member.ran, member.holding.applied)) {
      names.push_back(name);
      continue;
    }
    const std::string why =
        fmt::format("its state of step {} may have wrong bits of the worker that was named",
                    member.holding.applied);
    Tell(event_type::kWorkerLeft, Severity::kWarning,
         fmt::format("{} joins anew: {}", member.called(), why), name);
    left_.insert(name);
    LetGo(name, false, why);
  }
}

// ---- digests that differ ------------------------------------------------------------------------

void Run::OnDisagreement(uint64_t step, const Status& how) {
  if (disagreement_ && disagreement_->step <= step) return;
  const bool asked = disagreement_ && disagreement_->asked;
  disagreement_ = Disagreement{step, FaultOf(Cause::kStateDiffers, how), asked};
}

// Members of a ring are asked to look at what they hold; nobody else can be.
Fault Run::AskAboutDisagreement(Now now, Actions& actions) {
  if (!disagreement_ || disagreement_->asked || phase_ == Phase::kAdopting) return {};
  if (phase_ != Phase::kRunning && phase_ != Phase::kFencing) return disagreement_->fault;
  disagreement_->asked = true;
  BeginFence(FenceWhen::kNow, disagreement_->fault.reason, now, actions);
  return {};
}

// Everybody acknowledged, so what each holds is what it wrote: most of three or more are right.
Fault Run::SettleDisagreement(Now now, Actions& actions) {
  if (!disagreement_) return {};
  const Disagreement disagreement = *std::exchange(disagreement_, std::nullopt);
  const std::vector<std::string> named = digests_.Minority();
  const uint64_t good = std::max(start_step_, digests_.AgreedBefore(disagreement.step));
  if (named.empty()) return disagreement.fault;
  std::string who;
  for (const std::string& name : named) {
    const Member* member = Find(name);
    who += (who.empty() ? "" : ", ") + (member == nullptr ? Called(name, "") : member->called());
  }
  return LeaveFor(named, good,
                  fmt::format("{} left the ring: {}, and most members say the same as each other",
                              who, disagreement.fault.reason),
                  now, actions);
}

std::optional<uint64_t> Run::TakeDistrusted() { return std::exchange(distrusted_, std::nullopt); }

}  // namespace ringmaster::coordinator
