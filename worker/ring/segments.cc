#include "worker/ring/segments.h"

#include <algorithm>
#include <cstring>

#include "common/exact/codec.h"
#include "common/exact/kernels.h"

namespace ringmaster::ring {
namespace {

constexpr int kMaxWidth = 64;

// Of a payload's block, so that it and a narrow block of own sums add up within int32, or it alone
// is a narrow block.
constexpr int kNarrowWidth = 30;

size_t WidthBytes(size_t blocks) { return (blocks + 63) / 64 * 64; }

}  // namespace

bool OwnSums::Hold(size_t blocks) const {
  return sums_ == nullptr ? integers_.size() == blocks * exact::kBlockElements
                          : first_ + blocks <= sums_->blocks();
}

std::span<const int64_t> OwnSums::Read(size_t block, size_t count, int64_t* side) const {
  if (sums_ == nullptr) return integers_.subspan(block * exact::kBlockElements, count);
  sums_->Read(first_ + block, {side, count});
  return {side, count};
}

bool TotalSums::Hold(size_t blocks) const {
  return sums_ == nullptr ? integers_.size() == blocks * exact::kBlockElements
                          : first_ + blocks <= sums_->blocks();
}

void TotalSums::Write(size_t block, std::span<const int64_t> elements) const {
  if (sums_ == nullptr) {
    std::ranges::copy(elements, integers_.subspan(block * exact::kBlockElements).begin());
  } else {
    sums_->Write(first_ + block, elements);
  }
}

size_t ExactSegments::PayloadLimit(size_t blocks) {
  return WidthBytes(blocks) + blocks * exact::PackedBytes(kMaxWidth, exact::kBlockElements);
}

// Fills a buffer of the pool block by block, widths in front.
class ExactSegments::Writer {
 public:
  Writer(const exact::Kernels& kernels, BufferPool* pool, size_t blocks)
      : kernels_(kernels),
        buffer_(pool->Acquire()),
        width_(buffer_.get()),
        end_(width_ + WidthBytes(blocks)) {
    std::memset(width_, 0, WidthBytes(blocks));
  }

  // Of int64 or int32.
  template <typename T>
  void Append(std::span<const T> block) {
    Append(block, exact::Width(kernels_, block));
  }
  template <typename T>
  void Append(std::span<const T> block, int width) {
    *width_++ = static_cast<uint8_t>(width);
    exact::Pack(kernels_, block, width, end_);
    end_ += exact::PackedBytes(width, block.size());
  }

  [[nodiscard]] Payload Finish() && {
    const uint8_t* const start = buffer_.get();
    return {{{start, static_cast<size_t>(end_ - start)}}, std::move(buffer_)};
  }

