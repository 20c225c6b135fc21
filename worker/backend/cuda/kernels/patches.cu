// A block takes a row of positions: it brings the rows of x under it into shared memory, with
// their padding, and writes patch after patch from there, sixteen bytes a thread.
#include "worker/backend/cuda/kernels/patches.h"

#include "worker/backend/cuda/kernels/launch.h"

namespace ringmaster::cuda {
namespace {

constexpr int kPatchThreads = 256;
constexpr int kPatchPack = 8;

struct alignas(16) EightElements {
  uint16_t elements[kPatchPack];
};

__global__ void __launch_bounds__(kPatchThreads)
    Patches(PatchShape s, int pitch, const uint16_t* __restrict__ x,
            EightElements* __restrict__ patches) {
  __shared__ uint16_t rows[kMostPatchElements + 1];  // the last one: zero
  __shared__ uint16_t places[kMostPatchColumns];     // of a patch's columns, from its first
  const int thread = static_cast<int>(threadIdx.x);
  const int64_t sample = blockIdx.x / static_cast<unsigned>(s.output_height);
  const int p = static_cast<int>(blockIdx.x % static_cast<unsigned>(s.output_height));
  const int first_row = p * s.stride_height - s.pad_top;
  const int first = s.pad_left * s.channels;
  const int end = first + s.width * s.channels;
  const int zero = s.window_height * pitch;
  for (int i = thread; i < zero; i += kPatchThreads) {
    const int row = i / pitch;
    const int at = i - row * pitch;
    const int h = first_row + row;
    const bool inside = h >= 0 && h < s.height && at >= first && at < end;
    const int64_t from = ((sample * s.height + h) * s.width) * s.channels + at - first;
    rows[i] = inside ? x[from] : 0;
  }
  const int run = s.window_width * s.channels;  // elements of a patch that lie side by side in x
  for (int i = thread; i < s.columns; i += kPatchThreads) {
    const int row = i / run;
    const bool there = row < s.window_height;
    places[i] = static_cast<uint16_t>(there ? row * pitch + i - row * run : kMostPatchElements);
  }
  if (thread == 0) rows[kMostPatchElements] = 0;
  __syncthreads();

  const int packs = s.columns / kPatchPack;
  EightElements* const to = patches + static_cast<int64_t>(blockIdx.x) * s.output_width * packs;
  for (int i = thread; i < s.output_width * packs; i += kPatchThreads) {
    const int q = i / packs;
    const int column = (i - q * packs) * kPatchPack;
    const int base = q * s.stride_width * s.channels;
    EightElements out;
#pragma unroll
    for (int k = 0; k < kPatchPack; ++k) {
      const int place = places[column + k];
      out.elements[k] = rows[place == kMostPatchElements ? place : base + place];
    }
    to[i] = out;
  }
}

}  // namespace

cudaError_t LaunchPatches(const PatchShape& shape, const void* x, void* patches,
                          cudaStream_t stream) {
  const int pitch = shape.pitch();
  if (int64_t{shape.window_height} * pitch > kMostPatchElements ||
      shape.columns > kMostPatchColumns || shape.columns % kPatchPack != 0) {
    return cudaErrorNotSupported;
  }
  return Enqueue(Patches, shape.samples * shape.output_height, dim3(kPatchThreads), stream, shape,
                 pitch, static_cast<const uint16_t*>(x), static_cast<EightElements*>(patches));
}

}  // namespace ringmaster::cuda
