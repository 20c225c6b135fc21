// From the fence to those who will be in the next generation: who answers, and who is left out.

#include <algorithm>
#include <set>
#include <unordered_set>
#include <utility>

#include "common/planted_bug.h"
#include "coordinator/logic/run/ring.h"
#include "coordinator/logic/run/run.h"

namespace ringmaster::coordinator {
namespace {

bool Has(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

}  // namespace

// Of one that a neighbour accuses less is waited for: two of its connections say the same.
bool Run::Silent(const Member& member, Now now) const {
  const bool accused = regroup_ && accusation_ && accusation_->accused == member.name();
  return member.silent_for(now) > (accused ? options_.accused_silence() : options_.silence);
}

// May be in the next generation.
bool Run::Eligible(const Member& member, Now now) const {
  return member.role == Role::kReady && !member.owes && !member.leaving && !Silent(member, now) &&
         !Barred(member.attach, now);
}

size_t Run::CountEligible(Now now) const {
  return static_cast<size_t>(std::count_if(members_.begin(), members_.end(),
                                           [&](const Member& m) { return Eligible(m, now); }));
}

// ---- the fence ----------------------------------------------------------------------------------

void Run::SendFence(Member& member, const GenerationId& generation, FenceWhen when,
                    Actions& actions) const {
  v1::CoordinatorMessage message;
  message.mutable_fence()->set_job_id(job_id_);
  *message.mutable_fence()->mutable_generation() = ToProto(generation);
  message.mutable_fence()->set_at_boundary(when == FenceWhen::kAtBoundary);
  message.mutable_fence()->set_verify_state(disagreement_.has_value());
  Send(member, message, actions);
  member.fence = generation;
  member.owes = true;
}

// Everybody who is ready is fenced; those who owed nothing and are heard are waited for. A fence
// that replaces one at a boundary waits for the same ones, and keeps what was noticed first.
void Run::BeginFence(FenceWhen when, const std::string& reason, Now now, Actions& actions) {
  Regroup next;
  next.generation = generations_.Next();
  next.when = when;
  next.reason = regroup_ ? regroup_->reason : reason;
  next.begun = regroup_ ? regroup_->begun : now.steady;
  next.unix_ms = regroup_ ? regroup_->unix_ms : now.unix_ms;
  next.deadline = now.steady + options_.fence_limit;
  for (Member& member : members_) {
    member.finished.reset();  // it says so again in the next generation
    if (member.role != Role::kReady || Barred(member.attach, now)) continue;
    const bool asked = !member.owes || (regroup_ && regroup_->asked.contains(member.name()));
    if (asked && !Silent(member, now)) next.asked.insert(member.name());
    SendFence(member, next.generation, when, actions);
  }
  finished_ = 0;
  if (started_)
    actions.push_back(Note{"job=" + job_id_, fmt::format("fences generation {}: {}",
                                                         next.generation.ToString(), reason)});
  regroup_ = std::move(next);
  Become(Phase::kFencing, now);
}

Fault Run::OnFenceAck(Member& from, const v1::FenceAck& said) {
  if (from.role != Role::kReady || phase_ == Phase::kStopping) return {};
  if (FromProto(said.generation()) != from.fence) return {};  // of an older fence
  const uint64_t total = resolved_->result().total_steps();
  if (said.applied() > total) {
    return {Cause::kProtocolViolation,
            fmt::format("{} says that it holds step {}, but the job has {} steps", from.called(),
                        said.applied(), total),
            from.name()};
  }
  if (Fault fault = CheckDigests(from, said.applied(), said.digests()); !fault.ok()) return fault;
  if (Fault fault = CheckDigest(from, said.applied(), said.digest()); !fault.ok()) return fault;
  from.holding.applied = said.applied();
  from.holding.digest = said.digest();
  from.holding.folded.assign(said.folded().begin(), said.folded().end());
  from.holding.evaluated = said.evaluated();
  from.applied = said.applied();
  from.owes = false;
  from.lost_told = false;
  RaiseCommitted();
  return {};
}

Fault Run::StepFencing(Now now, Actions& actions) {
  if (regroup_->when == FenceWhen::kAtBoundary && FenceAtOnce(now, actions)) return {};
  return FenceOver(now) ? Conclude(now, actions) : Fault();
}

// Everyone who was asked has acknowledged, or is out: gone, silent, or too late.
bool Run::FenceOver(Now now) {
  const bool at_boundary = regroup_->when == FenceWhen::kAtBoundary;
  return std::all_of(regroup_->asked.begin(), regroup_->asked.end(), [&](const std::string& name) {
    const Member* member = Find(name);
    if (member == nullptr || !member->owes) return true;
    // A step that cannot end has no boundary: StepFencing asks the ring again, at once.
    if (at_boundary && InRing(name)) return false;
    return Silent(*member, now) || now.steady >= regroup_->deadline;
  });
}

std::vector<std::string> Run::Answered(Now now) {
  std::vector<std::string> names;
  std::unordered_set<std::string> taken;
  const auto take = [&](const std::string& name) {
    const Member* member = Find(name);
    if (member == nullptr || member->fence != regroup_->generation) return;
    if (Eligible(*member, now) && taken.insert(name).second) names.push_back(name);
  };
  for (const Place& place : members_.ring()) {
    if (At(place) != nullptr) take(place.name);
  }
  std::vector<std::string> others;  // who has more first, else by name
  for (const Member& member : members_) others.push_back(member.name());
  std::sort(others.begin(), others.end(), [&](const std::string& a, const std::string& b) {
    const uint64_t has_a = Find(a)->holding.applied, has_b = Find(b)->holding.applied;
    return has_a != has_b ? has_a > has_b : a < b;
  });
  for (const std::string& name : others) take(name);
  return names;
}

uint64_t Run::HighestApplied(const std::vector<std::string>& names) const {
  uint64_t highest = 0;
  for (const std::string& name : names) highest = std::max(highest, Find(name)->holding.applied);
  return highest;
}

bool Run::Evaluated(const std::vector<std::string>& names, uint64_t step) const {
  return std::ranges::all_of(names, [&](const std::string& name) {
    const Holding& holding = Find(name)->holding;
    return holding.applied != step || holding.evaluated;
  });
}

bool Run::HoldsAlone(const std::string& name, const std::vector<std::string>& names) {
  const uint64_t highest = HighestApplied(names);
  return std::all_of(names.begin(), names.end(), [&](const std::string& each) {
    return (Find(each)->holding.applied == highest) == (each == name);
  });
}

void Run::TellUnanswered(Now now) {
  for (const std::string& name : regroup_->asked) {
    Member* member = Find(name);
    if (member == nullptr || !member->owes || member->lost_told) continue;
    member->lost_told = true;
    last_loss_ = fmt::format(
        "{} was lost {}: it did not acknowledge the fence of generation {}, {}", member->called(),
        coordinator::At(std::max(committed_, member->applied), PhaseOf(*member)),
        regroup_->generation.ToString(),
        Silent(*member, now)
            ? fmt::format("and was silent for {} ms", member->silent_for(now).count())
            : fmt::format("for {} ms", options_.fence_limit.count()));
    Tell(event_type::kWorkerLost, Severity::kWarning, last_loss_, name);
  }
}

// ---- who is in ----------------------------------------------------------------------------------

Fault Run::Conclude(Now now, Actions& actions) {
  TellUnanswered(now);
  if (disagreement_) {
    const GenerationId fence = regroup_->generation;
    if (Fault fault = SettleDisagreement(now, actions); !fault.ok()) return fault;
    if (regroup_->generation != fence) return {};
  }
  std::vector<std::string> names = Answered(now);
  LeaveOutSpoilt(names);
  LeaveOutAccused(names, now);
  LeaveOutSlow(names, now);
  const bool enough = Enough(names);
  const uint64_t highest = HighestApplied(names);
  if (enough && highest >= NeededStep()) restore_.reset();
  if (!enough && !started_) {
    requeue_ = last_loss_;
    return {};
  }
  if (!enough || (highest < NeededStep() && !restore_)) {
    Become(Phase::kWaiting, now);
    return {};
  }
  const uint64_t step = StepFor(names);
  const bool evaluated = step == highest && Evaluated(names, step);
  ChooseMap(step, evaluated);
  if (!Enough(names)) {  // of another map than before
    Become(Phase::kWaiting, now);
    return {};
  }
  if (!MissingClasses(names).empty()) FallBack(names, step, evaluated);
  names = TakeSeats(std::move(names), now);
  if (!Enough(names) || !MissingClasses(names).empty() ||
      (HighestApplied(names) < NeededStep() && !restore_)) {
    Become(Phase::kWaiting, now);
    return {};
  }
  SendStart(names, now, actions);
  return {};
}

// Both ends of the accused link answered, and nobody else was lost: the link is bad.
void Run::LeaveOutAccused(std::vector<std::string>& names, Now now) {
  const std::optional<Accusation> accusation = std::exchange(accusation_, std::nullopt);
  if (!accusation || !Has(names, accusation->accuser) || !Has(names, accusation->accused)) return;
  const std::unordered_set<std::string> answered(names.begin(), names.end());
  const bool lost_one =
      std::any_of(members_.ring().begin(), members_.ring().end(),
                  [&](const Place& place) { return !answered.contains(place.name); });
  if (lost_one) return;
  const bool again = suspicions_.Add(*accusation, now);
  const std::string& a = accusation->accuser;
  const std::string& b = accusation->accused;
  if (!again && OrderRing(names, suspicions_.BadPairs(now))) return;
  const size_t by_a = suspicions_.AccusersOf(a, now), by_b = suspicions_.AccusersOf(b, now);
  // Who attached later has the larger session.
  bool a_goes = by_a != by_b ? by_a > by_b : Find(a)->session > Find(b)->session;
  // Without the only holder the job would go back to a checkpoint.
  if (HoldsAlone(a_goes ? a : b, names)) a_goes = !a_goes;
  const std::string out = a_goes ? a : b;
  Evict(
      out,
      fmt::format("{} and {} do not reach each other, although both acknowledged the fence", a, b),
      now);
  std::erase(names, out);
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
  while (names.size() > 1) {
    std::optional<std::vector<std::string>> order = OrderRing(names, suspicions_.BadPairs(now));
    if (order) return *std::move(order);
    // Links that were bad before, and a ring that became too small to avoid them.
    const std::string out = *std::max_element(
        names.begin(), names.end(), [&](const std::string& a, const std::string& b) {
          if (HoldsAlone(a, names) || HoldsAlone(b, names)) return HoldsAlone(a, names);
          const size_t by_a = suspicions_.AccusersOf(a, now), by_b = suspicions_.AccusersOf(b, now);
          return by_a != by_b ? by_a < by_b : Find(a)->session < Find(b)->session;
        });
    Evict(out, "its links are bad, and this ring is too small to avoid them", now);
    std::erase(names, out);
  }
  return names;
}

// A generation begins: where, with which shards, and what is told of it.

namespace {

std::string List(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

std::string Unhex(const std::string& hex) {
  std::string bytes;
  for (size_t i = 0; i + 1 < hex.size(); i += 2) {
    bytes += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
  }
  return bytes;
}

}  // namespace

// K of a generation of these.
uint64_t Run::StepFor(const std::vector<std::string>& names) const {
  uint64_t highest = HighestApplied(names);
  if (RING_PLANTED(kStartsAtLowest)) highest = Find(names.back())->holding.applied;
  const bool restores = restore_ && restore_->found && restore_->found->ref.step() > highest;
  return restores ? restore_->found->ref.step() : highest;
}

void Run::SendStart(const std::vector<std::string>& names, Now now, Actions& actions) {
  const bool first = !std::exchange(started_, true);
  const uint64_t step = StepFor(names);
  const bool restores = restore_ && restore_->found && restore_->found->ref.step() == step &&
                        step > HighestApplied(names);
  const uint64_t rewound_from = step < committed_ ? committed_ : 0;
  generation_ = regroup_->generation;
  start_step_ = step;
  started_at_ = now.steady;
  committed_ = rewound_from > 0 ? step : committed_;

  std::vector<Seat> seats;
  for (const std::string& name : names) {
    const Member& member = *Find(name);
    const bool holds = member.holding.applied == step;
    seats.push_back({member.attach.cores(), holds ? member.holding.folded : std::vector<uint32_t>(),
                     member.class_name, KnownPace(member)});
  }
  const Assignment assignment = Assign(map(), seats);
  std::vector<Place> ring;
  for (size_t i = 0; i < names.size(); ++i) {
    const Member& member = *Find(names[i]);
    ring.push_back({names[i], member.incarnation(), member.attach.host(), assignment.shards[i]});
  }
  const std::vector<Place> before = members_.SetRing(std::move(ring));
  SendAllStart(restores, actions);
  // Also what a member that is gone said of a step that nobody else had reached.
  if (std::max(newest_.applied(), rewound_from) > start_step_) history_.GoBack(start_step_);
  BeginGeneration();
  if (rewound_from > 0) RecordRewind(rewound_from, restores);
  if (restores) {
    resumed_from_ = restore_->found->ref;
  } else {
    restore_.reset();
  }
  if (!first) RecordRegroup(before, assignment, rewound_from, now);
  ReleaseLeavers();
  lost_holders_.clear();
  left_.clear();
  holder_deadline_.reset();
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
    seat.set_holds(member.holding.applied == start_step_);
    if (!seat.holds()) continue;
    start.set_digest(member.holding.digest);
    if (!member.holding.evaluated) start.set_evaluated(false);
  }
  *start.mutable_class_maps() = resolved_->result().class_maps();
  start.set_class_map(static_cast<uint32_t>(map_));
  if (restores) {
    start.set_digest(Unhex(restore_->digest));
    start.mutable_restore()->set_job_id(restore_->found->job_id);
    start.mutable_restore()->set_step(start_step_);
    start.mutable_restore()->set_manifest_sha256(restore_->found->ref.sha256());
  }
  for (const Place& place : members_.ring()) Send(*Find(place.name), message, actions);
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
  if (start_step_ < newest_.applied()) newest_.set_applied(start_step_);
}

// ---- what is told of it -------------------------------------------------------------------------

void Run::RecordRewind(uint64_t from, bool restores) {
  ++rewinds_;
  const std::string to =
      restores
          ? fmt::format("the checkpoint of step {} of {}", start_step_, restore_->found->job_id)
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
  v1::Regroup& record = regroups_.emplace_back();
  *record.mutable_generation() = ToProto(generation_);
  record.set_start_step(start_step_);
  record.set_reason(regroup_->reason);
  for (const std::string& name : change.lost) record.add_lost(name);
  for (const std::string& name : change.left) record.add_lost(name);
  for (const std::string& name : change.joined) record.add_joined(name);
  record.set_shards_kept(assignment.kept);
  record.set_shards_recomputed(rewound_from > 0 ? 0 : CountRecomputed(before));
  record.set_noticed_unix_ms(regroup_->unix_ms);
  record.set_fence_ms(static_cast<double>((now.steady - regroup_->begun).count()));
  record.set_rewound(rewound_from > 0);
  record.set_rewound_from(rewound_from);
  recomputed_ += record.shards_recomputed();
  ++regroup_count_;
  TellRegroup(change, record);
  if (regroups_.size() > static_cast<size_t>(options_.max_regroups)) {
    regroups_.erase(regroups_.begin());
  }
}

void Run::TellRegroup(const Change& change, const v1::Regroup& record) {
  for (const std::string& name : change.joined) {
    Tell(event_type::kWorkerJoined, Severity::kInfo,
         fmt::format("{} joined at step {}", Find(name)->called(), start_step_), name);
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
