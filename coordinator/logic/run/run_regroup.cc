// From the fence to those who will be in the next generation: who answers, and who is left out.

#include <algorithm>
#include <set>
#include <unordered_set>
#include <utility>

#include "common/job/class_map.h"
#include "common/planted_bug.h"
#include "common/sha256.h"
#include "coordinator/logic/run/ring.h"
#include "coordinator/logic/run/run.h"

namespace ringmaster::coordinator {
namespace {

bool Has(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

}  // namespace

// May be in the next generation.
bool Run::Eligible(const Member& member, Now now) const {
  return member.role == Role::kReady && !member.owes && !member.leaving &&
         !fence_.Silent(member, now) && !Barred(member.attach, now);
}

size_t Run::CountEligible(Now now) const {
  return static_cast<size_t>(std::count_if(members_.begin(), members_.end(),
                                           [&](const Member& m) { return Eligible(m, now); }));
}

// ---- the fence ----------------------------------------------------------------------------------

void Run::SendFence(const Member& member, FenceWhen when, Actions& actions) const {
  v1::CoordinatorMessage message;
  message.mutable_fence()->set_job_id(job_id_);
  *message.mutable_fence()->mutable_generation() = ToProto(member.fence);
  message.mutable_fence()->set_at_boundary(when == FenceWhen::kAtBoundary);
  message.mutable_fence()->set_verify_state(disagreement_.has_value());
  Send(member, message, actions);
}

void Run::BeginFence(FenceWhen when, const std::string& reason, Now now, Actions& actions) {
  for (Member& member : members_) member.finished.reset();  // it says so again in the next one
  finished_ = 0;
  const std::vector<const Member*> fenced = fence_.Begin(
      generations_.Next(), when, reason, members_,
      [&](const Member& member) { return !Barred(member.attach, now); }, now);
  for (const Member* const member : fenced) SendFence(*member, when, actions);
  if (started_) {
    actions.push_back(Note{"job=" + job_id_, fmt::format("fences generation {}: {}",
                                                         fence_.generation().ToString(), reason)});
  }
  Become(Phase::kFencing, now);
}

Fault Run::OnFenceAck(Member& from, const v1::FenceAck& said) {
  if (from.role != Role::kReady || phase_ == Phase::kStopping) return {};
  if (FromProto(said.generation()) != from.fence) return {};  // of an older fence
  if (LedElsewhere(from, said.applied())) {  // late: the others go on by another class map
    const std::string why =
        fmt::format("its state of step {} is by a class map that was given up", said.applied());
    Tell(event_type::kWorkerLeft, Severity::kWarning,
         fmt::format("{} joins anew: {}", from.called(), why), from.name());
    left_.insert(from.name());
    LetGo(from.name(), false, why);
    return {};
  }
  const uint64_t total = resolved_->result().total_steps();
  if (said.applied() > total) {
    return {Cause::kProtocolViolation,
            fmt::format("{} says that it holds step {}, but the job has {} steps", from.called(),
                        said.applied(), total),
            from.name()};
  }
  if (Fault fault = CheckDigests(from, said.applied(), said.digests()); !fault.ok()) return fault;
  if (Fault fault = CheckDigest(from, said.applied(), said.digest()); !fault.ok()) return fault;
  Fence::Acknowledge(from, said);
  RaiseCommitted();
  return {};
}

Fault Run::StepFencing(Now now, Actions& actions) {
  if (fence_.at_boundary() && FenceAtOnce(now, actions)) return {};
  return fence_.Over(members_, now) ? Conclude(now, actions) : Fault();
}

void Run::TellUnanswered(Now now) {
  for (const std::string& name : fence_.Unanswered(members_)) {
    Member* member = Find(name);
    if (member->lost_told) continue;
    member->lost_told = true;
    last_loss_ = fmt::format(
        "{} was lost {}: it did not acknowledge the fence of generation {}, {}", member->called(),
        coordinator::At(std::max(committed_, member->applied), PhaseOf(*member)),
        fence_.generation().ToString(),
        fence_.Silent(*member, now)
            ? fmt::format("and was silent for {} ms", member->silent_for(now).count())
            : fmt::format("for {} ms", options_.fence_limit.count()));
    Tell(event_type::kWorkerLost, Severity::kWarning, last_loss_, name);
  }
}

// ---- who is in ----------------------------------------------------------------------------------

Fault Run::Conclude(Now now, Actions& actions) {
  TellUnanswered(now);
  if (disagreement_) {
    const GenerationId fence = fence_.generation();
    if (Fault fault = SettleDisagreement(now, actions); !fault.ok()) return fault;
    if (fence_.generation() != fence) return {};
  }
  std::vector<std::string> names = fence_.Answered(members_, MayJoin(now));
  LeaveOutSpoilt(names);
  LeaveOutAccused(names, now);
  LeaveOutSlow(names, now);
  const bool enough = Enough(names);
  const uint64_t highest = members_.HighestApplied(names);
  const uint64_t needed = custody_.NeededStep(committed_);
  const auto lacks = [&](uint64_t step) { return step < needed && !custody_.settles_for_less(); };
  if (enough && highest >= needed) custody_.DropRestore();
  if (!enough && !started_) {
    requeue_ = last_loss_;
    return {};
  }
  if (!enough || lacks(highest)) {
    Become(Phase::kWaiting, now);
    return {};
  }
  const uint64_t step = StepFor(names);
  const bool evaluated = step == highest && members_.Evaluated(names, step);
  ChooseMap(step, evaluated);
  if (!Enough(names)) {  // of another map than before
    Become(Phase::kWaiting, now);
    return {};
  }
  if (!MissingClasses(names).empty()) FallBack(names, step, evaluated);
  if (!RING_PLANTED(kStartsUnstored) && !EnsureStored()) return {};
  names = TakeSeats(std::move(names), now);
  if (!Enough(names) || !MissingClasses(names).empty() || lacks(members_.HighestApplied(names))) {
    Become(Phase::kWaiting, now);
    return {};
  }
  SendStart(names, now, actions);
  return {};
}

// No worker computes what a coordinator that starts again would not know of: it would resolve the
// job anew, or go on by other class maps. The fence lasts until then.
bool Run::EnsureStored() {
  const std::string maps = job::TextOf(resolved_->result().class_maps());
  if (asked_maps_ == maps) return stored_maps_ == maps;
  asked_maps_ = maps;
  stored_maps_.clear();  // what was asked before may still come
  unstored_ = true;
  return false;
}

void Run::DescribeNext(Now now, JobRecord& record) {
  record.resolved = resolved_;
  Describe(now, record.status);
  if (started_) return;
  asked_generation_ = fence_.generation();
  *record.status.mutable_generation() = ToProto(asked_generation_);
  if (custody_.found() != nullptr) *record.status.mutable_resumed_from() = custody_.found()->ref;
}

void Run::OnStored(const JobRecord& record) {
  // An earlier run may have asked, of another ring, and the job was queued again since.
  const bool mine =
      !asked_maps_.empty() && FromProto(record.status.generation()) == asked_generation_;
  if (!started_ && !mine) return;
  stored_maps_ = job::TextOf(record.resolved->result().class_maps());
}

void Run::LeaveOutAccused(std::vector<std::string>& names, Now now) {
  const std::optional<Fence::BadLink> link = fence_.JudgeAccusation(names, members_, now);
  if (!link) return;
  Evict(link->out, link->why, now);
  std::erase(names, link->out);
}

// The ring's order, at most workers.max, with one that has the most.
std::vector<std::string> Run::TakeSeats(std::vector<std::string> names, Now now) {
  const std::vector<std::string> seats = ChooseSeats(names);
  for (const std::string& name : names) {
    if (Has(seats, name)) continue;
    left_.insert(name);
    LetGo(name, false,
          seats.size() == most_
              ? fmt::format("the job has its {} workers", most_)
              : fmt::format("the job has no more shards for class {}", Find(name)->class_name));
  }
  names = seats;
  // Of the first two that have shards one writes checkpoints: the first one has.
  if (const uint64_t step = members_.HighestApplied(names); !custody_.Restores(step)) {
    std::stable_partition(names.begin(), names.end(),
                          [&](const std::string& name) { return !MayFollow(*Find(name), step); });
  }
  Fence::Seating seating = fence_.Seat(names, members_, now);
  for (; !seating.out.empty(); seating = fence_.Seat(names, members_, now)) {
    Evict(seating.out, "its links are bad, and this ring is too small to avoid them", now);
    std::erase(names, seating.out);
  }
  return seating.ring;
}

// A generation begins: where, with which shards, and what is told of it.

namespace {

std::string List(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

}  // namespace

// K of a generation of these.
uint64_t Run::StepFor(const std::vector<std::string>& names) const {
  const uint64_t highest = RING_PLANTED(kStartsAtLowest) ? Find(names.back())->holding.applied
                                                         : members_.HighestApplied(names);
  return custody_.StepFor(highest);
}

void Run::SendStart(const std::vector<std::string>& names, Now now, Actions& actions) {
  const bool first = !std::exchange(started_, true);
  const uint64_t step = StepFor(names);
  const bool restores = custody_.Restores(members_.HighestApplied(names));
  const uint64_t rewound_from = step < committed_ ? committed_ : 0;
  generation_ = fence_.generation();
  start_step_ = step;
  started_at_ = now.steady;
  committed_ = rewound_from > 0 ? step : committed_;

  std::vector<Seat> seats;
  for (const std::string& name : names) {
    const Member& member = *Find(name);
    seats.push_back({member.attach.cores(),
                     Holds(member, step) ? member.holding.folded : std::vector<uint32_t>(),
                     member.class_name, KnownPace(member), !restores && MayFollow(member, step)});
  }
  const Assignment assignment = Assign(map(), seats);
  std::vector<Place> ring;
  for (size_t i = 0; i < names.size(); ++i) {
    Member& member = *Find(names[i]);
    member.follows = assignment.follows[i];
    member.adds = member.adds || !member.follows;
    ring.push_back({names[i], member.incarnation(), member.attach.host(), assignment.shards[i]});
  }
  const std::vector<Place> before = members_.SetRing(std::move(ring));
  SendAllStart(restores, actions);
  report_.GoOnFrom(start_step_, rewound_from);
  BeginGeneration();
  if (rewound_from > 0) RecordRewind(rewound_from, restores);
  if (restores) {
    report_.OnResumed(custody_.found()->ref);
  } else {
    custody_.DropRestore();
  }
  if (!first) RecordRegroup(before, assignment, rewound_from, now);
  ReleaseLeavers();
  custody_.OnRing();
  left_.clear();
  Become(Phase::kRunning, now);
}

void Run::SendAllStart(bool restores, Actions& actions) {
  v1::CoordinatorMessage message;
  v1::Start& start = *message.mutable_start();
  start.set_job_id(job_id_);
  *start.mutable_generation() = ToProto(generation_);
  start.set_start_step(start_step_);
  start.set_evaluated(!restores);
  start.set_silence_ms(static_cast<uint32_t>(options_.silence.count()));
  for (const Place& place : members_.ring()) {
    const Member& member = *Find(place.name);
    v1::RingMember& seat = *start.add_ring();
    seat.set_name(place.name);
    seat.set_incarnation(member.incarnation());
    seat.set_ring_address(member.attach.ring_address());
    seat.mutable_shards()->Add(place.shards.begin(), place.shards.end());
    seat.set_holds(Holds(member, start_step_));
    seat.set_follows(member.follows);
    if (!seat.holds()) continue;
    start.set_digest(member.holding.digest);
    if (!member.holding.evaluated) start.set_evaluated(false);
  }
  *start.mutable_class_maps() = resolved_->result().class_maps();
  start.set_class_map(static_cast<uint32_t>(map_));
  if (restores) {
    start.set_digest(FromHex(custody_.found_digest()).value_or(""));
    start.mutable_restore()->set_job_id(custody_.found()->job_id);
    start.mutable_restore()->set_step(start_step_);
    start.mutable_restore()->set_manifest_sha256(custody_.found()->ref.sha256());
  }
  const auto maps = std::make_shared<const job::ClassMaps>(start.class_maps());
  for (const Place& place : members_.ring()) {
    Member& member = *Find(place.name);
    member.class_maps = maps;
    Send(member, message, actions);
  }
}

void Run::BeginGeneration() {
  digests_.GoOnFrom(start_step_);
  all_finished_at_.reset();
  finished_ = 0;
  for (Member& member : members_) {
    member.joined = false;
    member.finished.reset();
    member.applied = member.holding.applied;
    member.beat = 0;
    if (InRing(member.name())) member.ran = generation_;
    member.watch.Restart();
    member.idle_since.reset();
  }
}

// ---- what is told of it -------------------------------------------------------------------------

void Run::RecordRewind(uint64_t from, bool restores) {
  report_.OnRewind();
  const std::string to =
      restores
          ? fmt::format("the checkpoint of step {} of {}", start_step_, custody_.found()->job_id)
          : fmt::format("the state of step {}, as no checkpoint is newer", start_step_);
  Tell(event_type::kRewound, Severity::kWarning,
       fmt::format("nobody holds the state of step {} any more: back to {}", from, to),
       kJobSubject);
}

// Shards of the first step that are computed a second time: those of workers that were lost, and
// finished ones that their worker may not keep.
uint32_t Run::CountRecomputed(const std::vector<Place>& before) const {
  if (resolved_ && start_step_ >= resolved_->result().total_steps()) return 0;
  size_t count = 0;
  for (const Place& place : before) {
    const Member* member = At(place);
    const bool lost = member == nullptr ? !left_.contains(place.name) : member->owes;
    if (lost) count += place.shards.size();
  }
  for (const Member& member : members_) {
    if (member.owes || member.holding.applied != start_step_) continue;
    const std::optional<size_t> rank = members_.RankOf(member.name());
    const std::vector<uint32_t>& folded = member.holding.folded;
    const bool keeps = rank && std::all_of(folded.begin(), folded.end(), [&](uint32_t shard) {
                         const std::vector<uint32_t>& own = members_.ring()[*rank].shards;
                         return std::find(own.begin(), own.end(), shard) != own.end();
                       });
    if (!keeps) count += folded.size();
  }
  return static_cast<uint32_t>(count);
}

Run::Change Run::Compare(const std::vector<Place>& before) const {
  using Processes = std::set<std::pair<std::string, std::string>>;
  const auto processes = [](const std::vector<Place>& ring) {
    Processes all;
    for (const Place& place : ring) all.emplace(place.name, place.incarnation);
    return all;
  };
  const auto has = [](const Processes& all, const Place& place) {
    return all.contains({place.name, place.incarnation});
  };
  const Processes were = processes(before), are = processes(members_.ring());
  Change change;
  for (const Place& place : before) {
    if (has(are, place)) continue;
    const Member* member = At(place);
    const bool left = left_.contains(place.name) || (member != nullptr && member->leaving);
    (left ? change.left : change.lost).push_back(place.name);
  }
  for (const Place& place : members_.ring()) {
    if (!has(were, place)) change.joined.push_back(place.name);
  }
  return change;
}

void Run::RecordRegroup(const std::vector<Place>& before, const Assignment& assignment,
                        uint64_t rewound_from, Now now) {
  const Change change = Compare(before);
  v1::Regroup record;
  *record.mutable_generation() = ToProto(generation_);
  record.set_start_step(start_step_);
  record.set_reason(fence_.reason());
  for (const std::string& name : change.lost) record.add_lost(name);
  for (const std::string& name : change.left) record.add_lost(name);
  for (const std::string& name : change.joined) record.add_joined(name);
  record.set_shards_kept(assignment.kept);
  record.set_shards_recomputed(rewound_from > 0 ? 0 : CountRecomputed(before));
  record.set_noticed_unix_ms(fence_.unix_ms());
  record.set_fence_ms(static_cast<double>(fence_.lasted(now).count()));
  record.set_rewound(rewound_from > 0);
  record.set_rewound_from(rewound_from);
  TellRegroup(change, record);
  report_.OnRegroup(record);
}

void Run::TellRegroup(const Change& change, const v1::Regroup& record) {
  for (const std::string& name : change.joined) {
    const Member& member = *Find(name);
    Tell(event_type::kWorkerJoined, Severity::kInfo,
         fmt::format("{} joined at step {}{}", member.called(), start_step_,
                     member.follows ? ", and follows the others until it has their state" : ""),
         name);
  }
  std::vector<std::string> names;
  for (const Place& place : members_.ring()) names.push_back(place.name);
  const auto changed = [](const char* what, const std::vector<std::string>& who) {
    return who.empty() ? "" : fmt::format("; {} {}", what, List(who));
  };
  Tell(event_type::kRegrouped, Severity::kInfo,
       fmt::format("generation {} begins at step {} on {}{}{}{}; {} of {} shards were finished, {} "
                   "are computed again",
                   generation_.ToString(), start_step_, List(names), changed("lost", change.lost),
                   changed("left", change.left), changed("joined", change.joined),
                   record.shards_kept(), shards_, record.shards_recomputed()),
       kJobSubject);
}

}  // namespace ringmaster::coordinator
