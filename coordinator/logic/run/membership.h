// The members of a job, in the order in which they came, and the places of its ring, both found by
// name at once however many there are. A value, owned by Run, loop thread only. It decides nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "coordinator/logic/run/member.h"

namespace ringmaster::coordinator {

// A worker's place in the current ring. After a restart its process is not known until it is back.
struct Place {
  std::string name, incarnation, host;
  std::vector<uint32_t> shards;
};

class Membership {
 public:
  using Iterator = std::vector<Member>::iterator;
  using ConstIterator = std::vector<Member>::const_iterator;

  [[nodiscard]] const std::vector<Member>& all() const { return members_; }
  Iterator begin() { return members_.begin(); }
  Iterator end() { return members_.end(); }
  [[nodiscard]] ConstIterator begin() const { return members_.begin(); }
  [[nodiscard]] ConstIterator end() const { return members_.end(); }
  [[nodiscard]] size_t size() const { return members_.size(); }
  [[nodiscard]] const Member& front() const { return members_.front(); }

  // `member` has another name than all others. Both move the others.
  Member& Add(Member member);
  void Remove(const std::string& name);
  [[nodiscard]] const Member* Find(const std::string& name) const;  // null: there is none
  [[nodiscard]] Member* Find(const std::string& name);

  [[nodiscard]] const std::vector<Place>& ring() const { return ring_; }
  // Names differ. The one before comes back.
  std::vector<Place> SetRing(std::vector<Place> ring);
  // The place of that name, if there is one, is that process's.
  void Recognize(const std::string& name, const std::string& incarnation);
  // Who has this place, of the ring or not; null: that process is not here.
  [[nodiscard]] const Member* At(const Place& place) const;
  [[nodiscard]] Member* At(const Place& place);
  // Of a member; nothing: it has no place, or there is no such member.
  [[nodiscard]] std::optional<size_t> RankOf(const std::string& name) const;

  // Of these members, by what each holds: the newest state's step; whether all that hold S(step)
  // evaluated what is due on it; whether `name` alone holds the newest one.
  using Names = std::vector<std::string>;
  [[nodiscard]] uint64_t HighestApplied(const Names& names) const;
  [[nodiscard]] bool Evaluated(const Names& names, uint64_t step) const;
  [[nodiscard]] bool HoldsAlone(const std::string& name, const Names& names) const;

 private:
  std::vector<Member> members_;
  std::unordered_map<std::string, size_t> numbers_;  // of members
  std::vector<Place> ring_;
  std::unordered_map<std::string, size_t> ranks_;  // of places
};

}  // namespace ringmaster::coordinator
