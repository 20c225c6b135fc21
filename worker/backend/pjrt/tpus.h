// TPUs: whether this host has some and where their plugin lies, the workers that Cloud offers, and
// what a tensor takes of their memory. Constants and free functions; thread-safe. It loads no
// plugin.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "common/graph/graph.h"
#include "common/status.h"
#include "worker/backend/backend.h"

namespace ringmaster::pjrt {

// TPUs of the host whose PCI devices `folder` lists, by the vendor and device numbers that
// Google's have.
[[nodiscard]] size_t CountTpus(const std::string& folder = "/sys/bus/pci/devices");

// TPU_LIBRARY_PATH, else libtpu.so, which the loader looks for.
[[nodiscard]] std::string TpuLibrary();

// A worker with TPUs, as Cloud sells them: a host's devices, each with its own memory.
struct TpuWorker {
  const char* name;   // tpu-v3-8
  const char* model;  // TPU v3
  uint32_t cores;     // devices of a host as XLA counts them
  uint64_t hbm;       // bytes of each
};
[[nodiscard]] std::span<const TpuWorker> TpuWorkers();
// The one whose devices are of that model, or of the kind that libtpu calls it: TPU v5 lite.
// nullptr where it is none of them.
[[nodiscard]] const TpuWorker* FindTpuWorker(const std::string& kind);

// Of a value in a TPU's memory, which has tiles of 8 x 128 elements of 32 bits, or 16 x 128 of 16:
// the last axis, a tensor's channels, and the first, its samples, fill them up, either way round,
// as is cheaper. What has one axis lies in pieces of 1,024 elements.
[[nodiscard]] size_t TiledBytes(const graph::Value& value);

// What a program takes of such a device, known without one: activations and gradients as they are
// live, and parameters, all in tiles. XLA fuses, so that this is an upper estimate of most
// programs. Of the host: what crosses. UNIMPLEMENTED: as Emit.
[[nodiscard]] StatusOr<CoreLayout> PlanOnTpu(const graph::Program& program);
// A backend whose cores plan so, and compute nothing.
[[nodiscard]] std::unique_ptr<Backend> MakeTpuPlanner(const std::string& model);

}  // namespace ringmaster::pjrt
