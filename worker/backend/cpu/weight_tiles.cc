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

constexpr int64_t kSide = WeightTiles::kTile;

// Below, a tile's rows lie `stride` apart, and its lines begin at `to` and so much further on as
// `lines` says, those of pairs at every second one.

__m256i Load(const float* from) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
}
void Store(__m256i values, float* to) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), values);
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

// Eight lines, of which every `step`-th offset is one's.
template <typename T>
void StreamLines(const __m256i* upper, const __m256i* lower, T* to, const int64_t* lines,
                 int64_t step) {
  for (int64_t i = 0; i < 8; ++i) {
    T* const line = to + lines[i * step];
    Stream(upper[i], line);
    Stream(lower[i], line + 8 * step);
  }
}

void Columns(const float* rows, int64_t stride, float* to, const int64_t* lines) {
  __m256i left[kSide], right[kSide];
  for (int64_t i = 0; i < kSide; ++i) {  // a row's line at once: rows may share a cache's set
    left[i] = Load(rows + i * stride);
    right[i] = Load(rows + i * stride + 8);
  }
  for (__m256i* const eight : {left, left + 8, right, right + 8}) Transpose(eight);
  StreamLines(left, left + 8, to, lines, 1);
  StreamLines(right, right + 8, to, lines + 8, 1);
}

void ColumnPairsBy256(const float* rows, int64_t stride, BFloat16* to, const int64_t* lines) {
  __m256i upper[8], lower[8];
  for (int64_t i = 0; i < 8; ++i) {
    upper[i] = PairsOf(rows + i * stride);
    lower[i] = PairsOf(rows + (i + 8) * stride);
  }
  Transpose(upper);
  Transpose(lower);
  StreamLines(upper, lower, to, lines, 2);
}

void RowPairBy256(const float* rows, int64_t stride, BFloat16* to, const int64_t* lines,
                  int64_t columns) {
  for (int64_t column = 0; column < columns; column += kSide) {
    BFloat16* const line = to + lines[column];
    for (int64_t at = column; at < column + kSide; at += 8) {
      Stream(_mm256_or_si256(Rounded(Load(rows + at)),
                             _mm256_slli_epi32(Rounded(Load(rows + stride + at)), 16)),
             line + 2 * (at - column));
    }
  }
}

void RestoreColumns(const float* from, const int64_t* lines, float* rows, int64_t stride) {
  for (int64_t half = 0; half < kSide; half += 8) {
    __m256i left[8], right[8];  // of rows `half` to half + 8
    for (int64_t i = 0; i < 8; ++i) {
      left[i] = Load(from + half + lines[i]);
      right[i] = Load(from + half + lines[8 + i]);
    }
    Transpose(left);
    Transpose(right);
    for (int64_t i = 0; i < 8; ++i) {
      Store(left[i], rows + (half + i) * stride);
      Store(right[i], rows + (half + i) * stride + 8);
    }
  }
}

#if defined(__GNUC__) && !defined(__clang__)
// g++ 12 takes the deliberately undefined vectors inside its own intrinsics for mistakes of ours.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#define RING_BY_512 __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl")))

RING_BY_512 __m512i RoundedBy512(const float* from) {
  const __m512i bits = _mm512_loadu_si512(from);
  const __m512i upper = _mm512_srli_epi32(bits, 16);
  const __m512i half =
      _mm512_add_epi32(_mm512_and_si512(upper, _mm512_set1_epi32(1)), _mm512_set1_epi32(0x7fff));
  const __m512i rounded = _mm512_srli_epi32(_mm512_add_epi32(bits, half), 16);
  const __m512 values = _mm512_castsi512_ps(bits);
  return _mm512_mask_or_epi32(rounded, _mm512_cmp_ps_mask(values, values, _CMP_UNORD_Q), upper,
                              _mm512_set1_epi32(0x40));
}

// Of four vectors the words of 32 bits, in each quarter by itself: the first of each, one beside
// the other, then the second and so on.
RING_BY_512 void TransposeWords(__m512i v[4]) {
  const __m512i first = _mm512_unpacklo_epi32(v[0], v[1]),
                second = _mm512_unpackhi_epi32(v[0], v[1]);
  const __m512i third = _mm512_unpacklo_epi32(v[2], v[3]),
                fourth = _mm512_unpackhi_epi32(v[2], v[3]);
  v[0] = _mm512_unpacklo_epi64(first, third);
  v[1] = _mm512_unpackhi_epi64(first, third);
  v[2] = _mm512_unpacklo_epi64(second, fourth);
  v[3] = _mm512_unpackhi_epi64(second, fourth);
}

