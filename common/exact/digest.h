// The digest that proves that workers agree (docs/life_of_a_step.md). Values; thread-compatible.
//
//   digest(0)   = SHA-256("ringmaster digest 0" || digest of what all states are a function of)
//   digest(k+1) = SHA-256(digest(k) || k as u64 little-endian || M || D || P)
//   M           = SHA-256 of the class maps that begin at k; zeros where none does
//   D           = sum mod 2^128, over all blocks and the record, of a keyed hash of
//                 (tensor, block index, the integers as int64)
//   P           = the same over what else S(k+1) holds, of the hash of words (word_hash.h)
// so that order, chunking and widths do not matter. D proves equal sums, P equal states.
//
// The hash of a block: for each element x at position i with keys a_i = (a'_i, a"_i) and b_i,
//   A = sum of (low32(x) + a'_i) (high32(x) + a"_i) mod 2^64, the factors mod 2^32,
//   B = the same with b_i,
// a_i = SplitMix64's finalizer of (2 i + 1) phi, b_i of (2 i + 2) phi, bit 33 set; then a bijection
// of (A, B) that (tensor, index, count) choose. A single wrong element is always found where both
// values fit 32 bits and have the same sign; any other difference is missed by a chance of about
// 2^-64 (2^-32 for each half). It guards against errors, not against an adversary: the keys are
// public.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "common/exact/block_hash.h"
#include "common/sha256.h"

namespace ringmaster::exact {

// A sum mod 2^128 of block hashes; adding commutes.
class BlockSum {
 public:
  // Of a sum that was made elsewhere: its lower and its upper 64 bits.
  [[nodiscard]] static BlockSum OfHalves(uint64_t low, uint64_t high);
  [[nodiscard]] static BlockSum OfBytes(const std::array<uint8_t, 16>& bytes);

  // Adds the hash of one block's integers; of int32 that of the same numbers as int64.
  void Add(uint32_t tensor, uint32_t index, std::span<const int64_t> integers);
  void Add(uint32_t tensor, uint32_t index, std::span<const int32_t> integers);
  void Add(const BlockSum& other);
  void Add(const Halves& hash) { AddHash(hash, &sum_); }
  [[nodiscard]] std::array<uint8_t, 16> bytes() const;  // little-endian
  bool operator==(const BlockSum&) const = default;

 private:
  Halves sum_;  // the lower half first
};

[[nodiscard]] Sha256Digest FirstDigest(const Sha256Digest& states_digest);

// What digest(k+1) is made of, beside P.
struct DigestLink {
  Sha256Digest before{};  // digest(k)
  Sha256Digest maps{};    // M
  BlockSum sums;          // D
  bool operator==(const DigestLink&) const = default;
};
// digest(step + 1); `state` is P of S(step + 1).
[[nodiscard]] Sha256Digest NextDigest(const DigestLink& link, uint64_t step, const BlockSum& state);

}  // namespace ringmaster::exact
