// What the backend uses of CUDA's runtime: its errors as Status, handles and memory as owned
// values, copies through page-locked memory. What each may be used by stands above it.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <type_traits>

#include "common/status.h"

namespace ringmaster::cuda {

// Errors of CUDA as Status. Thread-safe (free functions).

// OK, or INTERNAL (RESOURCE_EXHAUSTED when device memory is used up) with what was being done and
// CUDA's name and text of the error. An error behind which this process can compute no more on any
// GPU is remembered (Lost); one of the device itself ends the process at once (kLostExitCode), as
// by SIGKILL: the ring goes on without it, and whoever started it starts it again.
[[nodiscard]] Status FromCuda(cudaError_t error, std::string_view what);

// Why this process can compute no more on its GPUs; OK while it can.
[[nodiscard]] Status Lost();

// What an error leaves behind.
enum class Damage : uint8_t { kNone, kProcess, kDevice };
[[nodiscard]] Damage DamageOf(cudaError_t error);

// Of the launches since the last call on this thread.
[[nodiscard]] inline Status LaunchStatus(std::string_view what) {
  return FromCuda(cudaGetLastError(), what);
}

// CUDA's streams, events and graphs as owned values. Thread-compatible; each is used with the GPU
// current on which it was made.
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

// For Await.
[[nodiscard]] inline StatusOr<Event> MakeEvent() {
  cudaEvent_t event = nullptr;
  RING_RETURN_IF_ERROR(FromCuda(
      cudaEventCreateWithFlags(&event, cudaEventBlockingSync | cudaEventDisableTiming), "event"));
  return Event(event);
}

// Waits on the calling thread until the event is there. The thread asks again and again for the
// first milliseconds, and lets others run between two questions; then it sleeps for longer and
// longer between them, in all for less than a hundredth of what it waits. (Waking takes some 50 us
// on an H100's host, four of which in a step of 3 ms cost a twentieth of it.) An event that is not
// there within the limit, which is 2 minutes until it is set, is a device that hangs: see FromCuda.
[[nodiscard]] Status Await(cudaEvent_t event, std::string_view what);
void SetAwaitLimit(std::chrono::milliseconds limit);

// Waits on the calling thread for everything that is on the stream now. `event` is any event that
// nobody else waits for.
[[nodiscard]] inline Status WaitFor(cudaStream_t stream, cudaEvent_t event, std::string_view what) {
  RING_RETURN_IF_ERROR(FromCuda(cudaEventRecord(event, stream), what));
  return Await(event, what);
}

// Memory that grows: of the GPU that is current, or of the host, page-locked, so that copies
// between the two run by themselves. It grows by moving, and its content is lost: whoever keeps
// addresses compares version(). Thread-compatible; grown only while no work that uses it is on a
// stream.
enum class Place : uint8_t { kDevice, kPinned };

class Arena {
 public:
  explicit Arena(Place place) : place_(place) {}
  ~Arena() { Free(); }
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  // Makes at least `bytes` usable, from a multiple of 256 on. RESOURCE_EXHAUSTED when the GPU or
  // the host has no more; then nothing is left.
  [[nodiscard]] Status Grow(size_t bytes);

  [[nodiscard]] std::byte* data() const { return data_; }
  [[nodiscard]] size_t size() const { return size_; }
  // Changes whenever data() does.
  [[nodiscard]] uint64_t version() const { return version_; }

 private:
  void Free();

  const Place place_;
  std::byte* data_ = nullptr;
  size_t size_ = 0;
  uint64_t version_ = 0;
};

// An array in the memory of the GPU that was current when it was made. Thread-compatible.
template <typename T>
class DeviceArray {
 public:
  // Room for `count` elements, once; their content is undefined.
  [[nodiscard]] Status Make(size_t count) {
    count_ = count;
    return arena_.Grow(count * sizeof(T));
  }
  [[nodiscard]] Status Zero(cudaStream_t stream) {
    return FromCuda(cudaMemsetAsync(data(), 0, bytes(), stream), "zeros");
  }

  [[nodiscard]] T* data() const { return reinterpret_cast<T*>(arena_.data()); }
  [[nodiscard]] size_t bytes() const { return count_ * sizeof(T); }

 private:
  Arena arena_{Place::kDevice};
  size_t count_ = 0;
};

// Copies from any host memory to a GPU through a ring of page-locked slots: while one slot is on
// its way the next is filled, and the source may change as soon as Copy returns. Used on one thread
// and one stream.
class Uploader {
 public:
  // On the GPU that is current. `stream` outlives it.
  [[nodiscard]] static StatusOr<std::unique_ptr<Uploader>> Create(cudaStream_t stream);

  // Enqueues; waits only for slots that are still on their way.
  [[nodiscard]] Status Copy(const void* from, void* to, size_t bytes);

 private:
  explicit Uploader(cudaStream_t stream) : stream_(stream), memory_(Place::kPinned) {}
  Status NextSlot();

  // Large enough that a copy's start does not count, small enough for a processor's cache.
  static constexpr size_t kSlotBytes = size_t{4} << 20;
  static constexpr size_t kSlots = 3;

  const cudaStream_t stream_;
  Arena memory_;
  std::array<Event, kSlots> sent_;  // what was last in that slot
  size_t slot_ = 0;
  size_t used_ = 0;  // bytes of it
};

// Copies from a GPU to any host memory through two page-locked slots: while one is on its way the
// other one is read. The counterpart of Uploader. Used on one thread and one stream.
class Downloader {
 public:
  // On the GPU that is current. `stream` outlives it.
  [[nodiscard]] static StatusOr<std::unique_ptr<Downloader>> Create(cudaStream_t stream);

  // After what is on the stream; the bytes are there when it returns.
  [[nodiscard]] Status Copy(const void* from, void* to, size_t bytes);

 private:
  explicit Downloader(cudaStream_t stream) : stream_(stream), memory_(Place::kPinned) {}
  Status Start(const std::byte* from, size_t part, size_t bytes);
  Status Finish(std::byte* to, size_t part, size_t bytes);

  // As an Uploader's.
  static constexpr size_t kSlotBytes = size_t{4} << 20;

  const cudaStream_t stream_;
  Arena memory_;
  std::array<Event, 2> arrived_;
};

}  // namespace ringmaster::cuda
