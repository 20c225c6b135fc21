// One node's kernel on buffers of its own: what tuning times and tests compare. Used on the thread
// on which its GPU is current.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <memory>
#include <vector>

#include "common/status.h"
#include "worker/backend/cuda/device/runtime.h"
#include "worker/backend/cuda/kernel.h"

namespace ringmaster::cuda {

class NodeRun {
 public:
  // Binds the node and fills its inputs: pseudo-random values in [-1, 1), the same in every run.
  // Errors: those of binding, of memory, and of what `context` lacks a kernel for.
  [[nodiscard]] static StatusOr<std::unique_ptr<NodeRun>> Create(const BindContext& context);

  [[nodiscard]] size_t workspace_bytes() const { return kernel_->workspace_bytes(); }
  // One launch; waits for it.
  [[nodiscard]] Status Run();
  // The least mean time of a launch among some series of them.
  [[nodiscard]] StatusOr<double> Microseconds();

  // Fills the workspace and the outputs with this byte.
  [[nodiscard]] Status Scribble(int byte);
  // Bytes of all outputs, one after the other.
  [[nodiscard]] StatusOr<std::vector<std::byte>> Outputs();

 private:
  NodeRun() : memory_(Place::kDevice) {}
  Status Fill(const graph::Value& value, void* to);
  StatusOr<float> Milliseconds(int launches);

  std::unique_ptr<Kernel> kernel_;
  Arena memory_;
  Stream stream_;
  size_t inputs_bytes_ = 0;  // they lie first, then outputs, then the workspace
  Operands operands_;
  std::vector<size_t> output_bytes_;
};

}  // namespace ringmaster::cuda