// Of four vectors the quarters: the first of each, one beside the other, then the second and so on.
RING_BY_512 void TransposeQuarters(__m512i v[4]) {
  const __m512i even = _mm512_shuffle_i64x2(v[0], v[1], 0b10'00'10'00);
  const __m512i odd = _mm512_shuffle_i64x2(v[0], v[1], 0b11'01'11'01);
  const __m512i other_even = _mm512_shuffle_i64x2(v[2], v[3], 0b10'00'10'00);
  const __m512i other_odd = _mm512_shuffle_i64x2(v[2], v[3], 0b11'01'11'01);
  v[0] = _mm512_shuffle_i64x2(even, other_even, 0b10'00'10'00);
  v[1] = _mm512_shuffle_i64x2(odd, other_odd, 0b10'00'10'00);
  v[2] = _mm512_shuffle_i64x2(even, other_even, 0b11'01'11'01);
  v[3] = _mm512_shuffle_i64x2(odd, other_odd, 0b11'01'11'01);
}

RING_BY_512 void ColumnPairsBy512(const float* rows, int64_t stride, BFloat16* to,
                                  const int64_t* lines) {
  // In each quarter two pairs of a row, then the same two of the eighth row behind it.
  __m512i upper[4], lower[4];
  for (int64_t i = 0; i < 4; ++i) {
    const float* const row = rows + i * stride;
    upper[i] = _mm512_packus_epi32(RoundedBy512(row), RoundedBy512(row + 8 * stride));
    lower[i] = _mm512_packus_epi32(RoundedBy512(row + 4 * stride), RoundedBy512(row + 12 * stride));
  }
  TransposeWords(upper);
  TransposeWords(lower);
  for (int64_t pair = 0; pair < 2; ++pair) {
    __m512i v[4] = {upper[pair], lower[pair], upper[pair + 2], lower[pair + 2]};
    TransposeQuarters(v);
    for (int64_t i = 0; i < 4; ++i) {
      _mm512_stream_si512(reinterpret_cast<__m512i*>(to + lines[2 * (2 * i + pair)]), v[i]);
    }
  }
}

RING_BY_512 void RowPairBy512(const float* rows, int64_t stride, BFloat16* to, const int64_t* lines,
                              int64_t columns) {
  for (int64_t column = 0; column < columns; column += kSide) {
    const __m512i second = RoundedBy512(rows + stride + column);
    _mm512_stream_si512(
        reinterpret_cast<__m512i*>(to + lines[column]),
        _mm512_or_si512(RoundedBy512(rows + column), _mm512_slli_epi32(second, 16)));
  }
}

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic pop
#endif

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

void WeightTiles::Fill(const float* canonical, void* blocked, int64_t first, int64_t end,
                       bool wide) const {
  const auto column_pairs = wide ? &ColumnPairsBy512 : &ColumnPairsBy256;
  const auto row_pair = wide ? &RowPairBy512 : &RowPairBy256;
  const int64_t* const row_at = row_offsets_.data();
  const int64_t* const column_at = column_offsets_.data();
  auto* const floats = static_cast<float*>(blocked);
  auto* const narrow = static_cast<BFloat16*>(blocked);
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
        Columns(canonical + from, row_stride_, floats + to + row_at[row], column_at + column);
      });
      break;
    case Line::kRowPair:
      for (int64_t row = 2 * first; row < 2 * end; row += 2) {
        for (int64_t position = 0; position < positions_; ++position) {
          row_pair(canonical + row * row_stride_ + position * columns(), row_stride_,
                   narrow + row_at[row] + position * position_stride_, column_at, columns());
        }
      }
      break;
    case Line::kColumnPair:
      ForTiles(first, end, [&](int64_t row, int64_t column, int64_t from, int64_t to) {
        column_pairs(canonical + from, row_stride_, narrow + to + row_at[row], column_at + column);
      });
      break;
  }
  _mm_sfence();
}

void WeightTiles::Restore(const float* blocked, float* canonical, int64_t first,
                          int64_t end) const {
  const int64_t begin = first * band_elements();
  if (line_ == Line::kRow) {
    ForTiles(first, end, [&](int64_t row, int64_t column, int64_t to, int64_t from) {
      for (int64_t i = 0; i < kTile; ++i) {
        const float* const line = blocked + from + row_offsets_[row + i] + column_offsets_[column];
        Store(Load(line), canonical + to - begin + i * row_stride_);
        Store(Load(line + 8), canonical + to - begin + i * row_stride_ + 8);
      }
    });
    return;
  }
  RING_CHECK(line_ == Line::kColumn, "pairs are restored by nobody");
  ForTiles(first, end, [&](int64_t row, int64_t column, int64_t to, int64_t from) {
    RestoreColumns(blocked + from + row_offsets_[row], column_offsets_.data() + column,
                   canonical + to - begin, row_stride_);
  });
}

}  // namespace ringmaster::cpu
