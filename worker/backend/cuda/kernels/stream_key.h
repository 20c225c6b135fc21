// The key of a random stream, and its elements: PhiloxStream (common/philox.h) for kernels, which
// know seed, step and sample only while they run. The same bits. For kernels and for host code;
// thread-safe (values and free functions).
#pragma once

#include <cstdint>

#include "common/host_device.h"

namespace ringmaster::cuda {

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

}  // namespace ringmaster::cuda
