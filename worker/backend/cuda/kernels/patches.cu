// A block takes some rows of positions: it brings the rows of x under them into shared memory, with
// their padding, and writes patch after patch from there, sixteen bytes a thread.
#include "worker/backend/cuda/kernels/patches.h"

#include "worker/backend/cuda/kernels/launch.h"

namespace ringmaster::cuda {
namespace {

constexpr int kPatchThreads = 256;
constexpr int kPatchPack = 8;
constexpr int kPatchRows = 4;  // of positions, that a block takes; those under them overlap

struct alignas(16) EightElements {
  uint16_t elements[kPatchPack];
};

// How a block lays rows of x: each begins at a whole pack, what pads it on the left before that.
struct PatchRows {
  int rows;   // of x
  int lead;   // elements before x, whole packs
  int pitch;  // elements, whole packs
  int skip;   // from the beginning of a row to where its padding begins
};

int WholePacks(int elements) {
  return static_cast<int>(CeilDiv(elements, kPatchPack)) * kPatchPack;
}

PatchRows RowsOf(const PatchShape& s, int position_rows) {
  PatchRows made = {};
  made.rows = (position_rows - 1) * s.stride_height + s.window_height;
  made.lead = WholePacks(s.pad_left * s.channels);
  made.skip = made.lead - s.pad_left * s.channels;
  made.pitch = WholePacks(made.skip + s.pitch());
  return made;
}

// kWide: a row of x is whole packs.
template <bool kWide>
__global__ void __launch_bounds__(kPatchThreads)
    Patches(PatchShape s, PatchRows r, int position_rows, const uint16_t* __restrict__ x,
            EightElements* __restrict__ patches) {
  __shared__ EightElements rows[kMostPatchElements / kPatchPack + 1];  // the last one: zeros
  __shared__ EightElements places[kMostPatchColumns / kPatchPack];     // of a patch's columns
  auto* const elements = reinterpret_cast<uint16_t*>(rows);
  const int thread = static_cast<int>(threadIdx.x);
  const auto tiles = static_cast<unsigned>((s.output_height + position_rows - 1) / position_rows);
  const int64_t sample = blockIdx.x / tiles;
  const int first_p = static_cast<int>(blockIdx.x % tiles) * position_rows;
  const int first_h = first_p * s.stride_height - s.pad_top;
  const int width = s.width * s.channels;
  const uint16_t* const image = x + sample * s.height * width;

  const int row_packs = r.pitch / kPatchPack;
  for (int i = thread; i < r.rows * row_packs; i += kPatchThreads) {
    const int row = i / row_packs;
    const int at = (i - row * row_packs) * kPatchPack - r.lead;
    const int h = first_h + row;
    const bool inside = h >= 0 && h < s.height;
    const uint16_t* const from = image + static_cast<int64_t>(h) * width;
    EightElements pack = {};
    if (kWide) {
      if (inside && at >= 0 && at < width) {
        pack = *reinterpret_cast<const EightElements*>(from + at);
      }
    } else {
#pragma unroll
      for (int k = 0; k < kPatchPack; ++k) {
        if (inside && at + k >= 0 && at + k < width) pack.elements[k] = from[at + k];
      }
    }
    rows[i] = pack;
  }
  const int run = s.window_width * s.channels;  // elements of a patch that lie side by side in x
  for (int i = thread; i < s.columns; i += kPatchThreads) {
    const int row = i / run;
    const bool there = row < s.window_height;
    const int place = there ? row * r.pitch + i - row * run : kMostPatchElements;
    reinterpret_cast<uint16_t*>(places)[i] = static_cast<uint16_t>(place);
  }
  if (thread == 0) rows[kMostPatchElements / kPatchPack] = {};
  __syncthreads();

  const int packs = s.columns / kPatchPack;
  for (int p = first_p; p < first_p + position_rows && p < s.output_height; ++p) {
    EightElements* const to = patches + (sample * s.output_height + p) * s.output_width * packs;
    const int row = (p - first_p) * s.stride_height * r.pitch + r.skip;
    for (int i = thread; i < s.output_width * packs; i += kPatchThreads) {
      const int q = i / packs;
      const int base = row + q * s.stride_width * s.channels;
      const EightElements from = places[i - q * packs];
      EightElements out;
#pragma unroll
      for (int k = 0; k < kPatchPack; ++k) {
        const int place = from.elements[k];
        out.elements[k] = elements[place == kMostPatchElements ? place : base + place];
      }
      to[i] = out;
    }
  }
}

}  // namespace

bool CanCutPatches(const PatchShape& shape) {
  const PatchRows one = RowsOf(shape, 1);
  return one.rows * int64_t{one.pitch} <= kMostPatchElements &&
         shape.columns <= kMostPatchColumns && shape.columns % kPatchPack == 0;
}

cudaError_t LaunchPatches(const PatchShape& shape, const void* x, void* patches,
                          cudaStream_t stream) {
  if (!CanCutPatches(shape)) return cudaErrorNotSupported;
  int position_rows = kPatchRows;
  while (int64_t{RowsOf(shape, position_rows).rows} * RowsOf(shape, position_rows).pitch >
         kMostPatchElements) {
    --position_rows;
  }
  const bool wide = shape.width * shape.channels % kPatchPack == 0;
  return Enqueue(wide ? Patches<true> : Patches<false>,
                 shape.samples * CeilDiv(shape.output_height, position_rows), dim3(kPatchThreads),
                 stream, shape, RowsOf(shape, position_rows), position_rows,
                 static_cast<const uint16_t*>(x), static_cast<EightElements*>(patches));
}

}  // namespace ringmaster::cuda