 private:
  const exact::Kernels& kernels_;
  std::shared_ptr<uint8_t> buffer_;
  uint8_t* width_;
  uint8_t* end_;
};

Payload ExactSegments::Pack(const Turn& turn) {
  Writer writer(kernels_, pool_, turn.block_count);
  for (size_t block = turn.first_block; block < turn.first_block + turn.block_count; ++block) {
    const size_t count = blocks_[block].count;
    if (const int32_t* const narrow = own_.narrow(block); narrow != nullptr) {
      writer.Append(std::span(narrow, count), own_.NarrowWidth(block, count));
    } else {
      writer.Append(own_.Read(block, count, wide_.data()));
    }
  }
  return std::move(writer).Finish();
}

Status ExactSegments::ReadWidths(const Turn& turn, PayloadReader* reader) {
  const size_t width_bytes = WidthBytes(turn.block_count);
  if (reader->remaining() < width_bytes) {
    return InvalidArgument(
        "payload of chunk {} segment {}: {} bytes do not hold the widths of {} "
        "blocks, which take {}",
        turn.chunk, turn.segment, reader->remaining(), turn.block_count, width_bytes);
  }
  widths_.resize(width_bytes);
  const uint8_t* const place = reader->Take(width_bytes, widths_.data());
  if (place != widths_.data()) std::memcpy(widths_.data(), place, width_bytes);

  size_t expected = 0;
  const auto range = blocks(turn);
  for (size_t i = 0; i < range.size(); ++i) {
    if (widths_[i] > kMaxWidth || widths_[i] % 2 != 0) {
      return InvalidArgument(
          "payload of chunk {} segment {}: the width of block {} is {}, expected an even number "
          "from 0 to {}",
          turn.chunk, turn.segment, i, widths_[i], kMaxWidth);
    }
    expected += exact::PackedBytes(widths_[i], range[i].count);
  }
  if (reader->remaining() != expected) {
    return InvalidArgument(
        "payload of chunk {} segment {}: its widths ask for {} bytes of packed blocks, got {}",
        turn.chunk, turn.segment, expected, reader->remaining());
  }
  return absl::OkStatus();
}

StatusOr<Payload> ExactSegments::Fold(const Turn& turn, const Payload& received, Totals totals) {
  PayloadReader reader(received);
  RING_RETURN_IF_ERROR(ReadWidths(turn, &reader));
  Writer writer(kernels_, pool_, turn.block_count);
  for (size_t i = 0; i < turn.block_count; ++i) {
    const size_t block = turn.first_block + i;
    const size_t bytes = exact::PackedBytes(widths_[i], blocks_[block].count);
    FoldBlock(block, reader.Take(bytes, side_.data()), widths_[i], totals, &writer);
  }
  return std::move(writer).Finish();
}

void ExactSegments::FoldBlock(size_t block, const uint8_t* packed, int width, Totals totals,
                              Writer* writer) {
  const size_t count = blocks_[block].count;
  const int32_t* const narrow = own_.narrow(block);
  if (narrow != nullptr && width <= kNarrowWidth) {
    int32_t* const kept = totals == Totals::kKeep ? totals_.MakeNarrow(block) : nullptr;
    int32_t* const sums = kept != nullptr ? kept : narrow_.data();
    const int summed = exact::UnpackSum(kernels_, packed, width, std::span(narrow, count), sums);
    writer->Append(std::span<const int32_t>(sums, count), summed);
    if (totals == Totals::kKeep && (kept == nullptr || summed > kNarrowWidth)) {
      std::copy_n(sums, count, wide_.begin());
      totals_.Write(block, std::span(wide_).first(count));
    }
    return;
  }
  const int summed = exact::UnpackSum(kernels_, packed, width,
                                      own_.Read(block, count, addends_.data()), wide_.data());
  writer->Append(std::span<const int64_t>(wide_.data(), count), summed);
  if (totals == Totals::kKeep) totals_.Write(block, std::span(wide_).first(count));
}

StatusOr<Payload> ExactSegments::Add(const Turn& turn, const Payload& received) {
  return Fold(turn, received, Totals::kDrop);
}

StatusOr<Payload> ExactSegments::Total(const Turn& turn, const Payload& received) {
  return Fold(turn, received, Totals::kKeep);
}

Status ExactSegments::Keep(const Turn& turn, const Payload& received) {
  PayloadReader reader(received);
  RING_RETURN_IF_ERROR(ReadWidths(turn, &reader));
  for (size_t i = 0; i < turn.block_count; ++i) {
    const size_t block = turn.first_block + i;
    const size_t count = blocks_[block].count;
    const uint8_t* const packed = reader.Take(exact::PackedBytes(widths_[i], count), side_.data());
    int32_t* const narrow = widths_[i] <= kNarrowWidth ? totals_.MakeNarrow(block) : nullptr;
    if (narrow != nullptr) {
      exact::Unpack(kernels_, packed, widths_[i], std::span(narrow, count));
    } else {
      exact::Unpack(kernels_, packed, widths_[i], std::span(wide_).first(count));
      totals_.Write(block, std::span(wide_).first(count));
    }
  }
  return absl::OkStatus();
}

namespace {

// The next `count` floats of a payload, at whatever alignment they lie.
void Read(PayloadReader* reader, size_t count, float* out) {
  const size_t bytes = count * sizeof(float);
  auto* const place = reinterpret_cast<uint8_t*>(out);
  const uint8_t* const found = reader->Take(bytes, place);
  if (found != place) std::memcpy(place, found, bytes);
}

__attribute__((always_inline)) inline void AddEach(const float* values, const uint8_t* packed,
                                                   size_t count, uint8_t* out) {
  for (size_t i = 0; i < count; ++i) {
    float other;
    std::memcpy(&other, packed + i * sizeof(float), sizeof(float));
    other += values[i];
    std::memcpy(out + i * sizeof(float), &other, sizeof(float));
  }
}

// values + `packed` ones, at any alignment.
void AddFloats(const float* values, const uint8_t* packed, size_t count, uint8_t* out) {
  // Of a constant length, so that the loop is one of vectors.
  if (count == exact::kBlockElements) {
    AddEach(values, packed, exact::kBlockElements, out);
  } else {
    AddEach(values, packed, count, out);
  }
}

}  // namespace

class Float32Segments::Writer {
 public:
  explicit Writer(BufferPool* pool) : buffer_(pool->Acquire()), end_(buffer_.get()) {}

