// Augmentation of stored pixels, with the bits of common/graph/augment. All pointers are to device
// memory. Enqueues and waits for nothing; returns what cudaGetLastError says.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "common/graph/augment/formulas.h"
#include "common/host_device.h"
#include "worker/backend/cuda/kernels/stream_key.h"

namespace ringmaster::cuda {

// Division by a number that a kernel gets at launch, as a product: an integer division takes a GPU
// some twenty instructions. For kernels and for host code; a value.

// Granlund and Montgomery, "Division by invariant integers using multiplication" (PLDI 1994),
// section 4: with 2^(s-1) < divisor <= 2^s and m = ceil(2^(31+s) / divisor) the quotient of any
// x < 2^31 is floor(x m / 2^(31+s)), because m divisor - 2^(31+s) < divisor <= 2^s.
class Divisor {
 public:
  Divisor() = default;
  // 1 to 2^31 - 1.
  explicit Divisor(uint32_t divisor) : divisor_(divisor) {
    while ((uint64_t{1} << (shift_ - 31)) < divisor) ++shift_;
    multiplier_ = static_cast<uint32_t>(((uint64_t{1} << shift_) + divisor - 1) / divisor);
  }

  // Of x < 2^31.
  [[nodiscard]] RING_HOST_DEVICE uint32_t Quotient(uint32_t x) const {
    return static_cast<uint32_t>((uint64_t{x} * multiplier_) >> shift_);
  }
  [[nodiscard]] RING_HOST_DEVICE uint32_t divisor() const { return divisor_; }

 private:
  uint32_t multiplier_ = uint32_t{1} << 31;
  uint32_t shift_ = 31;
  uint32_t divisor_ = 1;
};

enum class AugmentKind : uint8_t {
  kCrop,
  kFlip,
  kBrightness,
  kContrast,
  kStandardize,
  kUnitRange,  // the x / 255 that ends a list without standardization
};

// What an operation draws with.
struct AugmentDraw {
  uint64_t purpose = 0;  // PhiloxStream::Purpose; 0: draws nothing
  uint32_t padding = 0;  // kCrop
  double low = 0;        // kContrast: lower
  double high = 0;       // kContrast: upper; kBrightness: max_delta
  StreamName name;
};

// What an operation does to one image.
struct AugmentState {
  int32_t down = 0, right = 0;  // kCrop: its offset; kFlip: `right` is 1 where it mirrors
  double number = 0;            // delta, factor, or mean
  double divisor = 0;           // kStandardize
};

// A list of operations and the images that it is for; what a kernel gets.
struct AugmentPlan {
  static constexpr int kMaxOperations = 128;

  int count = 0;
  // Operations from here on leave every element in its place.
  int places_end = 0;
  bool draws = false;
  AugmentKind kinds[kMaxOperations] = {};
  const AugmentDraw* draw = nullptr;  // by operation

  uint32_t stored_height = 0, stored_width = 0, stored_channels = 0;
  uint32_t height = 0, width = 0, channels = 0;
  // A tap for each row and each column of the model's image; nullptr: sizes are the same.
  const graph::Tap* down = nullptr;
  const graph::Tap* across = nullptr;
  Divisor by_channels, by_width;

  [[nodiscard]] RING_HOST_DEVICE uint32_t stored_elements() const {
    return stored_height * stored_width * stored_channels;
  }
  [[nodiscard]] RING_HOST_DEVICE uint32_t pixels() const { return height * width; }
  [[nodiscard]] RING_HOST_DEVICE uint32_t elements() const { return pixels() * channels; }
};

// Of LaunchAugment, for all rows; each a multiple of kAlignment.
struct AugmentScratch {
  AugmentState* states = nullptr;  // AugmentStates(plan) a row
  double* means = nullptr;         // AugmentMeans(plan) a row
  double* sums = nullptr;          // AugmentSums(plan) a row
};
size_t AugmentStates(const AugmentPlan& plan);
size_t AugmentMeans(const AugmentPlan& plan);
size_t AugmentSums(const AugmentPlan& plan);

// `seed_and_step`: two words; `samples`: the number of each row's sample.
cudaError_t LaunchAugment(const AugmentPlan& plan, const uint8_t* pixels, int64_t rows,
                          const uint64_t* seed_and_step, const uint64_t* samples,
                          const AugmentScratch& scratch, float* images, cudaStream_t stream);

}  // namespace ringmaster::cuda
