#include "worker/ring/grpc/message.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>
#include <vector>

namespace ringmaster::ring {
namespace {

// What a piece on its way keeps alive.
struct Kept {
  std::shared_ptr<const void> payload;
  std::shared_ptr<const void> lease;
};

grpc::Slice SliceOf(const Payload::Piece& piece, const Kept& kept) {
  // gRPC's slices are not const, but it never writes to what it sends.
  return {const_cast<uint8_t*>(piece.data()), piece.size(),
          [](void* data) { delete static_cast<Kept*>(data); }, new Kept(kept)};
}

}  // namespace

grpc::ByteBuffer ToMessage(const FrameHeader& header, const Payload& payload,
                           std::shared_ptr<const void> lease) {
  std::array<uint8_t, kHeaderBytes> bytes;
  Encode(header, bytes.data());
  std::vector<grpc::Slice> slices;
  slices.reserve(payload.pieces().size() + 1);
  slices.emplace_back(bytes.data(), bytes.size());
  const Kept kept{payload.owner(), std::move(lease)};
  for (const Payload::Piece& piece : payload.pieces()) slices.push_back(SliceOf(piece, kept));
  return {slices.data(), slices.size()};
}

StatusOr<Frame> FromMessage(const grpc::ByteBuffer& message) {
  if (message.Length() < kHeaderBytes) {
    return InvalidArgument("frame length: a frame has a header of {} bytes, got a message of {}",
                           kHeaderBytes, message.Length());
  }
  auto slices = std::make_shared<std::vector<grpc::Slice>>();
  if (const grpc::Status dumped = message.Dump(slices.get()); !dumped.ok()) {
    return InvalidArgument("frame: unreadable message: {}", dumped.error_message());
  }
  std::array<uint8_t, kHeaderBytes> header;
  size_t have = 0;
  std::vector<Payload::Piece> pieces;
  for (const grpc::Slice& slice : *slices) {
    const Payload::Piece piece(slice.begin(), slice.size());
    const size_t part = std::min(piece.size(), header.size() - have);
    std::memcpy(header.data() + have, piece.data(), part);
    have += part;
    if (part < piece.size()) pieces.push_back(piece.subspan(part));
  }
  Frame frame;
  RING_ASSIGN_OR_RETURN(frame.header, Decode(header));
  frame.payload = Payload(std::move(pieces), std::move(slices));
  RING_RETURN_IF_ERROR(CheckPayload(frame));
  return frame;
}

}  // namespace ringmaster::ring
