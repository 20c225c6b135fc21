// CUDA's streams, events and graphs as owned values. Thread-compatible; each is used with the GPU
// current on which it was made.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>
#include <type_traits>

#include "common/status.h"
#include "worker/backend/cuda/cuda_status.h"

namespace ringmaster::cuda {

template <typename T, cudaError_t (*kDestroy)(T)>
struct Destroy {
  void operator()(T handle) const { (void)kDestroy(handle); }
};
template <typename T, cudaError_t (*kDestroy)(T)>
using Owned = std::unique_ptr<std::remove_pointer_t<T>, Destroy<T, kDestroy>>;

using Stream = Owned<cudaStream_t, cudaStreamDestroy>;
using Event = Owned<cudaEvent_t, cudaEventDestroy>;
using Graph = Owned<cudaGraph_t, cudaGraphDestroy>;
using GraphExec = Owned<cudaGraphExec_t, cudaGraphExecDestroy>;

// One that does not wait for the default stream.
[[nodiscard]] inline StatusOr<Stream> MakeStream() {
  cudaStream_t stream = nullptr;
  RING_RETURN_IF_ERROR(
      FromCuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "stream"));
  return Stream(stream);
}

// A thread that waits for it sleeps: the host's processors add gradients and load samples
// meanwhile, and waking takes microseconds where a step takes milliseconds.
[[nodiscard]] inline StatusOr<Event> MakeEvent() {
  cudaEvent_t event = nullptr;
  RING_RETURN_IF_ERROR(FromCuda(
      cudaEventCreateWithFlags(&event, cudaEventBlockingSync | cudaEventDisableTiming), "event"));
  return Event(event);
}

// Waits on the calling thread for everything that is on the stream now. `event` is any event that
// nobody else waits for.
[[nodiscard]] inline Status WaitFor(cudaStream_t stream, cudaEvent_t event, std::string_view what) {
  RING_RETURN_IF_ERROR(FromCuda(cudaEventRecord(event, stream), what));
  return FromCuda(cudaEventSynchronize(event), what);
}

}  // namespace ringmaster::cuda
