#include "worker/backend/cuda/kernels/nested_axes.h"

#include "worker/backend/cuda/kernels/launch.h"
#include "worker/backend/cuda/kernels/maps.h"

namespace ringmaster::cuda {
namespace {

struct SumOfTwo {
  __device__ float operator()(float a, float b) const { return a + b; }
};

struct ProductOfTwo {
  __device__ float operator()(float a, float b) const { return a * b; }
};

// kWidth elements side by side, or one of them so many times.
template <int kWidth, typename T>
__device__ Pack<T, kWidth> LoadOperand(const T* from, bool moves) {
  if constexpr (kWidth == 1) {
    return LoadPack<1>(from);
  } else {
    if (moves) return LoadPack<kWidth>(from);
    Pack<T, kWidth> pack;
#pragma unroll
    for (int i = 0; i < kWidth; ++i) pack.elements[i] = *from;
    return pack;
  }
}

// A step of the last axis is a pack.
template <typename T, int kWidth, typename Index, typename Function>
__global__ void __launch_bounds__(kElementwiseThreads)
    MapBroadcast(NestedAxes axes, int64_t packs, const T* __restrict__ a, const T* __restrict__ b,
                 T* __restrict__ y, Function function) {
  const NestedAxis& last = axes.axes[axes.count - 1];
  Pack<T, kWidth> first[kElementwisePacks] = {};
  Pack<T, kWidth> second[kElementwisePacks] = {};
#pragma unroll
  for (int i = 0; i < kElementwisePacks; ++i) {
    const int64_t pack = ElementwisePlace<1>(i);
    if (pack >= packs) continue;
    const NestedOffsets offsets = axes.At(static_cast<Index>(pack));
    first[i] = LoadOperand<kWidth>(a + offsets.at[0], last.strides[0] != 0);
    second[i] = LoadOperand<kWidth>(b + offsets.at[1], last.strides[1] != 0);
  }
#pragma unroll
  for (int i = 0; i < kElementwisePacks; ++i) {
    const int64_t pack = ElementwisePlace<1>(i);
    if (pack >= packs) continue;
    Pack<T, kWidth> out;
#pragma unroll
    for (int k = 0; k < kWidth; ++k) out.set(k, function(first[i].get(k), second[i].get(k)));
    StorePack<kWidth>(out, y + pack * kWidth);
  }
}

template <int kWidth, typename T, typename Function>
cudaError_t LaunchPacks(NestedAxes axes, const T* a, const T* b, T* y, Function function,
                        cudaStream_t stream) {
  NestedAxis& last = axes.axes[axes.count - 1];
  last = {last.extent / kWidth, {last.strides[0] * kWidth, last.strides[1] * kWidth}};
  const int64_t packs = axes.steps();
  const auto kernel = packs <= INT32_MAX ? MapBroadcast<T, kWidth, uint32_t, Function>
                                         : MapBroadcast<T, kWidth, uint64_t, Function>;
  return Enqueue(kernel, ElementwiseBlocks<1>(packs), dim3(kElementwiseThreads), stream, axes,
                 packs, a, b, y, function);
}

template <typename T, typename Function>
cudaError_t LaunchBroadcast(const NestedAxes& axes, const T* a, const T* b, T* y, Function function,
                            cudaStream_t stream) {
  const NestedAxis& last = axes.axes[axes.count - 1];
  if (axes.count == 1 && last.strides[0] == 1 && last.strides[1] == 1) {
    return LaunchMap(a, b, y, last.extent, function, stream);
  }
  // Where a row is whole packs, it begins with one in each operand that moves along it.
  if (last.extent % kPackWidth<T> == 0) {
    return LaunchPacks<kPackWidth<T>>(axes, a, b, y, function, stream);
  }
  return LaunchPacks<1>(axes, a, b, y, function, stream);
}

}  // namespace

template <typename T>
cudaError_t LaunchAdd(const NestedAxes& axes, const T* a, const T* b, T* y, cudaStream_t stream) {
  return LaunchBroadcast(axes, a, b, y, SumOfTwo{}, stream);
}

template <typename T>
cudaError_t LaunchMultiply(const NestedAxes& axes, const T* a, const T* b, T* y,
                           cudaStream_t stream) {
  return LaunchBroadcast(axes, a, b, y, ProductOfTwo{}, stream);
}

#define RING_INSTANTIATE_BROADCAST(T)                                                      \
  template cudaError_t LaunchAdd(const NestedAxes&, const T*, const T*, T*, cudaStream_t); \
  template cudaError_t LaunchMultiply(const NestedAxes&, const T*, const T*, T*, cudaStream_t);
RING_INSTANTIATE_BROADCAST(float)
RING_INSTANTIATE_BROADCAST(__nv_bfloat16)
RING_INSTANTIATE_BROADCAST(__half)
#undef RING_INSTANTIATE_BROADCAST

// reduce_to. A block takes some packs of neighbours of y, and a piece of what is summed, of which a
// lane of its threads takes every so many; lanes meet in shared memory. Where there is more than
// one piece, their sums are summed in the same way.

namespace {

constexpr int kReduceThreads = 256;
constexpr int kReduceBatch = 4;          // elements, or packs, that a thread loads at once
constexpr int64_t kReduceBlocks = 1024;  // that there are, where there is so much to sum
constexpr int64_t kLaneSums = 8;         // that a lane has at least

struct ReduceCut {
  int tile, lanes;  // packs of y and lanes of a block; powers of two
  int64_t packs, tiles;
  int64_t summed, pieces, piece;
};

// The least power of two that is not below `wanted`, or `most`.
int PowerOfTwo(int64_t wanted, int most) {
  int power = 1;
  while (power < most && power < wanted) power *= 2;
  return power;
}

ReduceCut CutReduction(const Reduction& reduction, int width) {
  ReduceCut cut = {};
  cut.packs = reduction.kept.steps() / width;
  cut.summed = reduction.summed.steps();
  if (reduction.keeps_last()) {
    // 128 bytes side by side; of single elements a warp.
    cut.tile = PowerOfTwo(cut.packs, width == 1 ? 32 : 8);
    cut.lanes = kReduceThreads / cut.tile;
  } else {
    cut.lanes = PowerOfTwo(CeilDiv(cut.summed, kLaneSums), kReduceThreads);
    cut.tile = kReduceThreads / cut.lanes;
  }
  cut.tiles = CeilDiv(cut.packs, cut.tile);
  const int64_t wanted = cut.tiles < kReduceBlocks ? kReduceBlocks / cut.tiles : 1;
  const int64_t step = cut.lanes * kLaneSums;
  cut.piece = CeilDiv(CeilDiv(cut.summed, wanted), step) * step;
  cut.pieces = CeilDiv(cut.summed, cut.piece);
  return cut;
}

// kKeepsLast: threads side by side take packs side by side, else lanes do.
template <typename T, typename To, int kWidth, bool kKeepsLast>
__global__ void __launch_bounds__(kReduceThreads)
    Reduce(Reduction reduction, ReduceCut cut, const T* __restrict__ x, To* __restrict__ y) {
  __shared__ float shared[kWidth][kReduceThreads];
  const auto thread = static_cast<int>(threadIdx.x);
  const int lane = kKeepsLast ? thread / cut.tile : thread % cut.lanes;
  const int next = kKeepsLast ? cut.tile : 1;  // thread of the next lane
  const int64_t piece = blockIdx.x / cut.tiles;
  const int64_t pack =
      blockIdx.x % cut.tiles * cut.tile + (kKeepsLast ? thread % cut.tile : thread / cut.lanes);
  float sum[kWidth] = {};
  if (pack < cut.packs) {
    const T* const from = x + reduction.kept.At(static_cast<uint64_t>(pack * kWidth)).at[0];
    const int64_t end = (piece + 1) * cut.piece < cut.summed ? (piece + 1) * cut.piece : cut.summed;
    for (int64_t s = piece * cut.piece + lane; s < end; s += kReduceBatch * cut.lanes) {
      Pack<T, kWidth> in[kReduceBatch] = {};
#pragma unroll
      for (int k = 0; k < kReduceBatch; ++k) {
        const int64_t at = s + k * cut.lanes;
        if (at >= end) continue;
        in[k] = LoadPack<kWidth>(from + reduction.summed.At(static_cast<uint64_t>(at)).at[0]);
      }
#pragma unroll
      for (int k = 0; k < kReduceBatch; ++k) {
#pragma unroll
        for (int c = 0; c < kWidth; ++c) sum[c] += in[k].get(c);
      }
    }
  }
  for (int half = cut.lanes / 2; half > 0; half /= 2) {
#pragma unroll
    for (int c = 0; c < kWidth; ++c) shared[c][thread] = sum[c];
    __syncthreads();
    if (lane < half) {
#pragma unroll
      for (int c = 0; c < kWidth; ++c) sum[c] += shared[c][thread + half * next];
    }
    __syncthreads();
  }
  if (pack >= cut.packs || lane != 0) return;
  Pack<To, kWidth> out;
#pragma unroll
  for (int c = 0; c < kWidth; ++c) out.set(c, sum[c]);
  StorePack<kWidth>(out, y + (piece * cut.packs + pack) * kWidth);
}

// One launch: y(pieces, kept).
template <typename T, typename To>
cudaError_t ReducePieces(const Reduction& reduction, const ReduceCut& cut, int width, const T* x,
                         To* y, cudaStream_t stream) {
  const auto kernel = !reduction.keeps_last() ? Reduce<T, To, 1, false>
                      : width == 1            ? Reduce<T, To, 1, true>
                                              : Reduce<T, To, kPackWidth<T>, true>;
  return Enqueue(kernel, cut.tiles * cut.pieces, dim3(kReduceThreads), stream, reduction, cut, x,
                 y);
}

// Elements of x that a thread reads at once: neighbours that go into neighbours.
template <typename T>
int ReduceWidth(const Reduction& reduction) {
  if (!reduction.keeps_last()) return 1;
  return reduction.kept.axes[reduction.kept.count - 1].extent % kPackWidth<T> == 0 ? kPackWidth<T>
                                                                                   : 1;
}

// That of sums of pieces, which lie one array behind the other.
Reduction OfPieces(int64_t pieces, int64_t kept) {
  Reduction rest;
  rest.kept.Append({kept, {1, 0}});
  rest.summed.Append({pieces, {kept, 0}});
  return rest;
}

}  // namespace

template <typename T>
size_t ReduceToWorkspace(const Reduction& reduction) {
  const ReduceCut cut = CutReduction(reduction, ReduceWidth<T>(reduction));
  if (cut.pieces == 1) return 0;
  return sizeof(float) * static_cast<size_t>(cut.pieces * reduction.kept.steps());
}

template <typename T, typename To>
cudaError_t LaunchReduceTo(const Reduction& reduction, const T* x, To* y, void* workspace,
                           cudaStream_t stream) {
  const int width = ReduceWidth<T>(reduction);
  const ReduceCut cut = CutReduction(reduction, width);
  if (cut.pieces == 1) return ReducePieces(reduction, cut, width, x, y, stream);
  auto* const sums = static_cast<float*>(workspace);
  const cudaError_t error = ReducePieces(reduction, cut, width, x, sums, stream);
  if (error != cudaSuccess) return error;
  const Reduction rest = OfPieces(cut.pieces, reduction.kept.steps());
  const int rest_width = ReduceWidth<float>(rest);
  ReduceCut rest_cut = CutReduction(rest, rest_width);
  rest_cut.piece = cut.pieces;
  rest_cut.pieces = 1;
  return ReducePieces<float, To>(rest, rest_cut, rest_width, sums, y, stream);
}

template size_t ReduceToWorkspace<float>(const Reduction&);
template size_t ReduceToWorkspace<__nv_bfloat16>(const Reduction&);
template size_t ReduceToWorkspace<__half>(const Reduction&);
template cudaError_t LaunchReduceTo(const Reduction&, const float*, float*, void*, cudaStream_t);
template cudaError_t LaunchReduceTo(const Reduction&, const __nv_bfloat16*, __nv_bfloat16*, void*,
                                    cudaStream_t);
template cudaError_t LaunchReduceTo(const Reduction&, const __nv_bfloat16*, float*, void*,
                                    cudaStream_t);
template cudaError_t LaunchReduceTo(const Reduction&, const __half*, __half*, void*, cudaStream_t);
template cudaError_t LaunchReduceTo(const Reduction&, const __half*, float*, void*, cudaStream_t);

// A thread moves some units, each the most bytes that lie side by side in both tensors wherever
// the walk stands.

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
