// The CPU as kernels see it: oneDNN's engine, and how bfloat16 is computed. Immutable after Create,
// thread-safe, shared by all cores.
#pragma once

#include <dnnl.hpp>
#include <string>

#include "common/graph/graph.h"
#include "common/status.h"

namespace ringmaster::cpu {

enum class Bf16Arithmetic : uint8_t {
  kNative,    // oneDNN's bfloat16 kernels: AVX-512 with BF16
  kEmulated,  // bfloat16 storage, float32 kernels, results rounded
};

struct Device {
  [[nodiscard]] static StatusOr<Device> Create(Bf16Arithmetic wanted);

  dnnl::engine engine;
  Bf16Arithmetic bf16 = Bf16Arithmetic::kEmulated;  // kNative only where the CPU has it
  // In force for kernels: oneDNN's name of it (its environment may limit it, or hint at a shorter
  // vector), and, when bfloat16 is emulated, that.
  std::string instruction_set;

  // The type in which kernels compute on values of `dtype`: oneDNN has no float16 on a CPU, so that
  // is always storage beside float32 kernels.
  [[nodiscard]] dnnl::memory::data_type compute_type(graph::DType dtype) const;
};

}  // namespace ringmaster::cpu
