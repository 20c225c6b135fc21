// A warp hashes a few blocks one after the other, each lane its share of the elements of each, and
// then each lane finishes the hash of one block. Sums are integers mod 2^64 and 2^128: their order
// does not matter.
#include "common/exact/arithmetic.h"
#include "common/exact/block_hash.h"
#include "worker/backend/cuda/kernels/launch.h"
#include "worker/backend/cuda/kernels/packs.h"
#include "worker/backend/cuda/kernels/state.h"

namespace ringmaster::cuda {
namespace {

using exact::Halves;

constexpr int kHashWarps = 8;     // of one block of threads
constexpr int kBlocksOfWarp = 2;  // few: what a block of threads waits for is its last warp's loads
constexpr int kHashedOfLane = exact::kBlockElements / kWarpLanes;
constexpr int kHashSumThreads = 512;

__device__ constexpr exact::WordKeys kWordKeys = exact::MakeWordKeys();

// What is hashed: the integers of sums, as digest.h makes words of them. Padding may be loaded.
struct HashedIntegers {
  using Value = int64_t;
  const int64_t* values;
  uint32_t name;  // added to a tensor's number

  __device__ uint32_t Low(Value value) const { return exact::LowWord(value); }
  __device__ uint32_t High(Value value) const { return exact::HighWord(value); }
  static constexpr bool kWide = true;  // there are high words
};

// float32 as words. Says so when one is not finite.
struct HashedFloats {
  using Value = float;
  const float* values;
  uint32_t name;
  unsigned long long* finite;

  __device__ uint32_t Low(Value value) const {
    const uint32_t bits = exact::FloatBits(value);
    if ((bits & exact::kMagnitudeMask) >= exact::kInfinityBits) atomicMin(finite, 0ULL);
    return bits;
  }
  static constexpr bool kWide = false;
};

__device__ Halves ShuffleXor(const Halves& halves, int lanes) {
  return {__shfl_xor_sync(kAllLanes, halves.first, lanes),
          __shfl_xor_sync(kAllLanes, halves.second, lanes)};
}

// The keys of a lane's words, which are `lane`, lane + 32, ... of every block. Two lanes of a warp
// have those of one lane of the hash, and the first of them its sum.
struct LaneKeys {
  uint32_t words[kHashedOfLane];
  uint32_t first = 0;
  uint32_t second = 0;

  __device__ explicit LaneKeys(unsigned lane) {
#pragma unroll
    for (int k = 0; k < kHashedOfLane; ++k) words[k] = kWordKeys.words[k * kWarpLanes + lane];
    if (lane >= exact::kHashLanes) return;
    first = kWordKeys.first[lane];
    second = kWordKeys.second[lane];
  }

