#include "worker/ring/payload.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "common/check.h"
#include "worker/ring/crc32c.h"

namespace ringmaster::ring {

Payload::Payload(std::vector<uint8_t> bytes) {
  auto owner = std::make_shared<const std::vector<uint8_t>>(std::move(bytes));
  size_ = owner->size();
  if (size_ != 0) pieces_.emplace_back(*owner);
  owner_ = std::move(owner);
}

Payload::Payload(std::vector<Piece> pieces, std::shared_ptr<const void> owner)
    : pieces_(std::move(pieces)), owner_(std::move(owner)) {
  for (const Piece& piece : pieces_) size_ += piece.size();
}

uint32_t Payload::Crc32c() const {
  uint32_t crc = 0;
  for (const Piece& piece : pieces_) crc = ExtendCrc32c(crc, piece);
  return crc;
}

std::vector<uint8_t> Payload::Copy() const {
  std::vector<uint8_t> bytes;
  bytes.reserve(size_);
  for (const Piece& piece : pieces_) bytes.insert(bytes.end(), piece.begin(), piece.end());
  return bytes;
}

const uint8_t* PayloadReader::Take(size_t count, uint8_t* side) {
  RING_CHECK(count <= remaining_, "read past the end of a payload");
  remaining_ -= count;
  while (!pieces_.empty() && offset_ == pieces_.front().size()) {
    pieces_ = pieces_.subspan(1);
    offset_ = 0;
  }
  if (pieces_.empty() || pieces_.front().size() - offset_ >= count) {
    const uint8_t* const place = pieces_.empty() ? side : pieces_.front().data() + offset_;
    offset_ += count;
    return place;
  }
  for (size_t done = 0; done < count;) {
    const Payload::Piece piece = pieces_.front().subspan(offset_);
    const size_t part = std::min(piece.size(), count - done);
    if (part != 0) std::memcpy(side + done, piece.data(), part);
    done += part;
    offset_ += part;
    if (part == piece.size() && done < count) {
      pieces_ = pieces_.subspan(1);
      offset_ = 0;
    }
  }
  return side;
}

}  // namespace ringmaster::ring
