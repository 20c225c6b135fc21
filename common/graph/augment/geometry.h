// The geometric entries of an augmentation list, which stand at its front: what window of a stored
// image is taken, what it is resized to, and what window of that is kept, as a function of (job
// seed, step, sample) and of the image's size. Bytes to bytes, on the host, before anything else,
// so that only what is kept is decoded. Float64 and + - * / and square root, and the project's own
// elementary functions. Thread-safe (immutable).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "common/image/placement.h"
#include "common/numeric/philox.h"
#include "common/status.h"
#include "ringmaster/v1/job.pb.h"

namespace ringmaster::graph {

// Of images: what occurs in the data.
struct SizeRange {
  image::Size least, most;
};

class Geometry {
 public:
  // The entries at the front of a resolved list; none is right, too.
  Geometry(std::span<const v1::Augmentation> list, uint64_t seed);

  static bool IsGeometric(const v1::Augmentation& op);

  // The size that images of any of these sizes become. INVALID_ARGUMENT names the entry by its
  // place in the list, and says what is wrong: a window that the smallest image does not have, a
  // second resizing, sizes that still differ at the end, a geometric entry behind one of another
  // kind.
  [[nodiscard]] static StatusOr<image::Size> Check(std::span<const v1::Augmentation> list,
                                                   const SizeRange& sizes);

  [[nodiscard]] bool empty() const { return entries_.empty(); }
  [[nodiscard]] image::Placement Place(uint64_t step, uint64_t sample,
                                       const image::Size& stored) const;

 private:
  std::vector<v1::Augmentation> entries_;
  const uint64_t seed_;
};

// What random_erasing overwrites of an image: torchvision's RandomErasing, whose window is smaller
// than the image in both directions. Element 0 of the stream says whether, try t draws area, ratio,
// top and left as elements 4t + 1 to 4t + 4. Nullopt: nothing, also where no try fits.
[[nodiscard]] std::optional<image::Window> ErasedWindow(const v1::RandomErasing& erasing,
                                                        const image::Size& size,
                                                        const PhiloxStream& stream);

}  // namespace ringmaster::graph
