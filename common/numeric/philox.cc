#include "common/numeric/philox.h"

#include <cstring>

#include "common/sha256.h"

namespace ringmaster {

PhiloxBlock Philox4x32(PhiloxBlock counter, std::array<uint32_t, 2> key) {
  constexpr uint32_t kMultiplier0 = 0xD2511F53, kMultiplier1 = 0xCD9E8D57;
  constexpr uint32_t kWeyl0 = 0x9E3779B9, kWeyl1 = 0xBB67AE85;
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = static_cast<uint64_t>(kMultiplier0) * counter[0];
    const uint64_t p1 = static_cast<uint64_t>(kMultiplier1) * counter[2];
    counter = {static_cast<uint32_t>(p1 >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(p1),
               static_cast<uint32_t>(p0 >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(p0)};
    key[0] += kWeyl0;
    key[1] += kWeyl1;
  }
  return counter;
}

PhiloxStream::PhiloxStream(uint64_t seed, Purpose purpose, uint64_t step, uint64_t subject,
                           const std::string& layer) {
  // A hash spreads what names the stream over key and upper counter words: 128 bits, so that two
  // streams of one job never meet.
  const uint64_t words[] = {seed, static_cast<uint64_t>(purpose), step, subject};
  Sha256 hash;
  hash.Update(words, sizeof(words));
  hash.Update(layer);
  const Sha256Digest digest = hash.Finish();
  std::memcpy(key_.data(), digest.data(), sizeof(key_));
  std::memcpy(high_.data(), digest.data() + sizeof(key_), sizeof(high_));
}

PhiloxBlock PhiloxStream::Block(uint64_t b) const {
  return Philox4x32({static_cast<uint32_t>(b), static_cast<uint32_t>(b >> 32), high_[0], high_[1]},
                    key_);
}

uint32_t PhiloxStream::At(uint64_t i) const { return Block(i / 4)[i % 4]; }

float PhiloxStream::Uniform(uint64_t i) const { return static_cast<float>(At(i) >> 8) * 0x1p-24f; }

uint32_t PhiloxStream::Below(uint64_t i, uint32_t bound) const {
  return static_cast<uint32_t>((static_cast<uint64_t>(At(i)) * bound) >> 32);
}

}  // namespace ringmaster
