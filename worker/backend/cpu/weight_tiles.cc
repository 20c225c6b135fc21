#include "worker/backend/cpu/weight_tiles.h"

#include <immintrin.h>

#include <algorithm>

#include "common/check.h"
#include "worker/backend/cpu/storage.h"

namespace ringmaster::cpu {
namespace {

constexpr int kOutputs = 0, kInputs = 1, kHeight = 2, kWidth = 3;  // dimensions, as oneDNN has them

// Where elements 0, 1, ... of a dimension lie, those of the other dimensions being 0.
std::vector<int64_t> OffsetsOf(const dnnl_memory_desc_t& desc, int dimension) {
  const dnnl_blocking_desc_t& blocking = desc.format_desc.blocking;
  std::vector<int64_t> offsets(static_cast<size_t>(desc.dims[dimension]));
  for (size_t i = 0; i < offsets.size(); ++i) {
    auto rest = static_cast<int64_t>(i);
    int64_t inside = 1;
    for (int block = blocking.inner_nblks - 1; block >= 0; --block) {
      const int64_t extent = blocking.inner_blks[block];
      if (blocking.inner_idxs[block] == dimension) {
        offsets[i] += rest % extent * inside;
        rest /= extent;
      }
      inside *= extent;
    }
    offsets[i] += rest * blocking.strides[dimension];
  }
  return offsets;
}

bool IsPlain(const dnnl_memory_desc_t& desc) {
  return desc.format_kind == dnnl_blocked && desc.offset0 == 0 &&
         desc.extra.flags == dnnl_memory_extra_flag_none;
}

// Elements 0 to 15 of every tile lie so far apart: `step`.
bool Advances(const std::vector<int64_t>& offsets, int64_t step) {
  for (size_t i = 0; i < offsets.size(); ++i) {
    if (offsets[i] != offsets[i - i % 16] + static_cast<int64_t>(i % 16) * step) return false;
  }
  return true;
}

// Every second one lies behind the one before it.
bool Pairs(const std::vector<int64_t>& offsets) {
  for (size_t i = 1; i < offsets.size(); i += 2) {
    if (offsets[i] != offsets[i - 1] + 1) return false;
  }
  return true;
}

__m256i Load(const float* from) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
}

// Half a line.
void Stream(__m256i values, void* to) { _mm256_stream_si256(static_cast<__m256i*>(to), values); }

// As BFloat16 rounds, in the lower halves.
__m256i Rounded(__m256i bits) {
  const __m256i upper = _mm256_srli_epi32(bits, 16);
  const __m256i half =
      _mm256_add_epi32(_mm256_and_si256(upper, _mm256_set1_epi32(1)), _mm256_set1_epi32(0x7fff));
  const __m256i rounded = _mm256_srli_epi32(_mm256_add_epi32(bits, half), 16);
  const __m256i nan = _mm256_cmpgt_epi32(_mm256_and_si256(bits, _mm256_set1_epi32(0x7fffffff)),
                                         _mm256_set1_epi32(0x7f800000));
  return _mm256_blendv_epi8(rounded, _mm256_or_si256(upper, _mm256_set1_epi32(0x40)), nan);
}

// 16 floats as 8 pairs, in order.
__m256i PairsOf(const float* from) {
  const __m256i mixed = _mm256_packus_epi32(Rounded(Load(from)), Rounded(Load(from + 8)));
  return _mm256_permute4x64_epi64(mixed, 0b11'01'10'00);
}

// Words of 32 bits.
void Transpose(__m256i rows[8]) {
  __m256i pairs[8];
  for (int i = 0; i < 8; i += 2) {
    pairs[i] = _mm256_unpacklo_epi32(rows[i], rows[i + 1]);
    pairs[i + 1] = _mm256_unpackhi_epi32(rows[i], rows[i + 1]);
  }
  __m256i fours[8];
  for (int i = 0; i < 8; i += 4) {
    for (int k = 0; k < 2; ++k) {
      fours[i + 2 * k] = _mm256_unpacklo_epi64(pairs[i + k], pairs[i + 2 + k]);
      fours[i + 2 * k + 1] = _mm256_unpackhi_epi64(pairs[i + k], pairs[i + 2 + k]);
    }
  }
  for (int i = 0; i < 4; ++i) {
    rows[i] = _mm256_permute2x128_si256(fours[i], fours[i + 4], 0x20);
    rows[i + 4] = _mm256_permute2x128_si256(fours[i], fours[i + 4], 0x31);
  }
}

}  // namespace

std::optional<WeightTiles> WeightTiles::Of(const dnnl::memory::desc& canonical,
                                           const dnnl::memory::desc& blocked) {
  const dnnl_memory_desc_t& from = canonical.data;
  const dnnl_memory_desc_t& to = blocked.data;
  if (!IsPlain(from) || !IsPlain(to) || from.format_desc.blocking.inner_nblks != 0 ||
      from.data_type != dnnl_f32 || from.ndims != to.ndims ||
      !std::equal(from.dims, from.dims + from.ndims, to.dims)) {
    return std::nullopt;
  }
  const dnnl_dim_t* const lie = from.format_desc.blocking.strides;
  const dnnl_dim_t* const strides = to.format_desc.blocking.strides;
  const bool convolves = from.ndims == 4;
  if (!convolves && from.ndims != 2) return std::nullopt;
  const int row = convolves ? kOutputs : kInputs, column = 1 - row;
  WeightTiles tiles;
  tiles.row_stride_ = lie[row];
  const dnnl_dim_t columns = from.dims[column];
  if (convolves) {
    const dnnl_dim_t width = from.dims[kWidth];
    tiles.positions_ = from.dims[kHeight] * width;
    tiles.position_stride_ = strides[kWidth];
    const bool one_by_one = tiles.positions_ == 1;
    if (!one_by_one && (lie[kWidth] != columns || lie[kHeight] != width * columns ||
                        strides[kHeight] != width * strides[kWidth])) {
      return std::nullopt;
    }
  }
  if (lie[column] != 1 || lie[row] != tiles.positions_ * columns || columns % kTile != 0 ||
      from.dims[row] % kTile != 0) {
    return std::nullopt;
  }
  tiles.row_offsets_ = OffsetsOf(to, row);
  tiles.column_offsets_ = OffsetsOf(to, column);
  const bool narrow = to.data_type == dnnl_bf16;
  if (!narrow && to.data_type != dnnl_f32) return std::nullopt;
  const auto line = tiles.FindLine(narrow);
  if (!line) return std::nullopt;
  tiles.line_ = *line;
  return tiles;
}

std::optional<WeightTiles::Line> WeightTiles::FindLine(bool narrow) const {
  const int64_t step = narrow ? 2 : 1;
  // `along`: of what a line has one behind the other; `across`: what lines are counted by.
  const auto fits = [&](const std::vector<int64_t>& along, const std::vector<int64_t>& across) {
    if (!Advances(along, step) || (narrow && !Pairs(across))) return false;
    const int64_t line = kTile * step;  // and lines are whole ones of the cache
    const auto whole = [line](const std::vector<int64_t>& offsets, size_t every) {
      for (size_t i = 0; i < offsets.size(); i += every) {
        if (offsets[i] % line != 0) return false;
      }
      return true;
    };
    return whole(along, kTile) && whole(across, static_cast<size_t>(step)) &&
           (positions_ == 1 || position_stride_ % line == 0);
  };
  if (fits(column_offsets_, row_offsets_)) return narrow ? Line::kRowPair : Line::kRow;
  if (fits(row_offsets_, column_offsets_)) return narrow ? Line::kColumnPair : Line::kColumn;
  return std::nullopt;
}

template <typename Work>
void WeightTiles::ForTiles(int64_t first, int64_t end, const Work& work) const {
  for (int64_t row = first * kTile; row < end * kTile; row += kTile) {
    for (int64_t position = 0; position < positions_; ++position) {
      for (int64_t column = 0; column < columns(); column += kTile) {
        work(row, column, row * row_stride_ + position * columns() + column,
             position * position_stride_);
      }
    }
  }
}

void WeightTiles::Fill(const float* canonical, void* blocked, int64_t first, int64_t end) const {
  const int64_t* const row_at = row_offsets_.data();
  const int64_t* const column_at = column_offsets_.data();
  auto* const floats = static_cast<float*>(blocked);
  auto* const narrow = static_cast<BFloat16*>(blocked);
  // Eight lines that begin in a transposed tile's columns `column`, `column` + step and so on.
  const auto stream = [&](const __m256i* upper, const __m256i* lower, auto* to, int64_t column,
                          int64_t step) {
    for (int64_t i = 0; i < 8; ++i) {
      auto* const line = to + column_at[column + i * step];
      Stream(upper[i], line);
      Stream(lower[i], line + 8 * step);
    }
  };
  switch (line_) {
    case Line::kRow:
      ForTiles(first, end, [&](int64_t row, int64_t column, int64_t from, int64_t to) {
        for (int64_t i = 0; i < kTile; ++i) {
          const float* const values = canonical + from + i * row_stride_;
          float* const line = floats + to + row_at[row + i] + column_at[column];
          Stream(Load(values), line);
          Stream(Load(values + 8), line + 8);
        }
      });
      break;
    case Line::kColumn:
      ForTiles(first, end, [&](int64_t row, int64_t column, int64_t from, int64_t to) {
        __m256i left[kTile], right[kTile];
        for (int64_t i = 0; i < kTile; ++i) {  // a row's line at once: rows may share a cache's set
          left[i] = Load(canonical + from + i * row_stride_);
          right[i] = Load(canonical + from + i * row_stride_ + 8);
        }
        for (__m256i* const eight : {left, left + 8, right, right + 8}) Transpose(eight);
        stream(left, left + 8, floats + to + row_at[row], column, 1);
        stream(right, right + 8, floats + to + row_at[row], column + 8, 1);
      });
      break;
    case Line::kRowPair:
      for (int64_t row = 2 * first; row < 2 * end; row += 2) {
        for (int64_t position = 0; position < positions_; ++position) {
          const float* const values = canonical + row * row_stride_ + position * columns();
          const float* const second = values + row_stride_;
          BFloat16* const to = narrow + row_at[row] + position * position_stride_;
          for (int64_t column = 0; column < columns(); column += kTile) {
            BFloat16* const line = to + column_at[column];
            for (int64_t at = column; at < column + kTile; at += 8) {
              Stream(_mm256_or_si256(Rounded(Load(values + at)),
                                     _mm256_slli_epi32(Rounded(Load(second + at)), 16)),
                     line + 2 * (at - column));
            }
          }
        }
      }
      break;
    case Line::kColumnPair:
      ForTiles(first, end, [&](int64_t row, int64_t column, int64_t from, int64_t to) {
        __m256i upper[8], lower[8];
        for (int64_t i = 0; i < 8; ++i) {
          upper[i] = PairsOf(canonical + from + i * row_stride_);
          lower[i] = PairsOf(canonical + from + (i + 8) * row_stride_);
        }
        Transpose(upper);
        Transpose(lower);
        stream(upper, lower, narrow + to + row_at[row], column, 2);
      });
      break;
  }
  _mm_sfence();
}

void WeightTiles::Restore(const float* blocked, float* canonical, int64_t first,
                          int64_t end) const {
  const auto store = [](__m256i values, float* to) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), values);
  };
  const int64_t begin = first * band_elements();
  if (line_ == Line::kRow) {
    ForTiles(first, end, [&](int64_t row, int64_t column, int64_t to, int64_t from) {
      for (int64_t i = 0; i < kTile; ++i) {
        const float* const line = blocked + from + row_offsets_[row + i] + column_offsets_[column];
        store(Load(line), canonical + to - begin + i * row_stride_);
        store(Load(line + 8), canonical + to - begin + i * row_stride_ + 8);
      }
    });
    return;
  }
  RING_CHECK(line_ == Line::kColumn, "pairs are restored by nobody");
  ForTiles(first, end, [&](int64_t row, int64_t column, int64_t to, int64_t from) {
    for (int64_t half = 0; half < kTile; half += 8) {
      __m256i left[8], right[8];  // of rows `half` to half + 8
      for (int64_t i = 0; i < 8; ++i) {
        const float* const lines = blocked + from + row_offsets_[row] + half;
        left[i] = Load(lines + column_offsets_[column + i]);
        right[i] = Load(lines + column_offsets_[column + 8 + i]);
      }
      Transpose(left);
      Transpose(right);
      for (int64_t i = 0; i < 8; ++i) {
        float* const values = canonical + to - begin + (half + i) * row_stride_;
        store(left[i], values);
        store(right[i], values + 8);
      }
    }
  });
}

}  // namespace ringmaster::cpu
