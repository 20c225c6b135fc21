// The seam inside the CUDA backend: a bind function makes a Kernel for one node, once; the
// executable gives it device addresses before its first launch, and anew when the core's memory has
// moved, and has it put its work on a stream, which may be captured into a CUDA graph and replayed
// every step. A kernel belongs to one executable and is used on that core's thread only. Nothing
// allocates and nothing is timed inside Launch.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include "common/graph/graph.h"
#include "common/graph/program.h"
#include "common/status.h"

namespace ringmaster::cuda {

class Device;
class PlanCache;
class PlanTable;

// Every buffer in device memory begins at a multiple of this.
inline constexpr size_t kAlignment = 256;

// What keys the random ops of a run. Device addresses; the content changes with every run, the
// addresses never do, so that a captured step draws anew.
struct RunKeys {
  const uint64_t* seed_and_step = nullptr;  // two words
  const uint64_t* samples = nullptr;        // dataset index of each row
};

// Device addresses, each a multiple of kAlignment; they stay valid until the next Attach. A
// parameter stands in canonical layout (common/graph/graph.h), in the type of its value.
struct Operands {
  std::vector<const void*> inputs;
  std::vector<void*> outputs;
  std::byte* workspace = nullptr;
  RunKeys keys;

  template <typename T>
  const T* input(size_t i) const {
    return static_cast<const T*>(inputs[i]);
  }
  template <typename T>
  T* output(size_t i) const {
    return static_cast<T*>(outputs[i]);
  }
};

class Kernel {
 public:
  virtual ~Kernel() = default;
  // Scratch in device memory while it runs; undefined content at the start of each run.
  [[nodiscard]] virtual size_t workspace_bytes() const { return 0; }
  virtual Status Attach(const Operands& operands) = 0;
  // Enqueues, and waits for nothing.
  virtual Status Launch(cudaStream_t stream) = 0;
};

// What a bind function sees of its node.
struct BindContext {
  const graph::Program& program;
  const graph::Node& node;
  const Device& device;
  const PlanTable* plans = nullptr;  // the kernel table to follow; nullptr: the installed one
  PlanCache* cache = nullptr;        // where plans are; nullptr: those of the process

  const graph::Value& input(size_t i) const { return program.graph.value(node.inputs[i]); }
  const graph::Value& output(size_t i) const { return program.graph.value(node.outputs[i]); }
  template <typename T>
  const T& attributes() const {
    return *node.attributes<T>();
  }
};

using BindOp = StatusOr<std::unique_ptr<Kernel>>(const BindContext& context);
using BindFunction = BindOp*;

// Which function binds which op, one row an op (kernel_table.cc): nullptr when the CUDA backend
// lacks the op. Thread-safe.
[[nodiscard]] BindFunction FindKernel(const graph::Kind& kind);

// The same for a node: UNIMPLEMENTED names it and its op where there is none.
[[nodiscard]] StatusOr<BindFunction> FindKernel(const graph::Node& node);

// A kernel that is one function of its operands and a stream; it returns what cudaGetLastError says
// after its launches.
template <typename Body>
class LaunchKernel final : public Kernel {
 public:
  LaunchKernel(Body body, size_t workspace_bytes)
      : body_(std::move(body)), workspace_bytes_(workspace_bytes) {}

  [[nodiscard]] size_t workspace_bytes() const override { return workspace_bytes_; }
  Status Attach(const Operands& operands) override {
    operands_ = operands;
    return absl::OkStatus();
  }
  Status Launch(cudaStream_t stream) override { return body_(operands_, stream); }

 private:
  const Body body_;
  const size_t workspace_bytes_;
  Operands operands_;
};

// `body`: Status(const Operands&, cudaStream_t).
template <typename Body>
std::unique_ptr<Kernel> MakeLaunch(Body body, size_t workspace_bytes = 0) {
  return std::make_unique<LaunchKernel<Body>>(std::move(body), workspace_bytes);
}

// How a graph's floating types are stored in device memory. For host code and for kernels.

// Calls `body` with a value of the type that stores `dtype`: float, __nv_bfloat16 or __half.
template <typename Body>
decltype(auto) WithStorage(graph::DType dtype, Body&& body) {
  switch (dtype) {
    case graph::DType::kBFloat16:
      return body(__nv_bfloat16{});
    case graph::DType::kFloat16:
      return body(__half{});
    case graph::DType::kFloat32:
    case graph::DType::kInt32:
      break;
  }
  return body(float{});
}

// Scratch of a kernel, cut into aligned pieces. A value; thread-compatible.
class WorkspaceLayout {
 public:
  // Where the next piece begins.
  size_t Add(size_t bytes) {
    const size_t offset = bytes_;
    bytes_ += (bytes + kAlignment - 1) / kAlignment * kAlignment;
    return offset;
  }
  [[nodiscard]] size_t bytes() const { return bytes_; }

 private:
  size_t bytes_ = 0;
};

}  // namespace ringmaster::cuda
