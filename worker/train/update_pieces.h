// What an update is cut into, and what it reads: pieces of tensors, one core's each; the sums of
// the step; what became of a piece. Used by weight_update.cc alone. Values; StepSums reads what the
// job owns.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "common/exact/arithmetic.h"
#include "common/exact/block_layout.h"
#include "common/exact/block_sums.h"
#include "common/exact/digest.h"
#include "common/exact/units.h"
#include "common/exact/word_hash.h"
#include "common/graph/update/rule_list.h"
#include "worker/backend/backend.h"
#include "worker/train/training_job.h"

namespace ringmaster::worker::passes {

using exact::kBlockElements;

// Blocks of one thing to do for a core: 128 Ki elements. Has no influence on the result, nor has
// the next.
inline constexpr size_t kPieceBlocks = 512;
// Blocks that go through all of the pass before the next ones come.
inline constexpr size_t kStripBlocks = 1;
// Blocks after which compute copies follow: 64 KiB of parameters, still in the cache.
inline constexpr size_t kFollowBlocks = 64;

inline constexpr uint32_t kInfinity =
    exact::kInfinityBits;  // magnitudes from here on are not finite

// A run of blocks of one tensor.
struct Piece {
  uint32_t tensor = 0;  // canonical number
  size_t place = 0;     // of the tensor in the arena
  uint32_t index = 0;   // of its first block in the tensor
  size_t first_block = 0;
  size_t block_count = 0;
  size_t elements = 0;
  [[nodiscard]] size_t offset() const { return first_block * kBlockElements; }
  // `count` of its blocks from the `done`-th on, or as many as there are.
  [[nodiscard]] Piece Part(size_t done, size_t count) const {
    Piece part = *this;
    part.index += static_cast<uint32_t>(done);
    part.first_block += done;
    part.block_count = std::min(count, block_count - done);
    part.elements = std::min(elements - done * kBlockElements, part.block_count * kBlockElements);
    return part;
  }
};

// In whole units of what follows the update, while those are not far larger.
inline size_t PieceBlocks(size_t unit_elements) {
  const size_t unit = unit_elements / kBlockElements;
  if (unit <= 1 || unit_elements % kBlockElements != 0 || unit > 8 * kPieceBlocks) {
    return kPieceBlocks;
  }
  return (kPieceBlocks + unit - 1) / unit * unit;
}

inline std::vector<Piece> CutPieces(const exact::BlockLayout& layout, const Weights& weights) {
  std::vector<Piece> pieces;
  size_t place = 0;
  for (const exact::TensorRange& range : layout.tensors()) {
    const Piece whole = {range.tensor,      place++,           0,
                         range.first_block, range.block_count, range.elements};
    const size_t blocks = PieceBlocks(weights.FollowedUnit(range.tensor));
    for (size_t done = 0; done < whole.block_count; done += blocks) {
      pieces.push_back(whole.Part(done, blocks));
    }
  }
  return pieces;
}

// Where the sums of the step are, and their units, which are replaced behind the update: the one
// place that reads them.
class StepSums {
 public:
  StepSums(const TrainingJob& job, SumSource source)
      : integers_(source == SumSource::kOwn ? job.gradients->integers() : job.totals.integers),
        units_(job.state->units) {
    const exact::Bucket all{0, job.layout->blocks().block_count()};
    floats_ = source == SumSource::kOwn ? job.gradients->floats(all) : job.totals.floats.span();
  }

  // The hash of block b's. Of float32 sums the bits stand for integers.
  void Hash(const exact::Block& block, size_t b, exact::BlockSum* sum) const {
    if (!floats_.empty()) {
      const float* const floats = floats_.data() + b * kBlockElements;
      exact::AddWords(block.tensor, block.index, floats, block.count, sum);
      return;
    }
    if (const int32_t* const narrow = integers_.narrow(b); narrow != nullptr) {
      sum->Add(block.tensor, block.index, std::span(narrow, block.count));
    } else {
      std::array<int64_t, kBlockElements> wide;
      integers_.Read(b, std::span(wide).first(block.count));
      sum->Add(block.tensor, block.index, std::span<const int64_t>(wide.data(), block.count));
    }
  }

  // The reduced gradient of block b.
  void Gradient(const exact::Block& block, size_t b, float* gradient) const {
    if (!floats_.empty()) {
      std::ranges::copy(floats_.subspan(b * kBlockElements, block.count), gradient);
    } else {
      integers_.Dequantize(b, units_.unit_exponent(b), {gradient, block.count});
    }
  }

 private:
  const exact::BlockSums& integers_;
  std::span<const float> floats_;
  const exact::Units& units_;
};

// What became of one piece, by part: the parameters, then each slot.
struct PieceSums {
  explicit PieceSums(size_t parts) : read(parts), written(parts), largest(parts) {}
  exact::BlockSum totals;
  std::vector<exact::BlockSum> read, written;
  std::vector<uint32_t> largest;  // magnitudes, after the pass
};

// The slots of a range, without an allocation: there is a range for every strip.
class SlotSpans {
 public:
  void Add(std::span<float> slot) { spans_[count_++] = slot; }
  [[nodiscard]] std::span<const std::span<float>> spans() const { return {spans_.data(), count_}; }

 private:
  std::array<std::span<float>, graph::Rules::kMaxSlots + 1> spans_;  // one more for the average
  size_t count_ = 0;
};

}  // namespace ringmaster::worker::passes
