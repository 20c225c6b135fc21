// Kernels of one node after the other, each tried on the same buffers: what tuning times and tests
// compare. Inputs are pseudo-random values in [-1, 1), the same in every run, and made once a node.
// Used on the thread on which its GPU is current.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <cstddef>
#include <memory>
#include <vector>

#include "common/exact/digest.h"
#include "common/status.h"
#include "worker/backend/cuda/device/runtime.h"
#include "worker/backend/cuda/kernel.h"

namespace ringmaster::cuda {

class NodeRun {
 public:
  [[nodiscard]] static StatusOr<std::unique_ptr<NodeRun>> Create();
  // Create, Hold and Bind of whatever scratch it wants.
  [[nodiscard]] static StatusOr<std::unique_ptr<NodeRun>> Create(const BindContext& context);

  // Fills the node's inputs and makes room for its outputs, in place of the node before.
  [[nodiscard]] Status Hold(const BindContext& context);
  // The kernel of the node that is held, in place of the one before. Errors: those of binding, of
  // memory, of what `context` lacks a kernel for; UNIMPLEMENTED when it wants more scratch.
  [[nodiscard]] Status Bind(const BindContext& context, size_t most_workspace);

  [[nodiscard]] size_t workspace_bytes() const { return kernel_->workspace_bytes(); }
  // One launch; waits for it.
  [[nodiscard]] Status Run();
  // The time of a launch behind a first one, in microseconds, of few.
  [[nodiscard]] StatusOr<double> Glance();
  // The least mean time of a launch among some series of them; as many as one where the first is
  // already above `limit` and to spare.
  [[nodiscard]] StatusOr<double> Microseconds(double limit);

  // Fills the workspace and the outputs with this byte.
  [[nodiscard]] Status Scribble(int byte);
  // Of the bytes of all outputs, by hashes on the GPU.
  [[nodiscard]] StatusOr<exact::BlockSum> Digest();

 private:
  NodeRun() = default;
  Status Fill(const graph::Value& value, std::byte* to);
  Status NameBlocks(size_t blocks);
  StatusOr<double> Mean(int launches);

  Stream stream_;
  std::array<Event, 2> events_;  // begin and end of what is timed
  Arena pattern_{Place::kPinned};
  Arena inputs_{Place::kDevice}, outputs_{Place::kDevice}, workspace_{Place::kDevice};
  std::vector<size_t> output_bytes_;
  Operands operands_;
  std::unique_ptr<Kernel> kernel_;

  // Of Digest: one count, tensor and index a block, the first `named_` of them made.
  size_t blocks_ = 0, named_ = 0;
  Arena names_{Place::kDevice}, pinned_names_{Place::kPinned};
  Arena scratch_{Place::kDevice}, sum_{Place::kDevice}, pinned_sum_{Place::kPinned};
};

}  // namespace ringmaster::cuda
