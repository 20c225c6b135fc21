// Random numbers on the GPU, and what draws them: dropout, and augmentation of stored pixels.
// Launchers enqueue and wait for nothing; each returns what cudaGetLastError says.
#pragma once

#include <cuda_runtime_api.h>

#include <cmath>
#include <cstddef>
#include <cstdint>

#include "common/graph/augment/formulas.h"
#include "common/numeric/host_device.h"

namespace ringmaster::cuda {

// The key of a random stream, and its elements: PhiloxStream (common/numeric/philox.h) for kernels,
// which know seed, step and sample only while they run. The same bits. For kernels and for host
// code; thread-safe (values and free functions).

// What SHA-256 hashes to name a stream, cut into blocks of sixteen words and padded: 32 bytes of
// seed, purpose, step and subject, which a kernel fills in, then the layer's name.
struct StreamName {
  static constexpr int kMaxBlocks = 4;
  static constexpr int kMaxLayerBytes = kMaxBlocks * 64 - 32 - 9;

  int blocks = 0;
  uint32_t words[kMaxBlocks * 16] = {};
};

// `layer_bytes` is at most kMaxLayerBytes.
inline StreamName MakeStreamName(const char* layer, int layer_bytes) {
  StreamName name;
  const int bytes = 32 + layer_bytes;
  name.blocks = (bytes + 9 + 63) / 64;
  const auto put = [&name](int at, uint32_t byte) {
    name.words[at / 4] |= byte << (24 - 8 * (at % 4));
  };
  for (int i = 0; i < layer_bytes; ++i) put(32 + i, static_cast<unsigned char>(layer[i]));
  put(bytes, 0x80);
  name.words[name.blocks * 16 - 1] = static_cast<uint32_t>(bytes) * 8;
  return name;
}

RING_HOST_DEVICE inline uint32_t RotateRight(uint32_t x, int by) {
  return (x >> by) | (x << (32 - by));
}

// Little-endian bytes read as a big-endian word, and back.
RING_HOST_DEVICE inline uint32_t SwapBytes(uint32_t x) {
  return (x << 24) | ((x & 0xff00U) << 8) | ((x >> 8) & 0xff00U) | (x >> 24);
}

// The compression function of SHA-256 (FIPS 180-4, section 6.2.2); `w` is used up.
RING_HOST_DEVICE inline void Sha256Compress(uint32_t (&state)[8], uint32_t (&w)[16]) {
  constexpr uint32_t kRound[64] = {
      0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4,
      0xab1c5ed5, 0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe,
      0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f,
      0x4a7484aa, 0x5cb0a9dc, 0x76f988da, 0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7,
      0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967, 0x27b70a85, 0x2e1b2138, 0x4d2c6dfc,
      0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85, 0xa2bfe8a1, 0xa81a664b,
      0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070, 0x19a4c116,
      0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
      0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7,
      0xc67178f2};
  uint32_t a = state[0], b = state[1], c = state[2], d = state[3];
  uint32_t e = state[4], f = state[5], g = state[6], h = state[7];
  RING_UNROLL
  for (int t = 0; t < 64; ++t) {
    if (t >= 16) {
      const uint32_t w2 = w[(t - 2) % 16];
      const uint32_t w15 = w[(t - 15) % 16];
      w[t % 16] += w[(t - 7) % 16] + (RotateRight(w2, 17) ^ RotateRight(w2, 19) ^ (w2 >> 10)) +
                   (RotateRight(w15, 7) ^ RotateRight(w15, 18) ^ (w15 >> 3));
    }
    const uint32_t sum1 = RotateRight(e, 6) ^ RotateRight(e, 11) ^ RotateRight(e, 25);
    const uint32_t first = h + sum1 + ((e & f) ^ (~e & g)) + kRound[t] + w[t % 16];
    const uint32_t sum0 = RotateRight(a, 2) ^ RotateRight(a, 13) ^ RotateRight(a, 22);
    const uint32_t second = sum0 + ((a & b) ^ (a & c) ^ (b & c));
    h = g, g = f, f = e, e = d + first;
    d = c, c = b, b = a, a = first + second;
  }
  state[0] += a, state[1] += b, state[2] += c, state[3] += d;
  state[4] += e, state[5] += f, state[6] += g, state[7] += h;
}

// Key and upper counter words of a stream.
struct alignas(16) StreamKey {
  uint32_t key[2];
  uint32_t high[2];
};

// PhiloxStream(seed, purpose, step, subject, layer).
RING_HOST_DEVICE inline StreamKey MakeStreamKey(const StreamName& name, uint64_t seed,
                                                uint64_t purpose, uint64_t step, uint64_t subject) {
  const uint64_t fields[4] = {seed, purpose, step, subject};
  uint32_t state[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                       0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  for (int block = 0; block < name.blocks; ++block) {
    uint32_t w[16];
    RING_UNROLL
    for (int i = 0; i < 16; ++i) w[i] = name.words[block * 16 + i];
    if (block == 0) {
      RING_UNROLL
      for (int i = 0; i < 4; ++i) {
        w[2 * i] = SwapBytes(static_cast<uint32_t>(fields[i]));
        w[2 * i + 1] = SwapBytes(static_cast<uint32_t>(fields[i] >> 32));
      }
    }
    Sha256Compress(state, w);
  }
  return {{SwapBytes(state[0]), SwapBytes(state[1])}, {SwapBytes(state[2]), SwapBytes(state[3])}};
}

struct StreamWords {
  uint32_t x[4];
};

// PhiloxStream::Block(b): ten rounds of Philox4x32.
RING_HOST_DEVICE inline StreamWords StreamBlock(const StreamKey& stream, uint64_t b) {
  uint32_t c0 = static_cast<uint32_t>(b), c1 = static_cast<uint32_t>(b >> 32);
  uint32_t c2 = stream.high[0], c3 = stream.high[1];
  uint32_t k0 = stream.key[0], k1 = stream.key[1];
  RING_UNROLL
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = static_cast<uint64_t>(0xD2511F53U) * c0;
    const uint64_t p1 = static_cast<uint64_t>(0xCD9E8D57U) * c2;
    c0 = static_cast<uint32_t>(p1 >> 32) ^ c1 ^ k0;
    c1 = static_cast<uint32_t>(p1);
    c2 = static_cast<uint32_t>(p0 >> 32) ^ c3 ^ k1;
    c3 = static_cast<uint32_t>(p0);
    k0 += 0x9E3779B9U;
    k1 += 0xBB67AE85U;
  }
  return {{c0, c1, c2, c3}};
}

// dropout over samples, by masks drawn while it runs. T: float, __nv_bfloat16, __half.

// Which elements dropout keeps, and what becomes of them: the CPU backend's arithmetic. For kernels
// and for host code; thread-safe (values and free functions).
struct DropoutMask {
  uint32_t threshold;  // an element is kept when the upper 24 of its bits reach this
  float divisor;       // 1 - rate
  bool per_sample;     // element 0 of a sample decides for all of it
};

// Uniform() is an integer times 2^-24, so comparing integers is the same comparison.
inline DropoutMask MakeDropoutMask(double rate, bool per_sample) {
  return {static_cast<uint32_t>(std::ceil(rate * 0x1p24)), static_cast<float>(1 - rate),
          per_sample};
}

RING_HOST_DEVICE inline float Drop(const DropoutMask& mask, uint32_t bits, float x) {
  return (bits >> 8) >= mask.threshold ? x / mask.divisor : 0.0F;
}

// keys[row] = the stream of that row's sample.
cudaError_t LaunchStreamKeys(const StreamName& name, uint64_t purpose,
                             const uint64_t* seed_and_step, const uint64_t* samples,
                             StreamKey* keys, int64_t rows, cudaStream_t stream);

// y may be x.
template <typename T>
cudaError_t LaunchDropout(const DropoutMask& mask, const StreamKey* keys, const T* x, T* y,
                          int64_t rows, int64_t row_elements, cudaStream_t stream);

// Augmentation of stored pixels, with the bits of common/graph/augment. All pointers are to device
// memory.

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

// `seed_and_step`: two words; `samples`: the number of each row's sample; `images`: float32, or
// those values as LaunchCast rounds them.
template <typename T>
cudaError_t LaunchAugment(const AugmentPlan& plan, const uint8_t* pixels, int64_t rows,
                          const uint64_t* seed_and_step, const uint64_t* samples,
                          const AugmentScratch& scratch, T* images, cudaStream_t stream);

}  // namespace ringmaster::cuda
