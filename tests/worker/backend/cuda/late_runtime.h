// The part of CUDA's runtime that the executable uses, on the host, for tests without a GPU. Work
// on streams is done as late as CUDA allows: only when somebody waits for it, and then no more than
// that wait demands, so that a missing dependency shows on every run. Captures follow the rules of
// the CUDA programming guide ("CUDA Graphs"); what would be an error of CUDA is one here. Kernels
// compiled for the block emulator run in it. One thread.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <functional>

namespace ringmaster::testing {

// Enqueues what a kernel would do.
[[nodiscard]] cudaError_t LaunchOnHost(cudaStream_t stream, std::function<void()> work);

// A call that a capture forbids, as a library makes it that allocates when it first runs.
void ForbiddenInCapture();

// The argument of the last cudaSetDevice.
[[nodiscard]] int CurrentDevice();

// Memory, streams, events and graphs that nobody has freed.
[[nodiscard]] size_t LiveObjects();

// Of the GPU's memory, that nobody has freed.
[[nodiscard]] size_t DeviceBytes();

// Graphs launched so far.
[[nodiscard]] size_t GraphLaunches();

}  // namespace ringmaster::testing
