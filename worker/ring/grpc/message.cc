#include "worker/ring/grpc/message.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "common/rpc/credentials.h"
#include "common/text.h"

namespace ringmaster::ring {
namespace {

constexpr char kMetadataKey[] = "ringmaster-link-bin";

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

v1::LinkHello HelloOf(const RingPlace& place) {
  v1::LinkHello hello;
  hello.set_protocol(kProtocolVersion);
  hello.set_job_id(place.job_id);
  hello.set_term(place.generation.term);
  hello.set_counter(place.generation.counter);
  hello.set_ticket(place.ticket);
  hello.set_sender(place.self_name);
  hello.set_incarnation(place.self_incarnation);
  return hello;
}

void AddHello(const v1::LinkHello& hello, grpc::ClientContext* context) {
  context->AddMetadata(kMetadataKey, hello.SerializeAsString());
}

StatusOr<v1::LinkHello> ReadHello(const grpc::ServerContextBase& context) {
  const auto entry = context.client_metadata().find(kMetadataKey);
  if (entry == context.client_metadata().end()) {
    return InvalidArgument(
        "this is a ring port: a stream begins with a LinkHello in metadata {}, and this one has "
        "none; coordinators and clients use other ports",
        kMetadataKey);
  }
  v1::LinkHello hello;
  if (!hello.ParseFromArray(entry->second.data(), static_cast<int>(entry->second.size()))) {
    return InvalidArgument("metadata {}: its {} bytes are not a LinkHello", kMetadataKey,
                           entry->second.size());
  }
  if (hello.protocol() != kProtocolVersion) {
    return InvalidArgument("ring protocol: expected {}, got {}; use one release on every worker",
                           kProtocolVersion, hello.protocol());
  }
  if (hello.job_id().empty() || hello.sender().empty() || hello.incarnation().empty()) {
    return InvalidArgument("metadata {}: job_id, sender and incarnation may not be empty",
                           kMetadataKey);
  }
  RING_ASSIGN_OR_RETURN(const std::optional<pki::Identity> identity,
                        PeerIdentity(*context.auth_context()));
  if (identity && (identity->kind != pki::Kind::kWorker || identity->name != hello.sender())) {
    return Error(absl::StatusCode::kPermissionDenied, "the peer is {}, and says that it is {}",
                 pki::ToUri(*identity), OneLine(hello.sender(), kMaxNameText));
  }
  return hello;
}

GenerationId GenerationOf(const v1::LinkHello& hello) { return {hello.term(), hello.counter()}; }

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

grpc::ByteBuffer Goodbye() { return {nullptr, kGoodbyeBytes}; }

grpc::ByteBuffer Bell(std::shared_ptr<const void> lease) {
  static constexpr uint8_t kBell[kBellBytes] = {1};
  const grpc::Slice slice = SliceOf(kBell, {nullptr, std::move(lease)});
  return {&slice, 1};
}

}  // namespace ringmaster::ring
