// A warp hashes a few blocks one after the other, each lane its share of the elements of each, and
// then each lane finishes the hash of one block. Sums are integers mod 2^64 and 2^128: their order
// does not matter.
#include "common/exact/arithmetic.h"
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
__device__ constexpr exact::WordKeys kWordKeys = exact::MakeWordKeys();

// What is hashed: the integers of sums, with the hash of digest.h.
struct HashedIntegers {
  using Key = uint64_t;
  __device__ static const exact::ElementKeys& keys() { return kElementKeys; }

  const int64_t* values;
  uint32_t name;  // added to a tensor's number

  __device__ uint64_t Product(int64_t value, Key key) const {
    return exact::KeyedProduct(value, key);
  }
  __device__ void Look(int64_t /*value*/) const {}
};

// float32 as words, with that of word_hash.h. Says so when one is not finite.
struct HashedFloats {
  using Key = uint32_t;
  __device__ static const exact::WordKeys& keys() { return kWordKeys; }

  const float* values;
  uint32_t name;
  unsigned long long* finite;

  __device__ uint64_t Product(float value, Key key) const {
    return exact::WordProduct(exact::FloatBits(value), key);
  }
  __device__ void Look(float value) const {
    const uint32_t magnitude = exact::FloatBits(value) & exact::kMagnitudeMask;
    if (magnitude >= exact::kInfinityBits) atomicMin(finite, 0ULL);
  }
};

__device__ Halves ShuffleXor(const Halves& halves, int lanes) {
  return {__shfl_xor_sync(kAllLanes, halves.first, lanes),
          __shfl_xor_sync(kAllLanes, halves.second, lanes)};
}

// The keys of a lane's elements, which are `lane`, lane + 32, ... of every block.
template <typename Hashed>
struct LaneKeys {
  typename Hashed::Key first[kHashedOfLane];
  typename Hashed::Key second[kHashedOfLane];

  __device__ explicit LaneKeys(unsigned lane) {
#pragma unroll
    for (int k = 0; k < kHashedOfLane; ++k) {
      first[k] = Hashed::keys().first[k * kWarpLanes + lane];
      second[k] = Hashed::keys().second[k * kWarpLanes + lane];
    }
  }

  // The sums over all products of a block, on every lane.
  __device__ Halves Compress(const Hashed& hashed, int64_t b, unsigned count, unsigned lane) const {
    const auto* const block = hashed.values + b * exact::kBlockElements;
    Halves halves;
#pragma unroll
    for (int k = 0; k < kHashedOfLane; ++k) {
      const unsigned i = k * kWarpLanes + lane;
      if (i >= count) continue;
      const auto value = block[i];
      hashed.Look(value);
      halves.first += hashed.Product(value, first[k]);
      halves.second += hashed.Product(value, second[k]);
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

template <typename Hashed>
__global__ void __launch_bounds__(kWarpLanes* kHashWarps)
    HashBlocks(BlockNames names, Hashed hashed, int64_t blocks, Halves* __restrict__ partial) {
  __shared__ Halves sums[kHashWarps];
  const unsigned lane = threadIdx.x;
  const int64_t begin =
      (static_cast<int64_t>(blockIdx.x) * kHashWarps + threadIdx.y) * kBlocksOfWarp;
  const LaneKeys<Hashed> keys(lane);
  Halves mine;  // of block begin + lane
  for (unsigned k = 0; k < kBlocksOfWarp; ++k) {
    const int64_t b = begin + k;
    if (b >= blocks) break;  // a whole warp
    const Halves halves = keys.Compress(hashed, b, names.counts[b], lane);
    if (lane == k) mine = halves;
  }
  Halves sum;
  const int64_t b = begin + lane;
  if (lane < kBlocksOfWarp && b < blocks) {
    sum =
        exact::FinishHash(mine, hashed.name + names.tensors[b], names.indices[b], names.counts[b]);
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

// One word of each block, as many partial sums as HashBlocks has.
__global__ void __launch_bounds__(kHashSumThreads)
    HashExponents(BlockNames names, const int16_t* __restrict__ exponents, int64_t blocks,
                  Halves* __restrict__ partial) {
  const int64_t begin = static_cast<int64_t>(blockIdx.x) * kHashWarps * kBlocksOfWarp;
  if (threadIdx.x != 0) return;
  Halves sum;
  for (int64_t b = begin; b < begin + kHashWarps * kBlocksOfWarp && b < blocks; ++b) {
    const auto word = static_cast<uint32_t>(static_cast<uint16_t>(exponents[b]));
    const Halves halves{exact::WordProduct(word, kWordKeys.first[0]),
                        exact::WordProduct(word, kWordKeys.second[0])};
    exact::AddHash(
        exact::FinishHash(halves, exact::NameOfPart(exact::StatePart::kExponents, names.tensors[b]),
                          names.indices[b], 1),
        &sum);
  }
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
  const cudaError_t error = Enqueue(HashExponents, HashingBlocks(blocks), dim3(kHashSumThreads),
                                    stream, names, exponents, blocks, AsHalves(scratch));
  return error != cudaSuccess ? error : SumUp(blocks, scratch, sum, stream);
}

}  // namespace ringmaster::cuda
