// The digest that proves that workers agree (docs/life_of_a_step.md). Values; thread-compatible.
//
//   digest(0)   = SHA-256("ringmaster digest 0" || digest of what all states are a function of)
//   digest(k+1) = SHA-256(digest(k) || k as u64 little-endian || M || D || P)
//   M           = SHA-256 of the class maps that begin at k; zeros where none does
//   D           = sum mod 2^128, over all blocks and the record, of a keyed hash of
//                 (tensor, block index, the integers as int64)
//   P           = the same over what else S(k+1) holds, of words
// so that order, chunking and widths do not matter. D proves equal sums, P equal states.
//
// Both are hashes of words (word_hash.h). Of integers the words are their lower halves; where one
// of them does not fit 32 bits, another hash is added, whose count is larger by 256: of the words
// by which the upper halves differ from the signs of the lower ones.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
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

// digest(0). `given`: P of S(0), where that is not drawn by what the states' digest is of.
[[nodiscard]] Sha256Digest FirstDigest(const Sha256Digest& states_digest,
                                       const std::optional<BlockSum>& given = {});

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
