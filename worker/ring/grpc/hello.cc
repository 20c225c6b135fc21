#include "worker/ring/grpc/hello.h"

#include <string>

namespace ringmaster::ring {
namespace {

constexpr char kMetadataKey[] = "ringmaster-link-bin";

}  // namespace

void AddHello(const v1::LinkHello& hello, grpc::ClientContext* context) {
  context->AddMetadata(kMetadataKey, hello.SerializeAsString());
}

StatusOr<v1::LinkHello> ReadHello(const grpc::CallbackServerContext& context) {
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
  return hello;
}

GenerationId GenerationOf(const v1::LinkHello& hello) { return {hello.term(), hello.counter()}; }

}  // namespace ringmaster::ring
