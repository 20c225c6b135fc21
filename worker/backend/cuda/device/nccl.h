// The part of NVIDIA's library of collectives that GPUs of one host need to add up integers. It is
// loaded at run time: a host with one GPU needs none. A value, whose functions stay loaded;
// GpuGroup calls them.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <cstddef>
#include <string>

#include "common/status.h"

namespace ringmaster::cuda {

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

}  // namespace ringmaster::cuda
