// Where the bytes of one program's run lie, on the GPU and on the host, and what is copied back in
// which order. A function of the program and the kernels' workspaces; knows no CUDA. A value,
// thread-safe.
#pragma once

#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

#include "worker/backend/core_layout.h"

namespace ringmaster::cuda {

// One value on its way to the host, or all statistics of the batch.
struct CopyBack {
  graph::NodeId after = 0;  // the node after which it is complete, and all before it in the list
  graph::ValueId value = graph::kNoValue;  // kNoValue: the statistics
  size_t elements = 0;                     // float32
  size_t host_offset = 0;                  // a multiple of 64
  std::optional<uint32_t> parameter;       // whose gradient it is; else it is a result
};

// What stored pixels become: the program's column of images; or, where a cast to 16 bits and nobody
// else reads that, the cast's output, which is then made of pixels in the cast's place. kNoValue
// where no column is of images.
[[nodiscard]] graph::ValueId ImagesOfPixels(const graph::Program& program);

// Of the images' making; nothing where a run gets images.
struct AugmentBytes {
  size_t pixels = 0;
  size_t workspace = 0;
  graph::ValueId images = graph::kNoValue;  // ImagesOfPixels
};

struct StepLayout {
  // `core.bytes` counts what follows too.
  CoreLayout core;
  size_t seed_and_step = 0;  // two uint64
  size_t samples = 0;        // one uint64 a row
  size_t flags = 0;          // one uint64 a gradient, where it is summed on the GPU
  // Means and variances of the batch, one behind the other, so that one copy brings them; and where
  // in there each lies, on the host as here.
  size_t statistics = 0;
  std::vector<std::pair<graph::ValueId, size_t>> statistic_offsets;
  size_t pixels = 0;
  size_t augment_workspace = 0;

  // By `after`; gradients among each other in gradient_order.
  std::vector<CopyBack> copies;
  size_t host_flags = 0;
  size_t host_bytes = 0;
  size_t gradients = 0;  // among the copies

  // Of a result.
  [[nodiscard]] size_t host_offset(graph::ValueId value) const {
    return host_offsets[static_cast<size_t>(value)];
  }
  std::vector<size_t> host_offsets;  // by ValueId; 0 for what is not copied
};

// AddressesOf the core's layout, and where the statistics lie.
[[nodiscard]] std::vector<void*> AddressesOf(const graph::Program& program,
                                             const StepLayout& layout, std::byte* memory);

// A column of images that nothing makes or reads lies nowhere.
[[nodiscard]] StepLayout LayOutStep(const graph::Program& program, size_t alignment,
                                    std::vector<size_t> workspace, const AugmentBytes& augment);

}  // namespace ringmaster::cuda
