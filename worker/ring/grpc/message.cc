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

// The first piece of a message, and what it keeps alive.
struct Head {
  std::array<uint8_t, kHeaderBytes> bytes;
  std::shared_ptr<const void> lease;
};

grpc::Slice HeadOf(const FrameHeader& header, std::shared_ptr<const void> lease) {
  auto* const head = new Head{.bytes = {}, .lease = std::move(lease)};
  Encode(header, head->bytes.data());
  return {head->bytes.data(), head->bytes.size(),
          [](void* owned) { delete static_cast<Head*>(owned); }, head};
}

// What any other piece on its way keeps alive.
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

v1::LinkHello MakeHello(const std::string& job_id, const GenerationId& generation,
                        const std::string& sender, const std::string& incarnation) {
  v1::LinkHello hello;
  hello.set_protocol(kProtocolVersion);
  hello.set_job_id(job_id);
  hello.set_term(generation.term);
  hello.set_counter(generation.counter);
  hello.set_sender(sender);
  hello.set_incarnation(incarnation);
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
  std::vector<grpc::Slice> slices;
  slices.reserve(payload.pieces().size() + 1);
  slices.push_back(HeadOf(header, lease));
  const Kept kept{payload.owner(), std::move(lease)};
  if (header.place == 0) {
    for (const Payload::Piece& piece : payload.pieces()) slices.push_back(SliceOf(piece, kept));
  }
  return {slices.data(), slices.size()};
}

StatusOr<Frame> FromMessage(const grpc::ByteBuffer& message, LinkMemory* memory) {
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
  if (frame.header.place == 0) {
    frame.payload = Payload(std::move(pieces), std::move(slices));
  } else if (memory == nullptr || !pieces.empty()) {
    return InvalidArgument("frame place: {}, on a link {}, with {} pieces behind the header",
                           frame.header.place, memory == nullptr ? "without memory" : "with memory",
                           pieces.size());
  } else {
    // Where it lies is between this link's ends alone.
    const uint32_t place = std::exchange(frame.header.place, 0);
    RING_ASSIGN_OR_RETURN(frame.payload, memory->Take(place, frame.header.payload_bytes));
  }
  RING_RETURN_IF_ERROR(CheckPayload(frame));
  return frame;
}

}  // namespace ringmaster::ring
