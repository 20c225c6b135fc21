// Generations of a ring: their numbers, how they travel, and the change from one to the next.
#pragma once

#include <chrono>
#include <cstdint>
#include <set>
#include <string>

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

// A change of the ring in progress: the fence that was sent, whom it waits for, and why. A value,
// owned by Run.

// A member is lost: the step in hand is dropped. Nobody is: it is finished first.
enum class FenceWhen { kNow, kAtBoundary };

struct Regroup {
  GenerationId generation;
  FenceWhen when = FenceWhen::kNow;
  std::string reason;           // what was noticed first
  std::set<std::string> asked;  // whose acknowledgement is waited for
  std::chrono::milliseconds begun{0};
  std::chrono::milliseconds deadline{0};  // who has not acknowledged then is out
  int64_t unix_ms = 0;                    // begun
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
