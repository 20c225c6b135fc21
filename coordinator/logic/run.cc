#include "coordinator/logic/run.h"

#include <algorithm>

#include "common/job/resolve.h"
#include "coordinator/logic/agreement.h"

namespace ringmaster::coordinator {
namespace {

constexpr size_t kMaxDigests = 64;  // members are never further apart than one step
constexpr size_t kDigestBytes = 64;

v1::Generation ToProto(const GenerationId& id) {
  v1::Generation generation;
  generation.set_term(id.term);
  generation.set_counter(id.counter);
  return generation;
}

template <typename Has>
bool All(const std::vector<Member>& members, Has has) {
  return std::all_of(members.begin(), members.end(), has);
}

}  // namespace

Run::Run(const Options& options, const v1::JobStatus& job, GenerationId generation,
         std::vector<Member> members)
    : options_(options),
      job_id_(job.job_id()),
      spec_(job.spec()),
      generation_(generation),
      members_(std::move(members)) {
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
  Enter(Phase::kInspecting, options_.prepare_limit, now);
}

void Run::Stop(const std::string& reason, Now now, Actions& actions) {
  v1::CoordinatorMessage message;
  message.mutable_cancel()->set_job_id(job_id_);
  message.mutable_cancel()->set_reason(reason);
  SendAll(message, actions);
  Enter(Phase::kStopping, options_.stop_limit, now);
}

Status Run::OnInspected(Member& from, const v1::Inspected& said, Now now, Actions& actions) {
  if (phase_ != Phase::kInspecting) return absl::OkStatus();
  if (!said.error().empty()) {
    return FailedPrecondition("worker {} cannot use the dataset: {}", from.name(), said.error());
  }
  from.facts = said.facts();
  if (!All(members_, [](const Member& m) { return m.facts.has_value(); })) return absl::OkStatus();
  const Member& first = members_.front();
  for (const Member& member : members_) {
    RING_RETURN_IF_ERROR(SameDataset({first.name(), *first.facts}, {member.name(), *member.facts}));
  }
  return SendPrepare(now, actions);
}

Status Run::SendPrepare(Now now, Actions& actions) {
  const Member& first = members_.front();
  RING_ASSIGN_OR_RETURN(resolved_,
                        job::Resolve(spec_, *first.facts, first.attach.numerics_class()));
  v1::CoordinatorMessage message;
  message.mutable_prepare()->set_job_id(job_id_);
  *message.mutable_prepare()->mutable_job() = *resolved_;
  SendAll(message, actions);
  Enter(Phase::kPreparing, options_.prepare_limit, now);
  return absl::OkStatus();
}

Status Run::OnPrepared(Member& from, const v1::Prepared& said, Now now, Actions& actions) {
  if (phase_ != Phase::kPreparing) return absl::OkStatus();
  if (!said.error().empty()) {
    return FailedPrecondition("worker {} cannot run the job: {}", from.name(), said.error());
  }
  if (said.known_shard_sha256_size() != static_cast<int>(from.attach.cores())) {
    return FailedPrecondition("worker {} sent {} known-shard results for its {} cores", from.name(),
                              said.known_shard_sha256_size(), from.attach.cores());
  }
  from.prepared = said;
  if (!All(members_, [](const Member& m) { return m.prepared.has_value(); })) {
    return absl::OkStatus();
  }
  const Member& first = members_.front();
  for (const Member& member : members_) {
    RING_RETURN_IF_ERROR(
        SameKnownShard({first.name(), *first.prepared}, {member.name(), *member.prepared}));
  }
  SendFence(now, actions);
  return absl::OkStatus();
}

void Run::SendFence(Now now, Actions& actions) {
  v1::CoordinatorMessage message;
  message.mutable_fence()->set_job_id(job_id_);
  *message.mutable_fence()->mutable_generation() = ToProto(generation_);
  SendAll(message, actions);
  Enter(Phase::kFencing, options_.fence_limit, now);
}

Status Run::OnFenceAck(Member& from, const v1::FenceAck& said, Now now, Actions& actions) {
  if (phase_ != Phase::kFencing || !IsCurrent(said.generation())) return absl::OkStatus();
  from.fenced = said;
  if (!All(members_, [](const Member& m) { return m.fenced.has_value(); })) return absl::OkStatus();
  const Member& first = members_.front();
  for (const Member& member : members_) {
    if (member.fenced->applied() != first.fenced->applied()) {
      return FailedPrecondition("worker {} holds the state of step {}, worker {} of step {}",
                                first.name(), first.fenced->applied(), member.name(),
                                member.fenced->applied());
    }
    RING_RETURN_IF_ERROR(SameDigest(first.fenced->applied(), {first.name(), first.fenced->digest()},
                                    {member.name(), member.fenced->digest()}));
  }
  SendStart(first.fenced->applied(), now, actions);
  return absl::OkStatus();
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

Status Run::OnProgress(Member& from, const v1::Progress& said, Now now) {
  if (phase_ != Phase::kRunning || !IsCurrent(said.generation())) return absl::OkStatus();
  RING_RETURN_IF_ERROR(CheckDigest(from.name(), said.applied(), said.digest()));
  if (said.applied() > from.progress.applied()) OnHeartbeat(from, {}, now);
  from.progress = said;
  if (said.applied() >= newest_.applied()) newest_ = said;
  RaiseCommitted();
  return absl::OkStatus();
}

void Run::RaiseCommitted() {
  const auto lowest = std::min_element(
      members_.begin(), members_.end(),
      [](const Member& a, const Member& b) { return a.progress.applied() < b.progress.applied(); });
  committed_ = std::max(committed_, lowest->progress.applied());
}

bool Run::AnyFinished() const {
  return std::any_of(members_.begin(), members_.end(),
                     [](const Member& m) { return m.finished.has_value(); });
}

void Run::OnHeartbeat(Member& from, const v1::Heartbeat& said, Now now) {
  const bool worked = said.job_id().empty() || said.progress() != from.work;
  if (!said.job_id().empty()) {
    from.work = said.progress();
    from.phase = said.phase();
  }
  if (worked && phase_ == Phase::kRunning && !AnyFinished()) {
    deadline_ = now.steady + limit_;
  }
}

Status Run::OnFinished(Member& from, const v1::JobFinished& said, Now now) {
  if (!IsCurrent(said.generation())) return absl::OkStatus();
  if (phase_ == Phase::kStopping) OnStopped(from);
  if (phase_ != Phase::kRunning) return absl::OkStatus();
  RING_RETURN_IF_ERROR(CheckDigest(from.name(), said.applied(), said.digest()));
  const uint64_t total = resolved_->result().total_steps();
  if (said.applied() != total) {
    return FailedPrecondition(
        "worker {} says that it finished at step {}, but the job has {} steps", from.name(),
        said.applied(), total);
  }
  if (!AnyFinished()) {
    Enter(Phase::kRunning, options_.finish_limit, now);
  }
  from.finished = said;
  from.progress.set_applied(total);
  RaiseCommitted();
  return CheckEnd();
}

void Run::OnStopped(Member& from) {
  if (phase_ != Phase::kStopping) return;
  from.stopped = true;
  if (All(members_, [](const Member& m) { return m.stopped; })) phase_ = Phase::kDone;
}

Status Run::OnCheckpoint(const v1::CheckpointRef& ref, const std::string& digest) {
  if (!resolved_ || ref.step() != resolved_->result().total_steps()) return absl::OkStatus();
  last_manifest_ = ref.sha256();
  last_digest_ = digest;
  return CheckEnd();
}

// The job is done when every member finished with the state that the last checkpoint holds.
Status Run::CheckEnd() {
  const auto done = [](const Member& m) { return m.finished.has_value(); };
  if (phase_ != Phase::kRunning || !last_manifest_ || !All(members_, done)) {
    return absl::OkStatus();
  }
  for (const Member& member : members_) {
    const v1::JobFinished& end = *member.finished;
    if (HexOf(end.digest()) != last_digest_) {
      return FailedPrecondition(
          "the last checkpoint holds the state with digest {}, worker {} ends "
          "with {}",
          last_digest_, member.name(), HexOf(end.digest()));
    }
    if (!end.manifest_sha256().empty() && end.manifest_sha256() != *last_manifest_) {
      return FailedPrecondition(
          "worker {} wrote a last checkpoint with manifest {}, but {} arrived", member.name(),
          end.manifest_sha256(), *last_manifest_);
    }
  }
  phase_ = Phase::kDone;
  return absl::OkStatus();
}

Status Run::CheckDigest(const std::string& worker, uint64_t step, const std::string& digest) {
  if (digest.size() > kDigestBytes) {
    return FailedPrecondition("worker {} sent a digest of {} bytes", worker, digest.size());
  }
  const auto [seen, fresh] = digests_.try_emplace(step, Witness{worker, digest});
  if (!fresh) return SameDigest(step, {seen->second.worker, seen->second.digest}, {worker, digest});
  if (digests_.size() > kMaxDigests) digests_.erase(digests_.begin());
  return absl::OkStatus();
}

bool Run::WaitsFor(const Member& member) const {
  switch (phase_) {
    case Phase::kInspecting:
      return !member.facts;
    case Phase::kPreparing:
      return !member.prepared;
    case Phase::kFencing:
      return !member.fenced;
    case Phase::kRunning:
      return !member.finished;
    case Phase::kStopping:
      return !member.stopped;
    case Phase::kDone:
      return false;
  }
  return false;
}

std::string Run::NamesWaitedFor() const {
  std::string names;
  for (const Member& member : members_) {
    if (!WaitsFor(member)) continue;
    names += (names.empty() ? "" : ", ") + member.name();
    if (!member.phase.empty()) names += fmt::format(" (in {})", member.phase);
  }
  return names.empty() ? "the last checkpoint" : "worker " + names;
}

Status Run::CheckDeadline(Now now) const {
  if (phase_ == Phase::kDone || now.steady < deadline_) return absl::OkStatus();
  const char* what = "";
  switch (phase_) {
    case Phase::kInspecting:
      what = "to report the dataset";
      break;
    case Phase::kPreparing:
      what = "to build the job and run the known shard";
      break;
    case Phase::kFencing:
      what = "to acknowledge the fence";
      break;
    case Phase::kRunning:
      what = AnyFinished() ? "to finish" : "to do any work";
      break;
    case Phase::kStopping:
    case Phase::kDone:
      what = "to stop";
      break;
  }
  return Error(absl::StatusCode::kDeadlineExceeded, "waited {} ms in vain for {} {}, at step {}",
               limit_.count(), NamesWaitedFor(), what, committed_);
}

Member* Run::Find(const std::string& worker) {
  const auto found = std::find_if(members_.begin(), members_.end(),
                                  [&](const Member& m) { return m.name() == worker; });
  return found == members_.end() ? nullptr : &*found;
}

bool Run::IsCurrent(const v1::Generation& generation) const {
  return GenerationId{generation.term(), generation.counter()} == generation_;
}

void Run::Describe(v1::JobStatus& status) const {
  status.set_step(committed_);
  if (resolved_) status.set_total_steps(resolved_->result().total_steps());
  status.set_epoch(newest_.epoch());
  status.set_loss(newest_.loss());
  status.set_accuracy(newest_.accuracy());
  if (newest_.has_test_accuracy()) status.set_test_accuracy(newest_.test_accuracy());
  status.set_samples_per_second(newest_.samples_per_second());
  *status.mutable_generation() = ToProto(generation_);
  status.clear_workers();
  for (const Member& member : members_) {
    v1::JobWorker& worker = *status.add_workers();
    worker.set_name(member.name());
    for (uint64_t s = member.shards.begin; s < member.shards.end; ++s) {
      worker.add_shards(static_cast<uint32_t>(s));
    }
    worker.set_ring_bytes(member.progress.ring_bytes());
  }
}

}  // namespace ringmaster::coordinator