  // The two sums of a block, on every lane; `word` is asked for the lane's k-th where that is one
  // of words [0, count).
  template <typename Word>
  __device__ Halves Compress(unsigned count, unsigned lane, const Word& word) const {
    uint32_t sum = 0;
#pragma unroll
    for (int k = 0; k < kHashedOfLane; ++k) {
      const unsigned i = k * kWarpLanes + lane;
      if (i < count) sum += exact::WordTerm(word(k), words[k]);
    }
    sum += __shfl_xor_sync(kAllLanes, sum, static_cast<int>(exact::kHashLanes));
    Halves halves{uint64_t{sum} * first, uint64_t{sum} * second};
#pragma unroll
    for (int half = kWarpLanes / 2; half > 0; half /= 2) {
      const Halves other = ShuffleXor(halves, half);
      halves.first += other.first;
      halves.second += other.second;
    }
    return halves;
  }
};

// What a lane has of a block: its sums, and those of its high words where it has any.
struct BlockHalves {
  Halves low;
  Halves high;
  bool wide = false;
};

// `values`: word k * 32 + lane of the block at k.
template <typename Hashed>
__device__ BlockHalves CompressBlock(const LaneKeys& keys, const Hashed& hashed,
                                     const typename Hashed::Value (&values)[kHashedOfLane],
                                     unsigned count, unsigned lane) {
  BlockHalves sums;
  sums.low = keys.Compress(count, lane, [&](unsigned k) { return hashed.Low(values[k]); });
  if constexpr (Hashed::kWide) {
    unsigned any = 0;
#pragma unroll
    for (int k = 0; k < kHashedOfLane; ++k) {
      if (k * kWarpLanes + lane < count) any |= hashed.High(values[k]);
    }
#pragma unroll
    for (int half = kWarpLanes / 2; half > 0; half /= 2) {
      any |= __shfl_xor_sync(kAllLanes, any, half);
    }
    sums.wide = any != 0;
    if (sums.wide) {
      sums.high = keys.Compress(count, lane, [&](unsigned k) { return hashed.High(values[k]); });
    }
  }
  return sums;
}

// All that a warp reads it asks for at once.
template <typename Hashed>
__global__ void __launch_bounds__(kWarpLanes* kHashWarps)
    HashBlocks(BlockNames names, Hashed hashed, int64_t blocks, Halves* __restrict__ partial) {
  __shared__ Halves sums[kHashWarps];
  const unsigned lane = threadIdx.x;
  const int64_t begin =
      (static_cast<int64_t>(blockIdx.x) * kHashWarps + threadIdx.y) * kBlocksOfWarp;
  const auto here =
      static_cast<int>(blocks - begin < kBlocksOfWarp ? blocks - begin : kBlocksOfWarp);
  typename Hashed::Value values[kBlocksOfWarp][kHashedOfLane];
  unsigned counts[kBlocksOfWarp];
#pragma unroll
  for (int k = 0; k < kBlocksOfWarp; ++k) {
    if (k >= here) continue;  // a whole warp
    counts[k] = names.counts[begin + k];
    const auto* const from = hashed.values + (begin + k) * int64_t{exact::kBlockElements} + lane;
#pragma unroll
    for (int i = 0; i < kHashedOfLane; ++i) values[k][i] = from[i * kWarpLanes];
  }
  const bool finishes = static_cast<int>(lane) < here;  // block begin + lane
  const uint32_t tensor = finishes ? names.tensors[begin + lane] : 0;
  const uint32_t index = finishes ? names.indices[begin + lane] : 0;

  const LaneKeys keys(lane);
  BlockHalves mine;
  uint32_t count = 0;
#pragma unroll
  for (int k = 0; k < kBlocksOfWarp; ++k) {
    if (k >= here) continue;
    const BlockHalves all = CompressBlock(keys, hashed, values[k], counts[k], lane);
    if (static_cast<int>(lane) != k) continue;
    mine = all;
    count = counts[k];
  }
  Halves sum;
  if (finishes) {
    const uint32_t name = hashed.name + tensor;
    sum = exact::FinishHash(mine.low, name, index, count);
    if (mine.wide) {
      exact::AddHash(exact::FinishHash(mine.high, name, index, exact::HighCount(count)), &sum);
    }
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

// One warp: those of the exponents' blocks that begin in its part of the layout's blocks. As many
// partial sums as HashBlocks has.
__global__ void __launch_bounds__(kWarpLanes)
    HashExponents(BlockNames names, const int16_t* __restrict__ exponents, int64_t blocks,
                  Halves* __restrict__ partial) {
  const unsigned lane = threadIdx.x;
  const int64_t begin = static_cast<int64_t>(blockIdx.x) * kHashWarps * kBlocksOfWarp;
  const LaneKeys keys(lane);
  Halves sum;
  for (int64_t b = begin; b < begin + kHashWarps * kBlocksOfWarp && b < blocks; ++b) {
    if (names.indices[b] % exact::kBlockElements != 0) continue;
    const uint32_t tensor = names.tensors[b];
    unsigned count = 0;  // a tensor's blocks follow each other
    for (int64_t n = lane; n < exact::kBlockElements && b + n < blocks; n += kWarpLanes) {
      if (names.tensors[b + n] == tensor) ++count;
    }
#pragma unroll
    for (int half = kWarpLanes / 2; half > 0; half /= 2) {
      count += __shfl_xor_sync(kAllLanes, count, half);
    }
    const Halves halves = keys.Compress(count, lane, [&](unsigned k) {
      return exact::WordOfExponent(exponents[b + k * kWarpLanes + lane]);
    });
    exact::AddHash(
        exact::FinishHash(halves, exact::NameOfPart(exact::StatePart::kExponents, tensor),
                          names.indices[b] / exact::kBlockElements, count),
        &sum);
  }
  if (lane == 0) partial[blockIdx.x] = sum;
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

Halves* AsHalves(uint64_t* words) {
  static_assert(sizeof(Halves) == 2 * sizeof(uint64_t));
  return reinterpret_cast<Halves*>(words);
}

cudaError_t SumUp(int64_t blocks, const uint64_t* scratch, uint64_t* sum, cudaStream_t stream) {
  return Enqueue(SumHashes, 1, dim3(kHashSumThreads), stream,
                 reinterpret_cast<const Halves*>(scratch), HashingBlocks(blocks), AsHalves(sum));
}

template <typename Hashed>
cudaError_t LaunchHash(const BlockNames& names, const Hashed& hashed, int64_t blocks,
                       uint64_t* scratch, uint64_t* sum, cudaStream_t stream) {
  const cudaError_t error =
      Enqueue(HashBlocks<Hashed>, HashingBlocks(blocks), dim3(kWarpLanes, kHashWarps), stream,
              names, hashed, blocks, AsHalves(scratch));
  return error != cudaSuccess ? error : SumUp(blocks, scratch, sum, stream);
}

}  // namespace

size_t DigestScratch(int64_t blocks) {
  return static_cast<size_t>(HashingBlocks(blocks)) * sizeof(Halves);
}

cudaError_t LaunchDigest(const BlockNames& names, const int64_t* integers, int64_t blocks,
                         uint64_t* scratch, uint64_t* sum, cudaStream_t stream) {
  return LaunchHash(names, HashedIntegers{integers, 0}, blocks, scratch, sum, stream);
}

cudaError_t LaunchWordHash(const BlockNames& names, uint32_t name, const float* values,
                           int64_t blocks, uint64_t* scratch, uint64_t* sum, uint64_t* finite,
                           cudaStream_t stream) {
  static_assert(sizeof(unsigned long long) == sizeof(uint64_t));
  const HashedFloats hashed{values, name, reinterpret_cast<unsigned long long*>(finite)};
  return LaunchHash(names, hashed, blocks, scratch, sum, stream);
}

cudaError_t LaunchExponentHash(const BlockNames& names, const int16_t* exponents, int64_t blocks,
                               uint64_t* scratch, uint64_t* sum, cudaStream_t stream) {
  const cudaError_t error = Enqueue(HashExponents, HashingBlocks(blocks), dim3(kWarpLanes), stream,
                                    names, exponents, blocks, AsHalves(scratch));
  return error != cudaSuccess ? error : SumUp(blocks, scratch, sum, stream);
}

}  // namespace ringmaster::cuda
