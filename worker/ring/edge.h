// Which of a member's two neighbours in the ring. A value.
#pragma once

#include <cstdint>

namespace ringmaster::ring {

enum class Edge : uint8_t { kSuccessor, kPredecessor };

}  // namespace ringmaster::ring
