#include "coordinator/logic/run/membership.h"

#include <algorithm>
#include <utility>

namespace ringmaster::coordinator {

Member& Membership::Add(Member member) {
  numbers_[member.name()] = members_.size();
  return members_.emplace_back(std::move(member));
}

void Membership::Remove(const std::string& name) {
  const auto found = numbers_.find(name);
  if (found == numbers_.end()) return;
  const size_t gone = found->second;
  numbers_.erase(found);
  members_.erase(members_.begin() + static_cast<std::ptrdiff_t>(gone));
  for (size_t i = gone; i < members_.size(); ++i) numbers_[members_[i].name()] = i;
}

const Member* Membership::Find(const std::string& name) const {
  const auto number = numbers_.find(name);
  return number == numbers_.end() ? nullptr : &members_[number->second];
}

Member* Membership::Find(const std::string& name) {
  return const_cast<Member*>(std::as_const(*this).Find(name));
}

std::vector<Place> Membership::SetRing(std::vector<Place> ring) {
  std::vector<Place> before = std::exchange(ring_, std::move(ring));
  ranks_.clear();
  for (size_t rank = 0; rank < ring_.size(); ++rank) ranks_[ring_[rank].name] = rank;
  return before;
}

void Membership::Recognize(const std::string& name, const std::string& incarnation) {
  const auto rank = ranks_.find(name);
  if (rank != ranks_.end()) ring_[rank->second].incarnation = incarnation;
}

const Member* Membership::At(const Place& place) const {
  const Member* member = Find(place.name);
  return member != nullptr && member->incarnation() == place.incarnation ? member : nullptr;
}

Member* Membership::At(const Place& place) {
  return const_cast<Member*>(std::as_const(*this).At(place));
}

std::optional<size_t> Membership::RankOf(const std::string& name) const {
  const auto rank = ranks_.find(name);
  if (rank == ranks_.end() || At(ring_[rank->second]) == nullptr) return std::nullopt;
  return rank->second;
}

uint64_t Membership::HighestApplied(const Names& names) const {
  uint64_t highest = 0;
  for (const std::string& name : names) highest = std::max(highest, Find(name)->holding.applied);
  return highest;
}

bool Membership::Evaluated(const Names& names, uint64_t step) const {
  return std::ranges::all_of(names, [&](const std::string& name) {
    const Holding& holding = Find(name)->holding;
    return holding.applied != step || holding.evaluated;
  });
}

bool Membership::HoldsAlone(const std::string& name, const Names& names) const {
  const uint64_t highest = HighestApplied(names);
  return std::ranges::all_of(names, [&](const std::string& each) {
    return (Find(each)->holding.applied == highest) == (each == name);
  });
}

}  // namespace ringmaster::coordinator
