// A GPU that need not be here: cuDNN plans for one that it knows by its properties alone.
// Thread-safe (free functions).
#pragma once

#include <catch2/catch.hpp>
#include <span>
#include <string_view>

#include "worker/backend/cuda/libraries/cudnn_descriptor.h"

namespace ringmaster::testing {

inline constexpr const char* kH200 = "NVIDIA H200";

// As cuDNN prints those of a handle (CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION).
inline constexpr std::string_view kH200Properties = R"({
  "deviceVer": 900, "multiProcessorCount": 132, "warpSize": 32,
  "maxSharedMemoryPerBlock": 49152, "maxSharedMemoryPerBlockOptin": 232448,
  "reservedSharedMemoryPerBlock": 1024, "maxRegistersPerSM": 65536, "maxCtasPerSM": 32,
  "maxThreadsPerBlock": 1024, "maxThreadsPerSM": 2048, "regsPerBlock": 65536,
  "totalGlobalMem": 150754820096, "smClockRateKHz": 1980000, "l2CacheSize": 62914560,
  "maxBlockSize": [1024, 1024, 64], "memClockRateKHz": 3201000,
  "maxGridSize": [2147483647, 65535, 65535], "supportCoopLaunch": 1, "pciDeviceId": 0,
  "isTccDriver": 0, "cudaDeviceId": 0, "driverVer": 13000, "deviceName": "NVIDIA H200"})";

[[nodiscard]] inline cuda::CudnnDescriptor AbsentH200() {
  auto made = cuda::CudnnBuilder(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR)
                  .SetAll(CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION,
                          std::span<const char>(kH200Properties.data(), kH200Properties.size()))
                  .Finalize("properties of an H200");
  REQUIRE(Message(made.status()) == "");
  return *std::move(made);
}

}  // namespace ringmaster::testing
