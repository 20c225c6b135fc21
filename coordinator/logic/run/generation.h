// Generations of a ring: their numbers, and how they travel.
#pragma once

#include <cstdint>

#include "common/ids.h"
#include "ringmaster/v1/fleet.pb.h"

namespace ringmaster::coordinator {

// Numbers of generations: never the same twice, as the term is durable. Owned by Logic, loop thread
// only.

// The highest that the store can hold.
inline constexpr uint64_t kMaxTerm = INT64_MAX;

class GenerationSource {
 public:
  // Nothing happens when it is not higher: the numbers of that term may be used already.
  void BeginTerm(uint64_t term) {
    if (term > newest_.term) newest_ = {term, 0};
  }
  uint64_t term() const { return newest_.term; }
  GenerationId Next() {
    ++newest_.counter;
    return newest_;
  }

 private:
  GenerationId newest_;
};

[[nodiscard]] inline v1::Generation ToProto(const GenerationId& id) {
  v1::Generation generation;
  generation.set_term(id.term);
  generation.set_counter(id.counter);
  return generation;
}
[[nodiscard]] inline GenerationId FromProto(const v1::Generation& generation) {
  return {generation.term(), generation.counter()};
}

}  // namespace ringmaster::coordinator
