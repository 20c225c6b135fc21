// The part of CUDA's runtime that the executable uses, on the host, for tests without a GPU. Work
// on streams is done as late as CUDA allows: only when somebody waits for it, and then no more than
// that wait demands, so that a missing dependency shows on every run. Captures follow the rules of
// the CUDA programming guide ("CUDA Graphs"); what would be an error of CUDA is one here, and so is
// work on a stream of one GPU with an event or memory of another. There are as many GPUs as
// somebody makes current. Kernels compiled for the block emulator run in it. What is put on the
// default stream (nullptr), as tests of single kernels do, is done at once; while there are other
// streams that is an error: nothing but such tests means that stream. One thread at a time,
// which makes a GPU current first.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <ostream>

namespace ringmaster::testing {

// Enqueues what a kernel would do.
[[nodiscard]] cudaError_t LaunchOnHost(cudaStream_t stream, std::function<void()> work);

// What becomes of launches from now on; with cudaSuccess they are enqueued.
void SetLaunchError(cudaError_t error);

// What becomes of waits from now on; with cudaSuccess they end.
void SetWaitError(cudaError_t error);

// For who only counts: whether what is launched from now on does nothing.
void SetLaunchesIdle(bool idle);

// A call that a capture forbids, as a library makes it that allocates when it first runs.
void ForbiddenInCapture();

// The argument of the last cudaSetDevice.
[[nodiscard]] int CurrentDevice();

// Where it was made; -1 for memory that is not the runtime's.
[[nodiscard]] int DeviceOfStream(cudaStream_t stream);
[[nodiscard]] int DeviceOfMemory(const void* data);

// When an event is ready that is asked (cudaEventQuery): usually the second time; never, as when a
// GPU hangs.
enum class Ready : uint8_t { kAtOnce, kSecondTime, kNever };
void SetEventsReady(Ready ready);

// Memory, streams, events and graphs that nobody has freed.
[[nodiscard]] size_t LiveObjects();

// Of the GPU's memory, that nobody has freed.
[[nodiscard]] size_t DeviceBytes();

// Graphs launched so far.
[[nodiscard]] size_t GraphLaunches();

// What is in the graph that was made last. A join is a node behind more than one other.
struct GraphParts {
  size_t launches = 0, copies = 0, sets = 0, told = 0, joins = 0;  // told: events of others
};
[[nodiscard]] GraphParts NewestGraph();
// What the host was asked to do, since the program began: an event that is asked counts as a wait
// when it is ready.
struct HostCalls {
  size_t launches = 0, copies = 0, sets = 0, waits = 0;  // outside of captures
  HostCalls operator-(const HostCalls& before) const;
  bool operator==(const HostCalls& other) const = default;
};
std::ostream& operator<<(std::ostream& stream, const HostCalls& calls);
[[nodiscard]] HostCalls CallsSoFar();

}  // namespace ringmaster::testing
