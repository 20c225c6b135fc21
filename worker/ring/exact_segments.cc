#include "worker/ring/exact_segments.h"

#include <algorithm>
#include <cstring>

#include "common/exact/codec.h"

namespace ringmaster::ring {
namespace {

constexpr int kMaxWidth = 64;

size_t WidthBytes(size_t blocks) { return (blocks + 63) / 64 * 64; }

}  // namespace

size_t ExactSegments::PayloadLimit(size_t blocks) {
  return WidthBytes(blocks) + blocks * exact::PackedBytes(kMaxWidth, exact::kBlockElements);
}

// Fills a buffer of the pool block by block, widths in front.
class ExactSegments::Writer {
 public:
  Writer(BufferPool* pool, size_t blocks)
      : buffer_(pool->Acquire()), width_(buffer_.get()), end_(width_ + WidthBytes(blocks)) {
    std::memset(width_, 0, WidthBytes(blocks));
  }

  void Append(std::span<const int64_t> block) {
    const int width = exact::Width(block);
    *width_++ = static_cast<uint8_t>(width);
    exact::Pack(block, width, end_);
    end_ += exact::PackedBytes(width, block.size());
  }

  [[nodiscard]] Payload Finish() && {
    const uint8_t* const start = buffer_.get();
    return {{{start, static_cast<size_t>(end_ - start)}}, std::move(buffer_)};
  }

 private:
  std::shared_ptr<uint8_t> buffer_;
  uint8_t* width_;
  uint8_t* end_;
};

Payload ExactSegments::Pack(const Turn& turn) {
  Writer writer(pool_, turn.block_count);
  for (size_t i = 0; i < turn.block_count; ++i) writer.Append(own(turn.first_block + i));
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
  Writer writer(pool_, turn.block_count);
  alignas(64) std::array<int64_t, exact::kBlockElements> sums;
  for (size_t i = 0; i < turn.block_count; ++i) {
    const size_t block = turn.first_block + i;
    const auto mine = own(block);
    const std::span<int64_t> sum(
        totals == Totals::kKeep ? totals_.data() + block * exact::kBlockElements : sums.data(),
        mine.size());
    std::copy(mine.begin(), mine.end(), sum.begin());
    const uint8_t* const packed =
        reader.Take(exact::PackedBytes(widths_[i], mine.size()), side_.data());
    exact::UnpackAdd(packed, widths_[i], sum);
    writer.Append(sum);
  }
  return std::move(writer).Finish();
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
    exact::Unpack(packed, widths_[i], totals_.subspan(block * exact::kBlockElements, count));
  }
  return absl::OkStatus();
}

}  // namespace ringmaster::ring
