// Scratch of a kernel, cut into aligned pieces. A value; thread-compatible.
#pragma once

#include <cstddef>

#include "worker/backend/cuda/kernel.h"

namespace ringmaster::cuda {

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
