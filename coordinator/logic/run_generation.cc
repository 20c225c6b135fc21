// A generation begins: where, with which shards, and what is told of it.
#include <algorithm>
#include <utility>

#include "common/planted_bug.h"
#include "coordinator/logic/run.h"

namespace ringmaster::coordinator {
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

double Milliseconds(std::chrono::milliseconds time) { return static_cast<double>(time.count()); }

}  // namespace

void Run::SendStart(const std::vector<std::string>& names, Now now, Actions& actions) {
  const bool first = !std::exchange(started_, true);
  uint64_t highest = HighestApplied(names);
  if (RING_PLANTED(kStartsAtLowest)) highest = Find(names.back())->holding.applied;
  const bool restores = restore_ && restore_->found && restore_->found->ref.step() > highest;
  const uint64_t step = restores ? restore_->found->ref.step() : highest;
  const uint64_t rewound_from = step < committed_ ? committed_ : 0;
  generation_ = regroup_->generation;
  start_step_ = step;
  started_at_ = now.steady;
  committed_ = rewound_from > 0 ? step : committed_;

  std::vector<Seat> seats;
  for (const std::string& name : names) {
    const Member& member = *Find(name);
    const bool holds = member.holding.applied == step;
    seats.push_back(
        {member.attach.cores(), holds ? member.holding.folded : std::vector<uint32_t>()});
  }
  const Assignment assignment = Assign(shards_, seats);
  std::vector<Place> ring;
  for (size_t i = 0; i < names.size(); ++i) {
    const Member& member = *Find(names[i]);
    ring.push_back({names[i], member.incarnation(), member.attach.host(), assignment.shards[i]});
  }
  const std::vector<Place> before = std::exchange(ring_, std::move(ring));
  SendAllStart(restores, actions);
  BeginGeneration();
  if (rewound_from > 0) RecordRewind(rewound_from, restores);
  if (restores) {
    resumed_from_ = restore_->found->ref;
  } else {
    restore_.reset();
  }
  if (!first) RecordRegroup(before, assignment, rewound_from, now);
  ReleaseLeavers();
  regroup_.reset();
  lost_holders_.clear();
  left_.clear();
  holder_deadline_.reset();
  state_ = v1::JOB_STATE_RUNNING;
  reason_.clear();
  Enter(Phase::kRunning, options_.stall_limit, now);
}

void Run::SendAllStart(bool restores, Actions& actions) {
  v1::CoordinatorMessage message;
  v1::Start& start = *message.mutable_start();
  start.set_job_id(job_id_);
  *start.mutable_generation() = ToProto(generation_);
  start.set_start_step(start_step_);
  start.set_evaluated(!restores);
  start.set_silence_ms(static_cast<uint32_t>(options_.silence.count()));
  for (const Place& place : ring_) {
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
  if (restores) {
    start.set_digest(Unhex(restore_->digest));
    start.mutable_restore()->set_job_id(restore_->found->job_id);
    start.mutable_restore()->set_step(start_step_);
    start.mutable_restore()->set_manifest_sha256(restore_->found->ref.sha256());
  }
  for (const Place& place : ring_) Send(*Find(place.name), message, actions);
}

void Run::BeginGeneration() {
  digests_.GoOnFrom(start_step_);
  all_finished_at_.reset();
  for (Member& member : members_) {
    member.joined = false;
    member.finished.reset();
    member.applied = member.holding.applied;
    member.watch.Restart();
    member.idle_since.reset();
  }
  if (start_step_ < newest_.applied()) newest_.set_applied(start_step_);
}

// ---- what is told of it -------------------------------------------------------------------------

void Run::RecordRewind(uint64_t from, bool restores) {
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
    const auto place = std::find_if(ring_.begin(), ring_.end(),
                                    [&](const Place& p) { return p.name == member.name(); });
    const std::vector<uint32_t>& folded = member.holding.folded;
    const bool keeps =
        place != ring_.end() && std::all_of(folded.begin(), folded.end(), [&](uint32_t shard) {
          return std::find(place->shards.begin(), place->shards.end(), shard) !=
                 place->shards.end();
        });
    if (!keeps) count += folded.size();
  }
  return static_cast<uint32_t>(count);
}

Run::Change Run::Compare(const std::vector<Place>& before) const {
  const auto has = [](const std::vector<Place>& ring, const Place& other) {
    return std::any_of(ring.begin(), ring.end(), [&](const Place& p) {
      return p.name == other.name && p.incarnation == other.incarnation;
    });
  };
  Change change;
  for (const Place& place : before) {
    if (has(ring_, place)) continue;
    const Member* member = At(place);
    const bool left = left_.contains(place.name) || (member != nullptr && member->leaving);
    (left ? change.left : change.lost).push_back(place.name);
  }
  for (const Place& place : ring_) {
    if (!has(before, place)) change.joined.push_back(place.name);
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
  record.set_fence_ms(Milliseconds(now.steady - regroup_->begun));
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
  for (const Place& place : ring_) names.push_back(place.name);
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

void Run::OnJoined(Member& from, const v1::Joined& said, Now now) {
  if (phase_ != Phase::kRunning || !IsCurrent(said.generation()) || !InRing(from.name())) return;
  from.joined = true;
  from.applied = std::max(from.applied, start_step_);
  RaiseCommitted();
  if (regroups_.empty() || FromProto(regroups_.back().generation()) != generation_) return;
  const bool all = std::all_of(ring_.begin(), ring_.end(), [&](const Place& place) {
    const Member* member = At(place);
    return member != nullptr && member->joined;
  });
  if (!all || regroups_.back().form_ms() > 0) return;
  // 0 would mean: not yet.
  regroups_.back().set_form_ms(std::max(1.0, Milliseconds(now.steady - started_at_)));
}

}  // namespace ringmaster::coordinator
