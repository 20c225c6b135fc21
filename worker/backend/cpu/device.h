// The CPU as kernels see it: oneDNN's engine, and how bfloat16 is computed. Immutable after Create,
// thread-safe, shared by all cores.
#pragma once

#include <dnnl.hpp>
#include <new>
#include <string>
#include <utility>

#include "common/graph/graph.h"
#include "common/status.h"
#include "worker/backend/failure.h"

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

// The border to oneDNN: its exceptions and status codes become Status here. Thread-safe.
[[nodiscard]] Status DnnlStatus(dnnl_status_t status, const std::string& what);

// body() as a StatusOr; `what` says in an error what was tried.
template <typename Body>
[[nodiscard]] auto GuardDnnl(const std::string& what, Body&& body)
    -> StatusOr<decltype(std::forward<Body>(body)())> {
  try {
    return std::forward<Body>(body)();
  } catch (const dnnl::error& error) {
    return DnnlStatus(error.status, what + ": " + error.message);
  } catch (const std::bad_alloc&) {
    return OutOfMemory("{}: there is no memory for it", what);
  }
}

}  // namespace ringmaster::cpu
