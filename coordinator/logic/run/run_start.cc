// From Inspect until a worker may be fenced. Those of the first ring go together, and what one of
// them cannot do the job cannot; a later one is compared with the job, and refused. Nothing of it
// has a limit while the worker lives: a large dataset takes its time, and who is silent is lost.
#include <algorithm>
#include <cmath>
#include <utility>

#include "common/job/resolve.h"
#include "common/job/script_files.h"
#include "common/planted_bug.h"
#include "common/text.h"
#include "coordinator/logic/run/agreement.h"
#include "coordinator/logic/run/run.h"

namespace ringmaster::coordinator {
namespace {

constexpr int kMostPeers = 64;  // in an Inspect

}  // namespace

void Run::SendInspect(const Member& member, Actions& actions) const {
  v1::CoordinatorMessage message;
  v1::Inspect& inspect = *message.mutable_inspect();
  inspect.set_job_id(job_id_);
  if (init_) *inspect.mutable_init() = *init_;
  if (spec_.has_script()) {
    *inspect.mutable_script() = spec_.script();
  } else {
    *inspect.mutable_data() = spec_.data();
    AddPeers(member, inspect);
  }
  Send(member, message, actions);
}

// The others, those first that take part already: they have the data.
void Run::AddPeers(const Member& member, v1::Inspect& inspect) const {
  for (const bool ready : {true, false}) {
    for (const Member& other : members_) {
      const bool fits = (other.role == Role::kReady) == ready && other.name() != member.name();
      if (!fits || inspect.peers_size() == kMostPeers) continue;
      v1::DataPeer& peer = *inspect.add_peers();
      peer.set_name(other.name());
      peer.set_ring_address(other.attach.ring_address());
    }
  }
}

void Run::SendPrepare(Member& member, Now now, Actions& actions) {
  v1::CoordinatorMessage message;
  message.mutable_prepare()->set_job_id(job_id_);
  *message.mutable_prepare()->mutable_job() = *resolved_;
  message.mutable_prepare()->set_joins(started_);
  Send(member, message, actions);
  member.role = Role::kPreparing;
  member.since = now.steady;
}

void Run::OnPhase(Member& from, const v1::PhaseEntered& said, Now now) {
  phases_.Enter(from.name(), said.phase(), said.seconds(), now);
  if (started_ && from.role != Role::kReady) from.phase = said.phase().substr(0, 32);
}

namespace {

// As a worker says it, within what can be: nothing that comes of it divides by nothing.
double BoundedSeconds(double said) {
  constexpr double kLeast = 1e-6, kMost = 1e6;
  return std::isfinite(said) && said > 0 ? std::clamp(said, kLeast, kMost) : 0;
}

}  // namespace

Fault Run::OnInspected(Member& from, const v1::Inspected& said, Now now, Actions& actions) {
  if (from.role != Role::kInspecting || from.facts || phase_ == Phase::kStopping) return {};
  if (!said.error().empty()) {
    const Cause cause = CauseOfCode(said.code());
    const bool of_data = !spec_.has_script() && (started_ || cause == Cause::kDataset);
    const std::string why = fmt::format("cannot {}: {}",
                                        cause == Cause::kScript ? "run the script"
                                        : of_data               ? "use the dataset"
                                                                : "take the job",
                                        said.error());
    if (!started_) return {cause, from.called() + ' ' + why, from.name()};
    RefuseJoiner(from.name(), "it " + why, now);
    return {};
  }
  if (spec_.has_script()) {
    if (!said.has_script()) {
      Fault fault = Violation(from, "said nothing of the job's script");
      if (!started_) return fault;
      RefuseJoiner(from.name(), fault.reason, now);
      return {};
    }
    from.script = said.script();
  }
  if (init_ && said.has_init() == said.init_error().empty()) {
    from.init = said.init();
  } else if (init_) {
    return Violation(from, "said nothing of what the job begins with");
  }
  from.facts = said.facts();
  phases_.Pause(from.name(), now);
  if (!said.init_error().empty()) {
    const std::string why = "cannot use what the job begins with: " + said.init_error();
    if (!started_) return {Cause::kInit, from.called() + ' ' + why, from.name()};
    RefuseJoiner(from.name(), "it " + why, now);
    return {};
  }
  if (!started_) return {};
  const std::string first = members_.ring().empty() ? job_id_ : members_.ring().front().name;
  Status same = spec_.has_script() ? CheckScript(from, first) : CheckDataset(from, first);
  if (same.ok()) same = CheckInit(from);
  if (same.ok()) {
    SendPrepare(from, now, actions);
  } else {
    RefuseJoiner(from.name(), Message(same), now);
  }
  return {};
}

Status Run::CheckDataset(Member& member, const std::string& other) const {
  Status same = SameDataset({other, resolved_->result().data()}, {member.name(), *member.facts});
  member.data_differs = !same.ok();
  return same;
}

// What the script said of itself when the job was resolved. Of the classes that share a job each
// has its own libraries: its known shard tells.
Status Run::CheckScript(const Member& member, const std::string& other) const {
  return SameScript({other, resolved_->script()}, {member.name(), member.script},
                    mixes_ ? Libraries::kMayDiffer : Libraries::kEqual);
}

// What the job begins with, as it was resolved.
Status Run::CheckInit(const Member& member) const {
  const std::string& wanted = resolved_->result().init().sha256();
  if (!init_ || wanted == member.init.sha256()) return absl::OkStatus();
  return FailedPrecondition(
      "what the job begins with has SHA-256 {}, but on worker {} {}; give it the same copy", wanted,
      member.name(), member.init.sha256());
}

Fault Run::OnPrepared(Member& from, const v1::Prepared& said, Now now) {
  if (from.role != Role::kPreparing || from.prepared || phase_ == Phase::kStopping) return {};
  Fault fault;
  if (!said.error().empty()) {
    fault = {CauseOfCode(said.code()),
             fmt::format("{} cannot run the job: {}", from.called(), said.error()), from.name()};
  } else if (said.known_shard_sha256_size() != static_cast<int>(from.attach.cores())) {
    fault = Violation(from, fmt::format("sent {} known-shard results for its {} cores",
                                        said.known_shard_sha256_size(), from.attach.cores()));
  }
  from.prepared = said;
  if (fault.ok() && started_) fault = CheckKnownShard(from);
  if (!fault.ok()) {
    if (!started_) return fault;
    RefuseJoiner(from.name(), fault.reason, now);
    return {};
  }
  phases_.Pause(from.name(), now);
  if (!started_) return {};
  from.role = Role::kReady;
  from.since = now.steady;
  from.phase.clear();
  from.holding.digest = said.digest();
  return {};
}

Fault Run::CheckKnownShard(const Member& member) const {
  if (RING_PLANTED(kTakesOddWorkers)) return {};
  const v1::KnownShard* known = KnownShardOf(member.class_name);
  if (known == nullptr) {
    return {Cause::kKnownShardDiffers,
            fmt::format("{} is of class {}, which is not in the class map (CLASS_NOT_IN_MAP)",
                        member.called(), member.class_name),
            member.name()};
  }
  return FaultOf(Cause::kKnownShardDiffers,
                 SameKnownShard(*known, {member.name(), *member.prepared}));
}

// ---- the first ring -----------------------------------------------------------------------------

bool Run::LacksWorkers() {
  if (members_.size() >= std::max<size_t>(min_, 1)) return false;
  requeue_ = last_loss_;
  return true;
}

Fault Run::StepInspecting(Now now, Actions& actions) {
  if (LacksWorkers()) return {};
  const auto looked = [](const Member& m) { return m.facts.has_value(); };
  if (!std::all_of(members_.begin(), members_.end(), looked)) return {};
  if (Fault fault = ResolveFacts(); !fault.ok() || !requeue_.empty()) return fault;
  for (Member& member : members_) SendPrepare(member, now, actions);
  Become(Phase::kPreparing, now);
  return {};
}

// Whose is wrong nobody knows: all that was fetched is fetched anew.
Fault Run::DataDiffer(const Status& how) {
  for (Member& member : members_) member.data_differs = !how.ok();
  return FaultOf(Cause::kDatasetDiffers, how);
}

// What workers of the first ring found; of a job that another one resolved it must be the same as
// there, too.
Fault Run::CompareScripts() {
  const Member& first = members_.front();
  for (const Member& member : members_) {
    // The first one of its class; all are of one unless the job mixes them.
    const Member& like = *std::ranges::find(members_, member.class_name, &Member::class_name);
    Status same = SameScript({like.name(), like.script}, {member.name(), member.script});
    if (same.ok()) {
      same = SameScript({first.name(), first.script}, {member.name(), member.script},
                        Libraries::kMayDiffer);
    }
    if (!same.ok()) return FaultOf(Cause::kScript, same);
  }
  if (!resolved_) return {};
  return FaultOf(Cause::kScript, CheckScript(first, "of the job that " + job_id_ + " repeats"));
}

Fault Run::CompareDatasets() {
  const Member& first = members_.front();
  for (const Member& member : members_) {
    const Status same = SameDataset({first.name(), *first.facts}, {member.name(), *member.facts});
    if (!same.ok()) return DataDiffer(same);
  }
  if (!resolved_) return {};
  const std::string of = "of the job that " + job_id_ + " repeats";
  return DataDiffer(SameDataset({of, resolved_->result().data()}, {first.name(), *first.facts}));
}

Fault Run::CompareInits() {
  const Member& first = members_.front();
  for (const Member& member : members_) {
    if (member.init.sha256() == first.init.sha256()) continue;
    return {Cause::kInit,
            fmt::format("what the job begins with differs: {} on worker {}, but {} on worker {}; "
                        "give both the same copy",
                        first.init.sha256(), first.name(), member.init.sha256(), member.name()),
            ""};
  }
  return resolved_ ? FaultOf(Cause::kInit, CheckInit(first)) : Fault();
}

Fault Run::ResolveFacts() {
  Fault fault = spec_.has_script() ? CompareScripts() : CompareDatasets();
  if (fault.ok()) fault = CompareInits();
  if (!fault.ok() || resolved_) return fault;
  const Member& first = members_.front();
  const v1::NumericsClass& numerics = first.attach.numerics_class();
  const v1::InitSourceFacts* const init = init_ ? &first.init : nullptr;
  v1::ScriptFacts script = first.script;
  if (ClassesDraw()) script.clear_initial_sha256();  // the map says whose they are
  StatusOr<v1::ResolvedJob> resolved =
      spec_.has_script()
          ? job::ResolveScript(spec_, script, job::ScriptContent(spec_.script()), numerics, init)
          : job::Resolve(spec_, *first.facts, numerics, init);
  if (!resolved.ok()) return FaultOf(Cause::kInvalidJob, resolved.status());
  if (spec_.has_script()) *resolved->mutable_script() = first.script;
  if (init_) {
    *resolved->mutable_init() = *init_;
    const v1::CheckpointSource& checkpoint = init_->checkpoint();
    resolved->mutable_init_report()->set_source(
        init_->has_checkpoint()
            ? fmt::format("the checkpoint of step {} of {}", checkpoint.step(), checkpoint.job_id())
            : OneLine(init_->file()));
  }
  TellOverruled(first.script);
  TakeResolved(*std::move(resolved));
  return {};
}

void Run::TellOverruled(const v1::ScriptFacts& script) {
  const std::string overruled = spec_.has_script() ? job::Overruled(script, spec_) : "";
  if (overruled.empty()) return;
  Tell(event_type::kInitialized, Severity::kWarning,
       "the job file wins over the script's attach: " + overruled, kJobSubject);
}

// With the first class map; without one the job is queued again.
void Run::TakeResolved(v1::ResolvedJob resolved) {
  resolved_ = std::move(resolved);
  TakeSizes();
  if (const Status made = MakeFirstMap(); !made.ok()) {
    resolved_.reset();
    requeue_ = Message(made);
  }
}

// What a script says of them is known now.
void Run::TakeSizes() {
  if (!spec_.has_script()) return;
  shards_ = resolved_->result().shards();
  most_ = std::min(resolved_->workers().max(), shards_);
}

// Of a class that has one it is that of its first worker, or of the job that this one repeats. S(0)
// is the same for all classes, unless each of them draws its own.
void Run::KeepKnownShards() {
  for (const Member& member : members_) {
    const v1::Prepared& said = *member.prepared;
    if (KnownShardOf(member.class_name) == nullptr) {
      v1::KnownShard& known = *resolved_->add_known_shards();
      known.set_class_(member.class_name);
      known.set_sha256(said.known_shard_sha256(0));
      known.set_worker(member.name());
      known.set_seconds(BoundedSeconds(said.known_shard_seconds()));
    }
  }
  for (v1::KnownShard& known : *resolved_->mutable_known_shards()) {
    const auto own = std::ranges::find(members_, known.class_(), &Member::class_name);
    const Member& drawn = ClassesDraw() && own != members_.end() ? *own : members_.front();
    if (known.digest().empty()) known.set_digest(drawn.prepared->digest());
  }
}

Fault Run::StepPreparing(Now now, Actions& actions) {
  if (LacksWorkers()) return {};
  const auto built = [](const Member& m) { return m.prepared.has_value(); };
  if (!std::all_of(members_.begin(), members_.end(), built)) return {};
  KeepKnownShards();
  for (const Member& member : members_) {
    if (Fault fault = CheckKnownShard(member); !fault.ok()) return fault;
  }
  if (std::exchange(map_due_, false) && MeasureFirstMap()) {
    for (v1::KnownShard& known : *resolved_->mutable_known_shards()) known.clear_digest();
    for (Member& member : members_) {
      member.prepared.reset();
      SendPrepare(member, now, actions);
    }
    return {};
  }
  for (Member& member : members_) {
    member.role = Role::kReady;
    member.holding.digest = member.prepared->digest();
  }
  if (restores_) {
    Become(Phase::kSearching, now);
  } else {
    BeginFence(FenceWhen::kNow, "the first generation", now, actions);
  }
  return {};
}

}  // namespace ringmaster::coordinator
