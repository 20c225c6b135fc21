// A thread moves some units, each the most bytes that lie side by side in both tensors wherever
// the walk stands.
#include "worker/backend/cuda/kernels/shape.h"

#include "worker/backend/cuda/kernels/launch.h"

namespace ringmaster::cuda {

void BoxWalk::Append(const BoxAxis& axis) {
  if (axis.extent == 1 && axis.whole()) return;
  if (count > 0 && axis.whole() && axes[count - 1].from_stride == axis.extent * axis.from_stride &&
      axes[count - 1].to_stride == axis.extent * axis.to_stride) {
    BoxAxis& last = axes[count - 1];
    last = {last.extent * axis.extent, axis.from_stride, axis.to_stride, last.low * axis.extent,
            last.high * axis.extent};
  } else {
    axes[count++] = axis;
  }
}

int64_t BoxWalk::steps() const {
  int64_t steps = 1;
  for (int i = 0; i < count; ++i) steps *= axes[i].extent;
  return steps;
}

namespace {

constexpr int kBoxThreads = 256;
constexpr int kBoxUnits = 4;  // of one thread

struct BoxPlace {
  int64_t from, to;
  bool inside;
};

template <typename Index>
__device__ BoxPlace PlaceInBox(const BoxWalk& walk, Index i) {
  BoxPlace place = {walk.first_from, walk.first_to, true};
  for (int axis = walk.count - 1; axis >= 0; --axis) {
    const BoxAxis& a = walk.axes[axis];
    // Nothing is outside the outermost axis.
    const Index outer = axis == 0 ? 0 : i / static_cast<Index>(a.extent);
    const auto step = static_cast<int64_t>(i - outer * static_cast<Index>(a.extent));
    place.from += step * a.from_stride;
    place.to += step * a.to_stride;
    place.inside = place.inside && step >= a.low && step < a.high;
    i = outer;
  }
  return place;
}

template <typename Unit, typename Index>
__global__ void __launch_bounds__(kBoxThreads)
    CopyBox(BoxWalk walk, int64_t count, const Unit* __restrict__ x, Unit* __restrict__ y) {
  const int64_t first = static_cast<int64_t>(blockIdx.x) * kBoxUnits * kBoxThreads + threadIdx.x;
  Unit units[kBoxUnits] = {};
  int64_t to[kBoxUnits] = {};
#pragma unroll
  for (int k = 0; k < kBoxUnits; ++k) {
    const int64_t i = first + k * kBoxThreads;
    if (i >= count) continue;
    const BoxPlace place = PlaceInBox(walk, static_cast<Index>(i));
    if (place.inside) units[k] = x[place.from];
    to[k] = place.to;
  }
#pragma unroll
  for (int k = 0; k < kBoxUnits; ++k) {
    if (first + k * kBoxThreads < count) y[to[k]] = units[k];
  }
}

template <typename Unit>
cudaError_t CopyUnits(const BoxWalk& walk, const void* x, void* y, cudaStream_t stream) {
  const int64_t count = walk.steps();
  const auto kernel = count <= INT32_MAX ? CopyBox<Unit, uint32_t> : CopyBox<Unit, uint64_t>;
  return Enqueue(kernel, CeilDiv(count, kBoxUnits * kBoxThreads), dim3(kBoxThreads), stream, walk,
                 count, static_cast<const Unit*>(x), static_cast<Unit*>(y));
}

// Whether all that the walk can come to are multiples of so many elements.
bool IsWalkOf(const BoxWalk& walk, int64_t elements) {
  if (walk.count == 0) return false;
  const BoxAxis& last = walk.axes[walk.count - 1];
  if (last.from_stride != 1 || last.to_stride != 1) return false;
  int64_t rest = walk.first_from % elements | walk.first_to % elements | last.extent % elements |
                 last.low % elements | last.high % elements;
  for (int i = 0; i + 1 < walk.count; ++i) {
    rest |= walk.axes[i].from_stride % elements | walk.axes[i].to_stride % elements;
  }
  return rest == 0;
}

// The same walk by so many elements a step.
BoxWalk InSteps(BoxWalk walk, int64_t elements) {
  if (elements == 1) return walk;
  walk.first_from /= elements;
  walk.first_to /= elements;
  for (int i = 0; i + 1 < walk.count; ++i) {
    walk.axes[i].from_stride /= elements;
    walk.axes[i].to_stride /= elements;
  }
  BoxAxis& last = walk.axes[walk.count - 1];
  last.extent /= elements;
  last.low /= elements;
  last.high /= elements;
  return walk;
}

}  // namespace

cudaError_t LaunchBoxCopy(const BoxWalk& walk, int element, const void* x, void* y,
                          cudaStream_t stream) {
  int unit = 16;
  while (unit > element && !IsWalkOf(walk, unit / element)) unit /= 2;
  const BoxWalk units = InSteps(walk, unit / element);
  if (unit == 16) return CopyUnits<uint4>(units, x, y, stream);
  if (unit == 8) return CopyUnits<uint2>(units, x, y, stream);
  if (unit == 4) return CopyUnits<uint32_t>(units, x, y, stream);
  return CopyUnits<uint16_t>(units, x, y, stream);
}

}  // namespace ringmaster::cuda
