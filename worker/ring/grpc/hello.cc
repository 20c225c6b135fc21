#include "worker/ring/grpc/hello.h"

namespace ringmaster::ring {
namespace {

constexpr char kMetadataKey[] = "ringmaster-link-bin";

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
  return hello;
}

GenerationId GenerationOf(const v1::LinkHello& hello) { return {hello.term(), hello.counter()}; }

}  // namespace ringmaster::ring
