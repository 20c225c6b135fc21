// A warp hashes a few blocks one after the other, each lane its share of the elements of each, and
// then each lane finishes the hash of one block. Sums are integers mod 2^64 and 2^128: their order
// does not matter.
#include "common/exact/block_hash.h"
#include "worker/backend/cuda/digest_kernels.h"
#include "worker/backend/cuda/launch.h"

namespace ringmaster::cuda {
namespace {

using exact::Halves;

constexpr int kLanes = 32;
constexpr int kWarps = 8;  // of one block of threads
constexpr int kBlocksOfWarp = 8;
constexpr int kElementsOfLane = exact::kBlockElements / kLanes;
constexpr int kSumThreads = 64;
constexpr unsigned kAllLanes = 0xffffffffU;

__device__ constexpr exact::ElementKeys kElementKeys = exact::MakeElementKeys();

__device__ Halves ShuffleXor(const Halves& halves, int lanes) {
  return {__shfl_xor_sync(kAllLanes, halves.first, lanes),
          __shfl_xor_sync(kAllLanes, halves.second, lanes)};
}

// The keys of a lane's elements, which are `lane`, lane + 32, ... of every block.
struct LaneKeys {
  uint64_t first[kElementsOfLane];
  uint64_t second[kElementsOfLane];

  __device__ explicit LaneKeys(unsigned lane) {
#pragma unroll
    for (int k = 0; k < kElementsOfLane; ++k) {
      first[k] = kElementKeys.first[k * kLanes + lane];
      second[k] = kElementKeys.second[k * kLanes + lane];
    }
  }

  // The sums over all products of a block, on every lane.
  __device__ Halves Compress(const int64_t* block, unsigned count, unsigned lane) const {
    Halves halves;
#pragma unroll
    for (int k = 0; k < kElementsOfLane; ++k) {
      const unsigned i = k * kLanes + lane;
      if (i >= count) continue;
      const int64_t integer = block[i];
      halves.first += exact::KeyedProduct(integer, first[k]);
      halves.second += exact::KeyedProduct(integer, second[k]);
    }
#pragma unroll
    for (int half = kLanes / 2; half > 0; half /= 2) {
      const Halves other = ShuffleXor(halves, half);
      halves.first += other.first;
      halves.second += other.second;
    }
    return halves;
  }
};

__global__ void __launch_bounds__(kLanes* kWarps)
    HashBlocks(BlockNames names, const int64_t* __restrict__ integers, int64_t blocks,
               Halves* __restrict__ partial) {
  __shared__ Halves sums[kWarps];
  const unsigned lane = threadIdx.x;
  const int64_t begin = (static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.y) * kBlocksOfWarp;
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
  for (int warp = 1; warp < kWarps; ++warp) exact::AddHash(sums[warp], &sum);
  partial[blockIdx.x] = sum;
}

__global__ void __launch_bounds__(kSumThreads)
    SumHashes(const Halves* __restrict__ partial, int64_t count, Halves* __restrict__ to) {
  __shared__ Halves sums[kSumThreads];
  const unsigned mine = threadIdx.x;
  Halves sum;
#pragma unroll 4
  for (int64_t i = mine; i < count; i += kSumThreads) exact::AddHash(partial[i], &sum);
  for (unsigned half = kSumThreads / 2; half > 0; half /= 2) {
    sums[mine] = sum;
    __syncthreads();
    if (mine < half) exact::AddHash(sums[mine + half], &sum);
    __syncthreads();
  }
  if (mine == 0) *to = sum;
}

int64_t HashingBlocks(int64_t blocks) { return CeilDiv(blocks, kWarps * kBlocksOfWarp); }

}  // namespace

size_t DigestScratch(int64_t blocks) {
  return static_cast<size_t>(HashingBlocks(blocks)) * sizeof(Halves);
}

cudaError_t LaunchDigest(const BlockNames& names, const int64_t* integers, int64_t blocks,
                         uint64_t* scratch, uint64_t* sum, cudaStream_t stream) {
  static_assert(sizeof(Halves) == 2 * sizeof(uint64_t));
  auto* const partial = reinterpret_cast<Halves*>(scratch);
  const int64_t partials = HashingBlocks(blocks);
  const cudaError_t error =
      Enqueue(HashBlocks, partials, dim3(kLanes, kWarps), stream, names, integers, blocks, partial);
  if (error != cudaSuccess) return error;
  return Enqueue(SumHashes, 1, dim3(kSumThreads), stream, partial, partials,
                 reinterpret_cast<Halves*>(sum));
}

}  // namespace ringmaster::cuda
