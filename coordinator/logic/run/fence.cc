#include "coordinator/logic/run/fence.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <set>
#include <unordered_set>
#include <utility>

namespace ringmaster::coordinator {

std::vector<const Member*> Fence::Begin(const GenerationId& generation, FenceWhen when,
                                        const std::string& reason, Membership& members,
                                        const Test& may, Now now) {
  std::set<std::string> asked;
  std::vector<const Member*> fenced;
  for (Member& member : members) {
    if (member.role != Role::kReady || !may(member)) continue;
    const bool answers = !member.owes || (under_way_ && asked_.contains(member.name()));
    if (answers && !Silent(member, now)) asked.insert(member.name());
    Owe(member, generation);
    fenced.push_back(&member);
  }
  if (!under_way_) {
    reason_ = reason;
    begun_ = now.steady;
    unix_ms_ = now.unix_ms;
  }
  under_way_ = true;
  generation_ = generation;
  when_ = when;
  asked_ = std::move(asked);
  deadline_ = now.steady + options_.fence_limit;
  return fenced;
}

void Fence::End() {
  under_way_ = false;
  asked_.clear();
  accusation_.reset();
}

void Fence::Include(Member& member, bool waits) {
  if (waits) asked_.insert(member.name());
  Owe(member, generation_);
}

void Fence::Owe(Member& member, const GenerationId& generation) {
  member.fence = generation;
  member.owes = true;
}

void Fence::Acknowledge(Member& member, const v1::FenceAck& said) {
  member.holding.applied = said.applied();
  member.holding.digest = said.digest();
  member.holding.folded.assign(said.folded().begin(), said.folded().end());
  member.holding.evaluated = said.evaluated();
  member.applied = said.applied();
  member.owes = false;
  member.lost_told = false;
}

bool Fence::Silent(const Member& member, Now now) const {
  const bool accused = under_way_ && accusation_ && accusation_->accused == member.name();
  return member.silent_for(now) > (accused ? options_.accused_silence() : options_.silence);
}

bool Fence::Over(const Membership& members, Now now) const {
  return std::ranges::all_of(asked_, [&](const std::string& name) {
    const Member* member = members.Find(name);
    if (member == nullptr || !member->owes) return true;
    // A step that cannot end has no boundary: the ring is asked again, at once.
    if (at_boundary() && members.RankOf(name)) return false;
    return Silent(*member, now) || now.steady >= deadline_;
  });
}

std::vector<std::string> Fence::Unanswered(const Membership& members) const {
  std::vector<std::string> names;
  for (const std::string& name : asked_) {
    const Member* member = members.Find(name);
    if (member != nullptr && member->owes) names.push_back(name);
  }
  return names;
}

std::vector<std::string> Fence::Answered(const Membership& members, const Test& may) const {
  std::vector<std::string> names;
  std::unordered_set<std::string> taken;
  const auto take = [&](const Member& member) {
    if (member.fence != generation_ || !may(member)) return;
    if (taken.insert(member.name()).second) names.push_back(member.name());
  };
  for (const Place& place : members.ring()) {
    if (const Member* member = members.At(place); member != nullptr) take(*member);
  }
  std::vector<const Member*> others;
  for (const Member& member : members) others.push_back(&member);
  std::ranges::sort(others, [](const Member* a, const Member* b) {
    return a->holding.applied != b->holding.applied ? a->holding.applied > b->holding.applied
                                                    : a->name() < b->name();
  });
  for (const Member* const member : others) take(*member);
  return names;
}

std::optional<Fence::BadLink> Fence::JudgeAccusation(const std::vector<std::string>& answered,
                                                     const Membership& members, Now now) {
  const std::optional<Accusation> accusation = std::exchange(accusation_, std::nullopt);
  if (!accusation) return std::nullopt;
  const std::unordered_set<std::string> there(answered.begin(), answered.end());
  if (!there.contains(accusation->accuser) || !there.contains(accusation->accused)) {
    return std::nullopt;
  }
  const auto lost = [&](const Place& place) { return !there.contains(place.name); };
  if (std::ranges::any_of(members.ring(), lost)) return std::nullopt;
  const bool again = suspicions_.Add(*accusation, now);
  if (!again && OrderRing(answered, suspicions_.BadPairs(now))) return std::nullopt;
  const std::string& a = accusation->accuser;
  const std::string& b = accusation->accused;
  const size_t by_a = suspicions_.AccusersOf(a, now), by_b = suspicions_.AccusersOf(b, now);
  // Who attached later has the larger session.
  bool a_goes = by_a != by_b ? by_a > by_b : members.Find(a)->session > members.Find(b)->session;
  // Without the only holder the job would go back to a checkpoint.
  if (members.HoldsAlone(a_goes ? a : b, answered)) a_goes = !a_goes;
  return BadLink{a_goes ? a : b, fmt::format("{} and {} do not reach each other, although both "
                                             "acknowledged the fence",
                                             a, b)};
}

Fence::Seating Fence::Seat(const std::vector<std::string>& names, const Membership& members,
                           Now now) const {
  if (names.size() < 2) return {names, ""};
  const std::set<BadPair> bad = suspicions_.BadPairs(now);
  if (auto ring = OrderRing(names, bad)) return {*std::move(ring), ""};
  // Links that were bad before, and a ring that became too small to avoid them: it is an end of one
  // that goes.
  std::vector<std::string> ends;
  std::ranges::copy_if(names, std::back_inserter(ends), [&](const std::string& name) {
    return std::ranges::any_of(
        names, [&](const std::string& other) { return bad.contains(MakeBadPair(name, other)); });
  });
  const auto later = [&](const std::string& a, const std::string& b) {
    if (members.HoldsAlone(a, names) || members.HoldsAlone(b, names)) {
      return members.HoldsAlone(a, names);
    }
    const size_t by_a = suspicions_.AccusersOf(a, now), by_b = suspicions_.AccusersOf(b, now);
    return by_a != by_b ? by_a < by_b : members.Find(a)->session < members.Find(b)->session;
  };
  return {{}, *std::ranges::max_element(ends, later)};
}

}  // namespace ringmaster::coordinator
