// Between a kernel in canonical layout and a blocked layout of oneDNN's, by tiles of 16 x 16 that
// go through vector registers: at each step every kernel goes one way and its gradient the other,
// and oneDNN's own reorders take several times as long as the memory needs. Immutable; thread-safe.
#pragma once

#include <cstdint>
#include <dnnl.hpp>
#include <optional>
#include <vector>

#include "worker/backend/cpu/parallel.h"

namespace ringmaster::cpu {

class WeightTiles {
 public:
  static constexpr int64_t kTile = 16;

  // nullopt: not such a layout, or inputs or outputs are not whole tiles; oneDNN has a reorder.
  // `canonical` is float32; `blocked` has blocks of inputs and outputs, each of the two in lines of
  // 16 floats or of 16 pairs in bfloat16, as for its convolutions and products.
  static std::optional<WeightTiles> Of(const dnnl::memory::desc& canonical,
                                       const dnnl::memory::desc& blocked);

  // Canonical rows lie one behind the other; a band of them is what is brought over at a time. What
  // the blocked layout pads with is left alone.
  [[nodiscard]] int64_t bands() const { return rows() / band_rows(); }
  [[nodiscard]] int64_t band_elements() const { return band_rows() * row_stride_; }

  // Bands `first` to `end` from canonical to blocked, past the caches: a copy of a kernel is read
  // in the next step. bfloat16 is rounded half to even, and a NaN stays one. `wide`: in vectors of
  // 512 bits, to the same bits.
  void Fill(const float* canonical, void* blocked, int64_t first, int64_t end,
            bool wide = HasWideVectors()) const;
  // From blocked float32 to canonical, of which `canonical` is where band `first` goes; only where
  // the layout is float32.
  void Restore(const float* blocked, float* canonical, int64_t first, int64_t end) const;
  [[nodiscard]] bool restores() const { return line_ == Line::kRow || line_ == Line::kColumn; }

 private:
  // What 64 bytes of the blocked layout are: 16 floats of a row or of a column of a tile; 16 pairs
  // of a row and the next one, or of a column and the next one.
  enum class Line : uint8_t { kRow, kColumn, kRowPair, kColumnPair };

  [[nodiscard]] int64_t rows() const { return static_cast<int64_t>(row_offsets_.size()); }
  [[nodiscard]] int64_t columns() const { return static_cast<int64_t>(column_offsets_.size()); }
  // Pairs of rows lie line beside line: less than a tile can be brought over.
  [[nodiscard]] int64_t band_rows() const { return line_ == Line::kRowPair ? 2 : kTile; }
  [[nodiscard]] std::optional<Line> FindLine(bool narrow) const;

  // Of bands of a tile's rows: work(row, column, place in canonical, the position's in blocked).
  template <typename Work>
  void ForTiles(int64_t first, int64_t end, const Work& work) const;

  // Canonical: an element is at row * row_stride_ + position * columns + column; of a convolution
  // rows are outputs and columns inputs, of a dense layer, which has one position, the reverse.
  int64_t row_stride_ = 0;
  int64_t positions_ = 1;
  // Blocked, in elements: the sum of one for the row, one for the column and the position's.
  std::vector<int64_t> row_offsets_, column_offsets_;
  int64_t position_stride_ = 0;
  Line line_ = Line::kRow;
};

}  // namespace ringmaster::cpu
