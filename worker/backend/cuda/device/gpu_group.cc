#include "worker/backend/cuda/device/gpu_group.h"

#include <dlfcn.h>
#include <fmt/ranges.h>

#include <thread>
#include <type_traits>
#include <utility>

namespace ringmaster::cuda {
namespace {

// The name of the first function that the library lacks, or "".
std::string FindFunctions(void* library, Nccl* nccl) {
  std::string missing;
  const auto find = [&](const char* name, auto* function) {
    *function = reinterpret_cast<std::remove_pointer_t<decltype(function)>>(dlsym(library, name));
    if (*function == nullptr && missing.empty()) missing = name;
  };
  find("ncclGetUniqueId", &nccl->unique_id);
  find("ncclCommInitRankConfig", &nccl->init_rank);
  find("ncclCommGetAsyncError", &nccl->async_error);
  find("ncclCommFinalize", &nccl->finalize);
  find("ncclCommDestroy", &nccl->destroy);
  find("ncclCommAbort", &nccl->abort);
  find("ncclGroupStart", &nccl->group_start);
  find("ncclGroupEnd", &nccl->group_end);
  find("ncclReduce", &nccl->reduce);
  find("ncclBroadcast", &nccl->broadcast);
  find("ncclAllReduce", &nccl->all_reduce);
  find("ncclGetErrorString", &nccl->error_string);
  find("ncclGetLastError", &nccl->last_error);
  return missing;
}

}  // namespace

StatusOr<Nccl> Nccl::Open(const std::string& library) {
  // Never unloaded: it has threads of its own.
  void* const loaded = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (loaded == nullptr) {
    return Error(absl::StatusCode::kUnavailable,
                 "{} cannot be loaded ({}); try `pip install nvidia-nccl-cu13` and LD_LIBRARY_PATH",
                 library, dlerror());
  }
  Nccl nccl;
  const std::string missing = FindFunctions(loaded, &nccl);
  if (missing.empty()) return nccl;
  return Error(absl::StatusCode::kUnavailable, "{} has no function {}; expected NCCL 2.14 or newer",
               library, missing);
}

namespace {

using Clock = std::chrono::steady_clock;

// A bucket takes tens to hundreds of microseconds; who waits longer sleeps between two looks.
constexpr int kEagerLooks = 1000;
constexpr std::chrono::microseconds kPause{100};

}  // namespace

GpuGroup::GpuGroup(const Nccl& nccl, std::vector<int> devices, std::chrono::milliseconds patience)
    : nccl_(nccl), devices_(std::move(devices)), patience_(patience) {}

StatusOr<std::unique_ptr<GpuGroup>> GpuGroup::Create(const Nccl& nccl, std::vector<int> devices,
                                                     std::chrono::milliseconds patience) {
  std::unique_ptr<GpuGroup> group(new GpuGroup(nccl, std::move(devices), patience));
  MutexLock lock(group->mu_);
  group->members_.resize(group->devices_.size());
  RING_RETURN_IF_ERROR(group->Finish(group->Open(), "start of NCCL"));
  return group;
}

GpuGroup::~GpuGroup() {
  MutexLock lock(mu_);
  if (!broken_.ok()) return;
  const Status finalized = Launch(
      [&](size_t, const Member& member) { return FromNccl(nccl_.finalize(member.communicator)); });
  if (!finalized.ok()) {
    Abort();
    return;
  }
  (void)CallAll(
      [&](size_t, const Member& member) { return FromNccl(nccl_.destroy(member.communicator)); });
}

Status GpuGroup::Open() {
  for (size_t i = 0; i < members_.size(); ++i) {
    RING_RETURN_IF_ERROR(MakeCurrent(i));
    RING_ASSIGN_OR_RETURN(members_[i].stream, MakeStream());
    RING_ASSIGN_OR_RETURN(members_[i].done, MakeEvent());
  }
  Nccl::UniqueId id{};
  RING_RETURN_IF_ERROR(FromNccl(nccl_.unique_id(&id)));
  const int ranks = static_cast<int>(members_.size());
  return Launch([&](size_t i, Member& member) {
    RING_RETURN_IF_ERROR(MakeCurrent(i));
    Nccl::Config config;
    return FromNccl(nccl_.init_rank(&member.communicator, ranks, id, static_cast<int>(i), &config));
  });
}

Status GpuGroup::MoveToFirst(const Arrays& arrays, size_t count) {
  MutexLock lock(mu_);
  RING_RETURN_IF_ERROR(broken_);
  Status launched = Launch([&](size_t i, const Member& member) {
    return FromNccl(nccl_.reduce(arrays[i], arrays[i], count, Nccl::kInt64, Nccl::kSum, 0,
                                 member.communicator, member.stream.get()));
  });
  if (launched.ok()) launched = ZeroOthers(arrays, count);
  return Finish(std::move(launched), "sum of a bucket");
}

Status GpuGroup::ZeroOthers(const Arrays& arrays, size_t count) {
  for (size_t i = 1; i < members_.size(); ++i) {
    RING_RETURN_IF_ERROR(MakeCurrent(i));
    RING_RETURN_IF_ERROR(FromCuda(
        cudaMemsetAsync(arrays[i], 0, count * sizeof(int64_t), members_[i].stream.get()), "zeros"));
  }
  return absl::OkStatus();
}

Status GpuGroup::CopyFromFirst(const Arrays& arrays, size_t count) {
  MutexLock lock(mu_);
  RING_RETURN_IF_ERROR(broken_);
  return Finish(Launch([&](size_t i, const Member& member) {
                  return FromNccl(nccl_.broadcast(arrays[i], arrays[i], count, Nccl::kInt64, 0,
                                                  member.communicator, member.stream.get()));
                }),
                "totals of a bucket");
}

Status GpuGroup::AddUp(const Arrays& from, const Arrays& to, size_t count) {
  MutexLock lock(mu_);
  RING_RETURN_IF_ERROR(broken_);
  return Finish(Launch([&](size_t i, const Member& member) {
                  return FromNccl(nccl_.all_reduce(from[i], to[i], count, Nccl::kInt64, Nccl::kSum,
                                                   member.communicator, member.stream.get()));
                }),
                "sum of a step");
}

template <typename Call>
Status GpuGroup::Launch(Call call) {
  RING_RETURN_IF_ERROR(CallAll(call));
  return WaitUntil(&GpuGroup::CallsAreDone);
}

// Once begun the group is ended, whatever failed in it: NCCL counts them by thread.
template <typename Call>
Status GpuGroup::CallAll(Call call) {
  RING_RETURN_IF_ERROR(FromNccl(nccl_.group_start()));
  Status called;
  for (size_t i = 0; i < members_.size(); ++i) {
    if (called.ok()) called.Update(call(i, members_[i]));
  }
  called.Update(FromNccl(nccl_.group_end()));
  return called;
}

Status GpuGroup::Finish(Status launched, std::string_view what) {
  if (launched.ok()) launched = WaitForStreams();
  if (launched.ok()) return launched;
  Abort();
  broken_ = Annotate(launched, fmt::format("GPUs {}: {}", fmt::join(devices_, ", "), what));
  return broken_;
}

Status GpuGroup::WaitForStreams() {
  for (const Member& member : members_) {
    RING_RETURN_IF_ERROR(FromCuda(cudaEventRecord(member.done.get(), member.stream.get()), "NCCL"));
  }
  return WaitUntil(&GpuGroup::WorkIsDone);
}

// Of whatever there is, and whatever fails.
void GpuGroup::Abort() {
  const bool grouped = nccl_.group_start() == Nccl::kSuccess;
  for (Member& member : members_) {
    const Nccl::Communicator communicator = std::exchange(member.communicator, nullptr);
    if (communicator != nullptr) (void)nccl_.abort(communicator);
  }
  if (grouped) (void)nccl_.group_end();
}

StatusOr<bool> GpuGroup::CallsAreDone() {
  for (const Member& member : members_) {
    Nccl::Result state = Nccl::kSuccess;
    RING_RETURN_IF_ERROR(FromNccl(nccl_.async_error(member.communicator, &state)));
    if (state == Nccl::kInProgress) return false;
    RING_RETURN_IF_ERROR(FromNccl(state));
  }
  return true;
}

StatusOr<bool> GpuGroup::WorkIsDone() {
  RING_ASSIGN_OR_RETURN(const bool called, CallsAreDone());
  if (!called) return false;
  for (const Member& member : members_) {
    const cudaError_t found = cudaEventQuery(member.done.get());
    if (found == cudaErrorNotReady) {
      (void)cudaGetLastError();  // no error of the next launch
      return false;
    }
    RING_RETURN_IF_ERROR(FromCuda(found, "NCCL"));
  }
  return true;
}

Status GpuGroup::WaitUntil(StatusOr<bool> (GpuGroup::*done)()) {
  const Clock::time_point end = Clock::now() + patience_;
  for (int look = 0;; ++look) {
    const bool last = Clock::now() >= end;
    RING_ASSIGN_OR_RETURN(const bool is_done, (this->*done)());
    if (is_done) return absl::OkStatus();
    if (last) break;
    if (look < kEagerLooks) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(kPause);
    }
  }
  return Error(
      absl::StatusCode::kDeadlineExceeded,
      "NCCL did not end within {} ms; NCCL_DEBUG=INFO in the worker's environment makes it "
      "say more, NCCL_P2P_DISABLE=1 keeps the GPUs from each other's memory",
      patience_.count());
}

Status GpuGroup::MakeCurrent(size_t index) const {
  return FromCuda(cudaSetDevice(devices_[index]), fmt::format("GPU {}", devices_[index]));
}

Status GpuGroup::FromNccl(Nccl::Result result) const {
  if (result == Nccl::kSuccess || result == Nccl::kInProgress) return absl::OkStatus();
  const char* const more = nccl_.last_error(nullptr);
  return Internal("NCCL: {}{}{}", nccl_.error_string(result), more != nullptr && *more ? ": " : "",
                  more != nullptr ? more : "");
}

}  // namespace ringmaster::cuda
