// Who comes and who goes: workers that join, come back after a restart, are lost, let go, evicted,
// or leave.
#include <algorithm>
#include <utility>

#include "common/job/class_map.h"
#include "common/planted_bug.h"
#include "coordinator/logic/run/run.h"

namespace ringmaster::coordinator {

Member& Run::Add(const Worker& worker, Role role, Now now) {
  Member member;
  member.attach = worker.attach;
  member.class_name = worker.class_name;
  member.session = worker.session;
  member.role = role;
  member.since = now.steady;
  member.last_heard = now.heard;
  member.leaving = worker.draining;
  return members_.Add(std::move(member));
}

void Run::Join(const Worker& worker, Now now, Actions& actions) {
  SendInspect(Add(worker, Role::kInspecting, now), actions);
}

bool Run::MayReturn(const v1::Attach& attach) const {
  if (!started_ || phase_ == Phase::kStopping || phase_ == Phase::kDone) return false;
  if (attach.applied() > resolved_->result().total_steps()) return false;
  if (IsSpoilt(FromProto(attach.generation()), attach.applied())) return false;
  if (attach.known_shard_sha256_size() != static_cast<int>(attach.cores())) return false;
  const v1::MappedClass* its = job::FindClass(map(), attach.numerics_class());
  const v1::KnownShard* wanted = its == nullptr ? nullptr : KnownShardOf(its->class_());
  if (wanted == nullptr) return false;
  const auto& known = attach.known_shard_sha256();
  return std::all_of(known.begin(), known.end(),
                     [&](const std::string& core) { return core == wanted->sha256(); });
}

void Run::Return(const Worker& worker, Now now, Actions& actions) {
  const v1::Attach& attach = worker.attach;
  // The term was raised since: whoever obeyed the new one obeys no fence of the old one.
  if (fence_.under_way() && fence_.generation().term < generations_.term()) {
    BeginFence(fence_.when(), "the term was raised", now, actions);
  }
  Member& member = Add(worker, Role::kReady, now);
  member.holding = {FromProto(attach.generation()), attach.applied(), attach.digest(), {}, false};
  member.applied = attach.applied();
  member.ran = member.holding.started;
  (void)custody_.Settle(attach.name());
  if (phase_ == Phase::kAdopting) {
    members_.Recognize(member.name(), member.incarnation());
    member.fence = generation_;
    if (InRing(member.name()) && member.holding.started != generation_) {
      deadline_ = std::min(deadline_, now.steady + options_.settle);
    }
    return;
  }
  // It may still run an old generation, and shows that it lives by acknowledging a fence: the one
  // that is under way, or one of its own.
  Tell(event_type::kWorkerReturned, Severity::kInfo,
       fmt::format("{} attached again, with the state of step {}", member.called(),
                   attach.applied()),
       attach.name());
  if (fence_.under_way()) {
    fence_.Include(member, InRing(member.name()) && !Barred(attach, now));
    SendFence(member, fence_.when(), actions);
  } else {
    Fence::Owe(member, generations_.Next());
    SendFence(member, FenceWhen::kNow, actions);
  }
}

void Run::OnStranger(const v1::Attach& attach, Now now) {
  if (!custody_.Settle(attach.name()) || phase_ != Phase::kAdopting) return;
  deadline_ = std::min(deadline_, now.steady + options_.settle);
}

void Run::OnLost(const std::string& worker, const std::string& why, uint64_t applied) {
  const Member* member = Find(worker);
  if (member == nullptr) return;
  if (phase_ == Phase::kStopping) return Remove(worker);
  CatchUp();
  const uint64_t step = std::max({applied, committed_, member->applied});
  last_loss_ = fmt::format("{} was lost {}: {}", member->called(),
                           coordinator::At(step, PhaseOf(*member)), why);
  if (!member->lost_told) {
    Tell(event_type::kWorkerLost, Severity::kWarning, last_loss_, worker);
  }
  Remove(worker);
}

void Run::Remove(const std::string& worker) {
  CatchUp();
  const Member* member = Find(worker);
  if (member == nullptr) return;
  const uint64_t has = std::max(member->holding.applied, member->applied);
  if (started_ && member->role == Role::kReady && has >= committed_) {
    custody_.Lose(worker, member->incarnation());
  }
  phases_.Remove(worker);
  if (member->finished) --finished_;
  members_.Remove(worker);
}

// By value: it may be the name inside what is removed.
// NOLINTNEXTLINE(performance-unnecessary-value-param)
void Run::LetGo(std::string worker, bool evicted, const std::string& reason) {
  const Member* member = Find(worker);
  if (member == nullptr) return;
  if (!RING_PLANTED(kForgetsRelease)) {
    departures_.push_back({member->session, evicted, member->data_differs, reason});
  }
  Remove(worker);
  if (!evicted) (void)custody_.Settle(worker);  // it drops what it has
}

// By value: it may be the name inside what is removed.
// NOLINTNEXTLINE(performance-unnecessary-value-param)
void Run::Evict(std::string worker, const std::string& why, Now now) {
  const Member* member = Find(worker);
  if (member == nullptr) return;
  const auto bar = readmission_.Bar(worker, member->incarnation(), now);
  last_loss_ = fmt::format("{} was left out {}: {}; it may join again after {}", member->called(),
                           coordinator::At(committed_, PhaseOf(*member)), why,
                           FormatSeconds(std::chrono::duration<double>(bar).count()));
  Tell(event_type::kWorkerLost, Severity::kWarning, last_loss_, worker);
  fence_.Forget(worker);
  LetGo(worker, true, why);
}

// By value: it may be the name inside what is removed.
// NOLINTNEXTLINE(performance-unnecessary-value-param)
void Run::RefuseJoiner(std::string worker, const std::string& why, Now now) {
  const Member* member = Find(worker);
  if (member == nullptr) return;
  const auto bar = readmission_.Bar(worker, member->incarnation(), now);
  Tell(event_type::kWorkerRefused, Severity::kWarning,
       fmt::format("{} cannot take part: {}; it is tried again after {}", member->called(), why,
                   FormatSeconds(std::chrono::duration<double>(bar).count())),
       worker);
  LetGo(worker, false, why);
}

void Run::Leave(const std::string& worker, const std::string& why) {
  Member* member = Find(worker);
  if (member == nullptr || member->leaving) return;
  member->leaving = true;
  member->leaves_why = why;
  if (started_) return;  // at a boundary
  last_loss_ = fmt::format("{} left: {}", member->called(), why);
  Tell(event_type::kWorkerLeft, Severity::kInfo, last_loss_, worker);
  LetGo(worker, false, why);
}

void Run::Stay(const std::string& worker) {
  Member* member = Find(worker);
  if (member != nullptr) member->leaving = false;
}

size_t Run::room() const {
  const bool open = phase_ == Phase::kFencing || phase_ == Phase::kRunning ||
                    phase_ == Phase::kWaiting || phase_ == Phase::kSearching;
  if (!open || !started_ || AnyFinished()) return 0;
  const auto stays = static_cast<size_t>(
      std::count_if(members_.begin(), members_.end(), [](const Member& m) { return !m.leaving; }));
  return most_ - std::min(most_, stays);
}

std::map<std::string, size_t> Run::rooms() const {
  std::map<std::string, size_t> rooms;
  for (const v1::MappedClass& each : map().classes()) rooms[each.class_()] = each.shards();
  for (const Member& member : members_) {
    if (size_t& room = rooms[member.class_name]; !member.leaving && room > 0) --room;
  }
  return rooms;
}

}  // namespace ringmaster::coordinator