  void Append(const float* values, size_t count) {
    std::memcpy(end_, values, count * sizeof(float));
    end_ += count * sizeof(float);
  }
  void AppendSum(const float* values, const uint8_t* packed, size_t count) {
    AddFloats(values, packed, count, end_);
    end_ += count * sizeof(float);
  }

  [[nodiscard]] Payload Finish() && {
    const uint8_t* const start = buffer_.get();
    return {{{start, static_cast<size_t>(end_ - start)}}, std::move(buffer_)};
  }

 private:
  std::shared_ptr<uint8_t> buffer_;
  uint8_t* end_;
};

Payload Float32Segments::Pack(const Turn& turn) {
  Writer writer(pool_);
  for (size_t i = 0; i < turn.block_count; ++i) {
    const size_t block = turn.first_block + i;
    writer.Append(own_.data() + block * exact::kBlockElements, blocks_[block].count);
  }
  return std::move(writer).Finish();
}

Status Float32Segments::CheckBytes(const Turn& turn, const Payload& received) const {
  size_t elements = 0;
  for (size_t i = 0; i < turn.block_count; ++i) elements += blocks_[turn.first_block + i].count;
  if (received.size() == elements * sizeof(float)) return absl::OkStatus();
  return InvalidArgument(
      "payload of chunk {} segment {}: {} elements of float32 take {} bytes, got {}", turn.chunk,
      turn.segment, elements, elements * sizeof(float), received.size());
}

StatusOr<Payload> Float32Segments::Fold(const Turn& turn, const Payload& received, Totals totals) {
  RING_RETURN_IF_ERROR(CheckBytes(turn, received));
  PayloadReader reader(received);
  Writer writer(pool_);
  alignas(64) std::array<uint8_t, exact::kBlockElements * sizeof(float)> side;
  for (size_t i = 0; i < turn.block_count; ++i) {
    const size_t block = turn.first_block + i;
    const size_t count = blocks_[block].count;
    const float* const mine = own_.data() + block * exact::kBlockElements;
    const uint8_t* const packed = reader.Take(count * sizeof(float), side.data());
    if (totals == Totals::kDrop) {
      writer.AppendSum(mine, packed, count);
      continue;
    }
    // What goes out may lie where the successor writes: it is a copy of the total, not its source.
    float* const total = totals_.data() + block * exact::kBlockElements;
    AddFloats(mine, packed, count, reinterpret_cast<uint8_t*>(total));
    writer.Append(total, count);
  }
  return std::move(writer).Finish();
}

StatusOr<Payload> Float32Segments::Add(const Turn& turn, const Payload& received) {
  return Fold(turn, received, Totals::kDrop);
}

StatusOr<Payload> Float32Segments::Total(const Turn& turn, const Payload& received) {
  return Fold(turn, received, Totals::kKeep);
}

Status Float32Segments::Keep(const Turn& turn, const Payload& received) {
  RING_RETURN_IF_ERROR(CheckBytes(turn, received));
  PayloadReader reader(received);
  for (size_t i = 0; i < turn.block_count; ++i) {
    const size_t block = turn.first_block + i;
    Read(&reader, blocks_[block].count, totals_.data() + block * exact::kBlockElements);
  }
  return absl::OkStatus();
}

}  // namespace ringmaster::ring
