// What an update on the host cannot be quicker than. Thread-safe (free function).
#pragma once

#include <cstddef>
#include <cstdint>

namespace ringmaster::bench {

// Seconds of a plain pass over the bytes that an update of so many parameters with so many slots
// must touch: sums of 4 bytes are read, parameters and slots read and written, by as many threads
// as there are cores, each on its part. The median of several passes, taken now.
[[nodiscard]] double UpdateBound(uint64_t parameters, size_t slots, uint32_t cores);

}  // namespace ringmaster::bench
