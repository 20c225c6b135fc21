// What the tests of states must know of the runtime they run on: the late runtime, or a GPU.
#pragma once

#include <cstddef>

#include "worker/backend/cuda/device/gpu_group.h"

namespace ringmaster::testing {

// Says why in one line where there is nothing to test with.
[[nodiscard]] bool CanTestState();

// A GPU whose number is not 0, where there is one.
[[nodiscard]] int LastGpu();

// Makes another GPU current, as another core's work would, and whether `device` is.
void MakeOtherCurrent();
[[nodiscard]] bool IsCurrent(int device);

// How many GPUs may be in a group; one, and a line that says why, where that cannot be tested.
[[nodiscard]] int GpusOfGroup();
[[nodiscard]] StatusOr<cuda::Nccl> GroupNccl();

// Memory, streams and events that nobody has freed.
[[nodiscard]] size_t Leaks();

}  // namespace ringmaster::testing
