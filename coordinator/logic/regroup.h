// A change of the ring in progress: the fence that was sent, whom it waits for, and why. A value,
// owned by Run.
#pragma once

#include <chrono>
#include <cstdint>
#include <set>
#include <string>

#include "common/ids.h"
#include "ringmaster/v1/fleet.pb.h"

namespace ringmaster::coordinator {

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
