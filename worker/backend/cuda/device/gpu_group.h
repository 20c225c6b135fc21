// Several GPUs of one host that add up arrays of int64 with NCCL: one communicator, and a stream on
// each GPU. Integer addition is exact, so the sum does not depend on how NCCL goes about it. Every
// call waits until it is done, and gives up after a while: then NCCL's work is aborted, and every
// later call returns the same error. Thread-safe: one call at a time.
#pragma once

#include <absl/base/thread_annotations.h>
#include <cuda_runtime_api.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "common/mutex.h"
#include "common/status.h"
#include "worker/backend/cuda/device/runtime.h"

namespace ringmaster::cuda {

// The part of NVIDIA's library of collectives that GPUs of one host need to add up integers. It is
// loaded at run time: a host with one GPU needs none. A value, whose functions stay loaded;
// GpuGroup calls them.

constexpr char kNcclLibrary[] = "libnccl.so.2";

struct Nccl {
  // UNAVAILABLE: there is no such library, or it is older than 2.14. `library`: tests have their
  // own.
  [[nodiscard]] static StatusOr<Nccl> Open(const std::string& library = kNcclLibrary);

  // NCCL's binary interface, from its user guide; the header comes with the toolkit, the library
  // also without it.
  using Result = int;
  using Communicator = void*;
  static constexpr Result kSuccess = 0;
  static constexpr Result kInProgress = 7;
  static constexpr int kInt64 = 4;
  static constexpr int kSum = 0;

  struct UniqueId {
    std::array<char, 128> bytes;
  };
  // As of 2.14, which every newer library reads.
  struct Config {
    size_t size = sizeof(Config);
    unsigned magic = 0xcafebeef;
    unsigned version = 21400;
    int blocking = 0;  // calls return kInProgress at once, and async_error says when they are done
  };

  Result (*unique_id)(UniqueId*) = nullptr;
  Result (*init_rank)(Communicator*, int ranks, UniqueId, int rank, Config*) = nullptr;
  Result (*async_error)(Communicator, Result*) = nullptr;
  Result (*finalize)(Communicator) = nullptr;
  Result (*destroy)(Communicator) = nullptr;
  Result (*abort)(Communicator) = nullptr;
  Result (*group_start)() = nullptr;
  Result (*group_end)() = nullptr;
  Result (*reduce)(const void* from, void* to, size_t count, int type, int operation, int root,
                   Communicator, cudaStream_t) = nullptr;
  Result (*broadcast)(const void* from, void* to, size_t count, int type, int root, Communicator,
                      cudaStream_t) = nullptr;
  Result (*all_reduce)(const void* from, void* to, size_t count, int type, int operation,
                       Communicator, cudaStream_t) = nullptr;
  const char* (*error_string)(Result) = nullptr;
  const char* (*last_error)(Communicator) = nullptr;  // nullptr will do
};

class GpuGroup {
 public:
  // Seconds are usual for a beginning with eight GPUs, milliseconds for a bucket. Who waits here
  // hears no fence, for which the coordinator waits 60 s.
  static constexpr std::chrono::milliseconds kPatience = std::chrono::seconds(20);

  // `devices`: at least two GPUs, each once.
  [[nodiscard]] static StatusOr<std::unique_ptr<GpuGroup>> Create(
      const Nccl& nccl, std::vector<int> devices, std::chrono::milliseconds patience = kPatience);
  ~GpuGroup();
  GpuGroup(const GpuGroup&) = delete;
  GpuGroup& operator=(const GpuGroup&) = delete;

  // An array of `count` elements on each GPU, in the order of `devices`. Nothing that uses them is
  // on a stream.
  using Arrays = std::vector<int64_t*>;

  // The first GPU has the sum of all, the others zeros.
  [[nodiscard]] Status MoveToFirst(const Arrays& arrays, size_t count);
  // Every GPU has what the first one has.
  [[nodiscard]] Status CopyFromFirst(const Arrays& arrays, size_t count);
  // Every GPU has the sum of all `from` in `to`.
  [[nodiscard]] Status AddUp(const Arrays& from, const Arrays& to, size_t count);

 private:
  struct Member {
    Stream stream;
    Event done;
    Nccl::Communicator communicator = nullptr;
  };

  GpuGroup(const Nccl& nccl, std::vector<int> devices, std::chrono::milliseconds patience);
  Status Open() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  // Between group_start and group_end `call(index, member)` for each GPU; the work is on the
  // streams when it returns.
  template <typename Call>
  Status Launch(Call call) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  template <typename Call>
  Status CallAll(Call call) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  Status ZeroOthers(const Arrays& arrays, size_t count) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Waits for what was launched; aborts everything when that fails, or `launched` did.
  Status Finish(Status launched, std::string_view what) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  Status WaitForStreams() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Abort() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  // Whether the calls so far are done on the host, and whether their work is on the GPUs.
  StatusOr<bool> CallsAreDone() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  StatusOr<bool> WorkIsDone() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  Status WaitUntil(StatusOr<bool> (GpuGroup::*done)()) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  [[nodiscard]] Status MakeCurrent(size_t index) const;
  [[nodiscard]] Status FromNccl(Nccl::Result result) const;

  const Nccl nccl_;
  const std::vector<int> devices_;
  const std::chrono::milliseconds patience_;

  Mutex mu_;
  std::vector<Member> members_ ABSL_GUARDED_BY(mu_);  // by GPU
  Status broken_ ABSL_GUARDED_BY(mu_);
};

}  // namespace ringmaster::cuda
