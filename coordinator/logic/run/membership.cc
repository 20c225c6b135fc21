#include "coordinator/logic/run/membership.h"

#include <utility>

#include "common/planted_bug.h"

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
  RING_COUNT_WORK();
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

}  // namespace ringmaster::coordinator
