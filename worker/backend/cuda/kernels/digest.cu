// A warp hashes a few blocks one after the other, each lane its share of the elements of each, and
// then each lane finishes the hash of one block. Sums are integers mod 2^64 and 2^128: their order
// does not matter.
#include "common/exact/block_hash.h"
#include "worker/backend/cuda/kernels/digest.h"
#include "worker/backend/cuda/kernels/launch.h"
#include "worker/backend/cuda/kernels/packs.h"

namespace ringmaster::cuda {
namespace {

using exact::Halves;

constexpr int kHashWarps = 8;  // of one block of threads
constexpr int kBlocksOfWarp = 8;
constexpr int kHashedOfLane = exact::kBlockElements / kWarpLanes;
constexpr int kHashSumThreads = 64;

__device__ constexpr exact::ElementKeys kElementKeys = exact::MakeElementKeys();

__device__ Halves ShuffleXor(const Halves& halves, int lanes) {
  return {__shfl_xor_sync(kAllLanes, halves.first, lanes),
          __shfl_xor_sync(kAllLanes, halves.second, lanes)};
}

// The keys of a lane's elements, which are `lane`, lane + 32, ... of every block.
struct LaneKeys {
  uint64_t first[kHashedOfLane];
  uint64_t second[kHashedOfLane];

  __device__ explicit LaneKeys(unsigned lane) {
#pragma unroll
    for (int k = 0; k < kHashedOfLane; ++k) {
      first[k] = kElementKeys.first[k * kWarpLanes + lane];
      second[k] = kElementKeys.second[k * kWarpLanes + lane];
    }
  }

  // The sums over all products of a block, on every lane.
  __device__ Halves Compress(const int64_t* block, unsigned count, unsigned lane) const {
    Halves halves;
#pragma unroll
    for (int k = 0; k < kHashedOfLane; ++k) {
      const unsigned i = k * kWarpLanes + lane;
      if (i >= count) continue;
      const int64_t integer = block[i];
      halves.first += exact::KeyedProduct(integer, first[k]);
      halves.second += exact::KeyedProduct(integer, second[k]);
    }
#pragma unroll
    for (int half = kWarpLanes / 2; half > 0; half /= 2) {
      const Halves other = ShuffleXor(halves, half);
      halves.first += other.first;
      halves.second += other.second;
    }
    return halves;
  }
};

__global__ void __launch_bounds__(kWarpLanes* kHashWarps)
    HashBlocks(BlockNames names, const int64_t* __restrict__ integers, int64_t blocks,
               Halves* __restrict__ partial) {
  __shared__ Halves sums[kHashWarps];
  const unsigned lane = threadIdx.x;
  const int64_t begin =
      (static_cast<int64_t>(blockIdx.x) * kHashWarps + threadIdx.y) * kBlocksOfWarp;
  const LaneKeys keys(lane);
  Halves mine;  // of block begin + lane
  for (unsigned k = 0; k < kBlocksOfWarp; ++k) {
    const int64_t b = begin + k;
    if (b >= blocks) break;  // a whole warp
    const Halves halves =
        keys.Compress(integers + b * exact::kBlockElements, names.counts[b], lane);
    if (lane == k) mine = halves;
  }
  Halves sum;
  const int64_t b = begin + lane;
  if (lane < kBlocksOfWarp && b < blocks) {
    sum = exact::FinishHash(mine, names.tensors[b], names.indices[b], names.counts[b]);
  }
#pragma unroll
  for (int half = kBlocksOfWarp / 2; half > 0; half /= 2) {
    exact::AddHash(ShuffleXor(sum, half), &sum);
  }
  if (lane == 0) sums[threadIdx.y] = sum;
  __syncthreads();
  if (lane != 0 || threadIdx.y != 0) return;
  for (int warp = 1; warp < kHashWarps; ++warp) exact::AddHash(sums[warp], &sum);
  partial[blockIdx.x] = sum;
}

__global__ void __launch_bounds__(kHashSumThreads)
    SumHashes(const Halves* __restrict__ partial, int64_t count, Halves* __restrict__ to) {
  __shared__ Halves sums[kHashSumThreads];
  const unsigned mine = threadIdx.x;
  Halves sum;
#pragma unroll 4
  for (int64_t i = mine; i < count; i += kHashSumThreads) exact::AddHash(partial[i], &sum);
  for (unsigned half = kHashSumThreads / 2; half > 0; half /= 2) {
    sums[mine] = sum;
    __syncthreads();
    if (mine < half) exact::AddHash(sums[mine + half], &sum);
    __syncthreads();
  }
  if (mine == 0) *to = sum;
}

int64_t HashingBlocks(int64_t blocks) { return CeilDiv(blocks, kHashWarps * kBlocksOfWarp); }

}  // namespace

size_t DigestScratch(int64_t blocks) {
  return static_cast<size_t>(HashingBlocks(blocks)) * sizeof(Halves);
}

cudaError_t LaunchDigest(const BlockNames& names, const int64_t* integers, int64_t blocks,
                         uint64_t* scratch, uint64_t* sum, cudaStream_t stream) {
  static_assert(sizeof(Halves) == 2 * sizeof(uint64_t));
  auto* const partial = reinterpret_cast<Halves*>(scratch);
  const int64_t partials = HashingBlocks(blocks);
  const cudaError_t error = Enqueue(HashBlocks, partials, dim3(kWarpLanes, kHashWarps), stream,
                                    names, integers, blocks, partial);
  if (error != cudaSuccess) return error;
  return Enqueue(SumHashes, 1, dim3(kHashSumThreads), stream, partial, partials,
                 reinterpret_cast<Halves*>(sum));
}

}  // namespace ringmaster::cuda
