#include "worker/backend/cuda/device/nccl.h"

#include <dlfcn.h>

#include <type_traits>

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

}  // namespace ringmaster::cuda
