// What members report while the ring runs, and whether the job is done.
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
  from.joined = true;
  from.applied = std::max(from.applied, start_step_);
  RaiseCommitted();
  if (regroups_.empty() || FromProto(regroups_.back().generation()) != generation_) return;
  const bool all =
      std::all_of(members_.ring().begin(), members_.ring().end(), [&](const Place& place) {
        const Member* member = At(place);
        return member != nullptr && member->joined;
      });
  if (!all || regroups_.back().form_ms() > 0) return;
  const std::chrono::duration<double, std::milli> formed = now.steady - started_at_;
  regroups_.back().set_form_ms(std::max(1.0, formed.count()));  // 0 would mean: not yet
}

Fault Run::OnProgress(Member& from, const v1::Progress& said, Now now) {
  const bool runs =
      phase_ == Phase::kRunning || phase_ == Phase::kFencing || phase_ == Phase::kAdopting;
  if (!IsCurrent(said.generation()) || !InRing(from.name()) || !resolved_) return {};
  const v1::ResultSpec& spec = resolved_->result();
  // What members of a job that is cancelled say last: nobody is accused any more.
  const bool possible = said.applied() <= spec.total_steps();
  if (phase_ == Phase::kStopping && possible && CheckMetrics(from, said, spec).ok()) {
    history_.Add(said, spec.steps_per_epoch(), now);
  }
  if (!runs) return {};
  if (!possible) {
    return Violation(from, fmt::format("says that it holds step {}, but the job has {} steps",
                                       said.applied(), spec.total_steps()));
  }
  if (Fault fault = CheckDigests(from, said.applied(), said.digests()); !fault.ok()) return fault;
  if (Fault fault = CheckMetrics(from, said, spec); !fault.ok()) return fault;
  history_.Add(said, spec.steps_per_epoch(), now);
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
  if (said.applied() > newest_.applied()) newest_unix_ms_ = now.unix_ms;
  if (said.applied() >= newest_.applied()) newest_ = said;
  behind_ = true;
  return {};
}

void Run::CatchUp() {
  if (std::exchange(behind_, false)) RaiseCommitted();
}

void Run::RaiseCommitted() {
  const Member* lowest = nullptr;
  const size_t again = RING_PLANTED(kCubicDecisions) ? members_.ring().size() : 0;
  for (size_t i = 0; i < again * again * again; ++i) (void)At(members_.ring().front());
  for (const Place& place : members_.ring()) {
    const Member* member = At(place);
    if (member == nullptr) return;
    if (lowest == nullptr || member->applied < lowest->applied) lowest = member;
  }
  if (lowest == nullptr) return;
  committed_ = std::max(committed_, lowest->applied);
  const v1::Progress& progress = lowest->progress;
  if (progress.updates() > progress.applied() || progress.applied() != lowest->applied) return;
  skipped_ = std::max(
      skipped_, progress.has_loss_scale() ? progress.applied() - progress.updates() : uint64_t{0});
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

bool Run::HasLastCheckpoint() const {
  return EndStep() == 0 || (kept_step_ == EndStep() && !kept_manifest_.empty());
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
    Enter(Phase::kRunning, options_.finish_patience, now);
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
  if (ref.step() >= kept_step_) {
    kept_step_ = ref.step();
    kept_manifest_ = ref.sha256();
    kept_digest_ = digest;
  }
  // The one that was found may go now.
  if (restore_ && restore_->found && restore_->found->ref.step() < ref.step()) restore_.reset();
  v1::CoordinatorMessage message;
  message.mutable_checkpoint_kept()->set_job_id(job_id_);
  message.mutable_checkpoint_kept()->set_step(ref.step());
  for (const Member& member : members_) {
    if (member.role == Role::kReady) Send(member, message, actions);
  }
}

// The job is done when every member finished with the state that the last checkpoint holds.
Fault Run::CheckEnd() {
  if (RING_PLANTED(kSucceedsWithoutCheckpoint) && AnyFinished()) phase_ = Phase::kDone;
  if (!resolved_ || !HasLastCheckpoint()) return {};
  for (const Place& place : members_.ring()) {
    const Member* member = At(place);
    if (member == nullptr || !member->finished) return {};
  }
  for (const Place& place : members_.ring()) {
    const Member& member = *At(place);
    const v1::JobFinished& end = *member.finished;
    if (EndStep() == 0) continue;
    if (!kept_digest_.empty() && HexOf(end.digest()) != kept_digest_) {
      return {Cause::kCheckpointDiffers,
              fmt::format("the last checkpoint holds the state with digest {}, {} ends with {}",
                          kept_digest_, member.called(), HexOf(end.digest())),
              member.name()};
    }
    if (!end.manifest_sha256().empty() && end.manifest_sha256() != kept_manifest_) {
      return {Cause::kCheckpointDiffers,
              fmt::format("{} wrote a last checkpoint with manifest {}, but {} arrived",
                          member.called(), end.manifest_sha256(), kept_manifest_),
              member.name()};
    }
  }
  phase_ = Phase::kDone;
  return {};
}

Fault Run::CheckDigest(const Member& from, uint64_t step, const std::string& digest) {
  if (digest.size() > kDigestBytes) {
    return Violation(from, fmt::format("sent a digest of {} bytes", digest.size()));
  }
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

}  // namespace ringmaster::coordinator
