// Several GPUs of one host that add up arrays of int64 with NCCL: one communicator, and a stream on
// each GPU. Integer addition is exact, so the sum does not depend on how NCCL goes about it. Every
// call waits until it is done, and gives up after a while: then NCCL's work is aborted, and every
// later call returns the same error. Thread-safe: one call at a time.
#pragma once

#include <absl/base/thread_annotations.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "common/mutex.h"
#include "common/status.h"
#include "worker/backend/cuda/device/nccl.h"
#include "worker/backend/cuda/device/runtime.h"

namespace ringmaster::cuda {

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
