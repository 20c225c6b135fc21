#include "worker/ring/float32_segments.h"

#include <cstring>

namespace ringmaster::ring {
namespace {

// The next `count` floats of a payload, at whatever alignment they lie.
void Read(PayloadReader* reader, size_t count, float* out) {
  const size_t bytes = count * sizeof(float);
  auto* const place = reinterpret_cast<uint8_t*>(out);
  const uint8_t* const found = reader->Take(bytes, place);
  if (found != place) std::memcpy(place, found, bytes);
}

}  // namespace

class Float32Segments::Writer {
 public:
  explicit Writer(BufferPool* pool) : buffer_(pool->Acquire()), end_(buffer_.get()) {}

  void Append(const float* values, size_t count) {
    std::memcpy(end_, values, count * sizeof(float));
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
  alignas(64) BlockOfFloats sums;
  for (size_t i = 0; i < turn.block_count; ++i) {
    const size_t block = turn.first_block + i;
    const size_t count = blocks_[block].count;
    const float* const mine = own_.data() + block * exact::kBlockElements;
    Read(&reader, count, sums.data());
    for (size_t e = 0; e < count; ++e) sums[e] += mine[e];
    if (totals == Totals::kKeep) {
      std::memcpy(totals_.data() + block * exact::kBlockElements, sums.data(),
                  count * sizeof(float));
    }
    writer.Append(sums.data(), count);
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
