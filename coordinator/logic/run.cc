#include "coordinator/logic/run.h"

#include <algorithm>

#include "common/job/resolve.h"
#include "coordinator/logic/agreement.h"

namespace ringmaster::coordinator {
namespace {

constexpr size_t kMaxDigests = 64;  // members are never further apart than one step
constexpr size_t kDigestBytes = 64;
constexpr size_t kMaxPhaseBytes = 32;

std::vector<std::string> NamesOf(const std::vector<Member>& members) {
  std::vector<std::string> names;
  for (const Member& member : members) names.push_back(member.name());
  return names;
}

Fault Violation(const Member& member, const std::string& what) {
  return {Cause::kProtocolViolation, member.called() + " " + what, member.name()};
}

template <typename Has>
bool All(const std::vector<Member>& members, Has has) {
  return std::all_of(members.begin(), members.end(), has);
}

}  // namespace

v1::Generation Run::ToProto(const GenerationId& id) {
  v1::Generation generation;
  generation.set_term(id.term);
  generation.set_counter(id.counter);
  return generation;
}

Run::Run(const Options& options, const v1::JobStatus& job, GenerationId generation,
         std::vector<Member> members)
    : options_(options),
      job_id_(job.job_id()),
      spec_(job.spec()),
      generation_(generation),
      members_(std::move(members)),
      phases_(NamesOf(members_)) {
  std::vector<uint32_t> cores;
  for (const Member& member : members_) cores.push_back(member.attach.cores());
  const std::vector<job::Range> shards = job::AssignShards(job::ShardsOf(spec_), cores);
  for (size_t i = 0; i < members_.size(); ++i) members_[i].shards = shards[i];
}

void Run::Enter(Phase phase, std::chrono::milliseconds limit, Now now) {
  phase_ = phase;
  limit_ = limit;
  deadline_ = now.steady + limit;
}

void Run::SendAll(const v1::CoordinatorMessage& message, Actions& actions) const {
  for (const Member& member : members_) actions.push_back(Send{member.session, message});
}

void Run::Begin(Now now, Actions& actions) {
  v1::CoordinatorMessage message;
  message.mutable_inspect()->set_job_id(job_id_);
  *message.mutable_inspect()->mutable_data() = spec_.data();
  SendAll(message, actions);
  begun_ = now.steady;
  Enter(Phase::kInspecting, options_.prepare_limit, now);
}

void Run::Stop(const std::string& reason, Now now, Actions& actions) {
  v1::CoordinatorMessage message;
  message.mutable_cancel()->set_job_id(job_id_);
  message.mutable_cancel()->set_reason(reason);
  SendAll(message, actions);
  Enter(Phase::kStopping, options_.stop_limit, now);
}

void Run::OnPhase(Member& from, const v1::PhaseEntered& said, Now now) {
  phases_.Enter(PlaceOf(from), said.phase(), said.seconds(), now);
}

Fault Run::OnInspected(Member& from, const v1::Inspected& said, Now now, Actions& actions) {
  if (phase_ != Phase::kInspecting) return {};
  if (!said.error().empty()) {
    return {Cause::kDataset,
            fmt::format("{} cannot use the dataset: {}", from.called(), said.error()), from.name()};
  }
  from.facts = said.facts();
  phases_.Pause(PlaceOf(from), now);
  if (!All(members_, [](const Member& m) { return m.facts.has_value(); })) return {};
  const Member& first = members_.front();
  for (const Member& member : members_) {
    const Status same = SameDataset({first.name(), *first.facts}, {member.name(), *member.facts});
    if (!same.ok()) return FaultOf(Cause::kDatasetDiffers, same);
  }
  return SendPrepare(now, actions);
}

Fault Run::SendPrepare(Now now, Actions& actions) {
  const Member& first = members_.front();
  StatusOr<v1::ResolvedJob> resolved =
      job::Resolve(spec_, *first.facts, first.attach.numerics_class());
  if (!resolved.ok()) return FaultOf(Cause::kInvalidJob, resolved.status());
  resolved_ = *std::move(resolved);
  v1::CoordinatorMessage message;
  message.mutable_prepare()->set_job_id(job_id_);
  *message.mutable_prepare()->mutable_job() = *resolved_;
  SendAll(message, actions);
  Enter(Phase::kPreparing, options_.prepare_limit, now);
  return {};
}

Fault Run::OnPrepared(Member& from, const v1::Prepared& said, Now now, Actions& actions) {
  if (phase_ != Phase::kPreparing) return {};
  if (!said.error().empty()) {
    return {CauseOfError(said.error()),
            fmt::format("{} cannot run the job: {}", from.called(), said.error()), from.name()};
  }
  if (said.known_shard_sha256_size() != static_cast<int>(from.attach.cores())) {
    return Violation(from, fmt::format("sent {} known-shard results for its {} cores",
                                       said.known_shard_sha256_size(), from.attach.cores()));
  }
  from.prepared = said;
  phases_.Pause(PlaceOf(from), now);
  if (!All(members_, [](const Member& m) { return m.prepared.has_value(); })) return {};
  const Member& first = members_.front();
  for (const Member& member : members_) {
    const Status same =
        SameKnownShard({first.name(), *first.prepared}, {member.name(), *member.prepared});
    if (!same.ok()) return FaultOf(Cause::kKnownShardDiffers, same);
  }
  SendFence(now, actions);
  return {};
}

void Run::SendFence(Now now, Actions& actions) {
  v1::CoordinatorMessage message;
  message.mutable_fence()->set_job_id(job_id_);
  *message.mutable_fence()->mutable_generation() = ToProto(generation_);
  SendAll(message, actions);
  Enter(Phase::kFencing, options_.fence_limit, now);
}

Fault Run::OnFenceAck(Member& from, const v1::FenceAck& said, Now now, Actions& actions) {
  if (phase_ != Phase::kFencing || !IsCurrent(said.generation())) return {};
  from.fenced = said;
  if (!All(members_, [](const Member& m) { return m.fenced.has_value(); })) return {};
  const Member& first = members_.front();
  const uint64_t step = first.fenced->applied();
  for (const Member& member : members_) {
    if (member.fenced->applied() != step) {
      return {Cause::kStateDiffers,
              fmt::format("worker {} holds the state of step {}, worker {} of step {}",
                          first.name(), step, member.name(), member.fenced->applied()),
              ""};
    }
    const Status same = SameDigest(step, {first.name(), first.fenced->digest()},
                                   {member.name(), member.fenced->digest()});
    if (!same.ok()) return FaultOf(Cause::kStateDiffers, same);
  }
  SendStart(step, now, actions);
  return {};
}

void Run::SendStart(uint64_t step, Now now, Actions& actions) {
  v1::CoordinatorMessage message;
  v1::Start& start = *message.mutable_start();
  start.set_job_id(job_id_);
  *start.mutable_generation() = ToProto(generation_);
  start.set_start_step(step);
  for (const Member& member : members_) {
    v1::RingMember& place = *start.add_ring();
    place.set_name(member.name());
    place.set_incarnation(member.attach.incarnation());
    place.set_ring_address(member.attach.ring_address());
    for (uint64_t s = member.shards.begin; s < member.shards.end; ++s) {
      place.add_shards(static_cast<uint32_t>(s));
    }
  }
  SendAll(message, actions);
  started_ = true;
  Enter(Phase::kRunning, options_.stall_limit, now);
}

Fault Run::OnProgress(Member& from, const v1::Progress& said, Now now) {
  if (phase_ != Phase::kRunning || !IsCurrent(said.generation())) return {};
  if (Fault fault = CheckDigest(from.name(), said.applied(), said.digest()); !fault.ok()) {
    return fault;
  }
  if (said.applied() > from.progress.applied()) {
    OnHeartbeat(from, {}, now);
    phases_.Finish(PlaceOf(from), now);
  }
  from.progress = said;
  if (said.applied() > newest_.applied()) newest_unix_ms_ = now.unix_ms;
  if (said.applied() >= newest_.applied()) newest_ = said;
  RaiseCommitted();
  return {};
}

void Run::RaiseCommitted() {
  const auto lowest = std::min_element(
      members_.begin(), members_.end(),
      [](const Member& a, const Member& b) { return a.progress.applied() < b.progress.applied(); });
  const v1::Progress& progress = lowest->progress;
  committed_ = std::max(committed_, progress.applied());
  if (progress.updates() > progress.applied()) return;
  skipped_ = std::max(
      skipped_, progress.has_loss_scale() ? progress.applied() - progress.updates() : uint64_t{0});
}

bool Run::AnyFinished() const {
  return std::any_of(members_.begin(), members_.end(),
                     [](const Member& m) { return m.finished.has_value(); });
}

void Run::OnHeartbeat(Member& from, const v1::Heartbeat& said, Now now) {
  const bool worked = said.job_id().empty() || said.progress() != from.work;
  if (!said.job_id().empty()) {
    from.work = said.progress();
    from.phase = said.phase().substr(0, kMaxPhaseBytes);
  }
  if (worked && phase_ == Phase::kRunning && !AnyFinished()) {
    deadline_ = now.steady + limit_;
  }
}

Fault Run::OnFinished(Member& from, const v1::JobFinished& said, Now now) {
  if (!IsCurrent(said.generation())) return {};
  if (phase_ == Phase::kStopping) OnStopped(from);
  if (phase_ != Phase::kRunning) return {};
  if (Fault fault = CheckDigest(from.name(), said.applied(), said.digest()); !fault.ok()) {
    return fault;
  }
  const uint64_t total = resolved_->result().total_steps();
  if (said.applied() != total) {
    return Violation(from, fmt::format("says that it finished at step {}, but the job has {} steps",
                                       said.applied(), total));
  }
  if (!AnyFinished()) {
    Enter(Phase::kRunning, options_.finish_limit, now);
  }
  from.finished = said;
  phases_.Finish(PlaceOf(from), now);
  // Its last steps were not skipped, as far as is known: a last Progress said so before this.
  from.progress.set_updates(from.progress.updates() + total - from.progress.applied());
  from.progress.set_applied(total);
  RaiseCommitted();
  return CheckEnd();
}

void Run::OnStopped(Member& from) {
  if (phase_ != Phase::kStopping) return;
  from.stopped = true;
  if (All(members_, [](const Member& m) { return m.stopped; })) phase_ = Phase::kDone;
}

Fault Run::OnCheckpoint(const v1::CheckpointRef& ref, const std::string& digest) {
  if (!resolved_ || ref.step() != resolved_->result().total_steps()) return {};
  last_manifest_ = ref.sha256();
  last_digest_ = digest;
  return CheckEnd();
}

// The job is done when every member finished with the state that the last checkpoint holds.
Fault Run::CheckEnd() {
  const auto done = [](const Member& m) { return m.finished.has_value(); };
  if (phase_ != Phase::kRunning || !last_manifest_ || !All(members_, done)) return {};
  for (const Member& member : members_) {
    const v1::JobFinished& end = *member.finished;
    if (HexOf(end.digest()) != last_digest_) {
      return {Cause::kCheckpointDiffers,
              fmt::format("the last checkpoint holds the state with digest {}, {} ends with {}",
                          last_digest_, member.called(), HexOf(end.digest())),
              member.name()};
    }
    if (!end.manifest_sha256().empty() && end.manifest_sha256() != *last_manifest_) {
      return {Cause::kCheckpointDiffers,
              fmt::format("{} wrote a last checkpoint with manifest {}, but {} arrived",
                          member.called(), end.manifest_sha256(), *last_manifest_),
              member.name()};
    }
  }
  phase_ = Phase::kDone;
  return {};
}

Fault Run::CheckDigest(const std::string& worker, uint64_t step, const std::string& digest) {
  if (digest.size() > kDigestBytes) {
    return Violation(*Find(worker), fmt::format("sent a digest of {} bytes", digest.size()));
  }
  const auto [seen, fresh] = digests_.try_emplace(step, Witness{worker, digest});
  if (!fresh) {
    return FaultOf(Cause::kStateDiffers,
                   SameDigest(step, {seen->second.worker, seen->second.digest}, {worker, digest}));
  }
  if (digests_.size() > kMaxDigests) digests_.erase(digests_.begin());
  return {};
}

Member* Run::Find(const std::string& worker) {
  const auto found = std::find_if(members_.begin(), members_.end(),
                                  [&](const Member& m) { return m.name() == worker; });
  return found == members_.end() ? nullptr : &*found;
}

bool Run::IsCurrent(const v1::Generation& generation) const {
  return GenerationId{generation.term(), generation.counter()} == generation_;
}

}  // namespace ringmaster::coordinator
