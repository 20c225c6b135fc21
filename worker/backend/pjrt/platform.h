// What is known of the platforms of plugins, by the names that plugins give them: what one of them
// can be told, and what its compiler wants to be spared. Constants; thread-safe.
#pragma once

#include "common/status.h"
#include "worker/backend/pjrt/emit/emit.h"

namespace ringmaster::pjrt {

// A row is there where compiler.cc knows what makes such a compiler's bits repeatable.
struct Platform {
  const char* name;
  // Whether several processes of a host may have devices of it at a time.
  enum class Processes : uint8_t { kOne, kSeveral };
  Processes processes;
  // Whether a client takes memory_fraction. Others refuse it, or it means nothing to them.
  bool takes_memory_fraction;
  Convolutions convolutions;
};

// FAILED_PRECONDITION names those that there are.
[[nodiscard]] StatusOr<Platform> FindPlatform(const std::string& name);

}  // namespace ringmaster::pjrt
