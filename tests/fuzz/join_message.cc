// What a joiner sends, up to its certificate; and what it gets, up to its use.
#include <google/protobuf/stubs/logging.h>

#include "common/check.h"
#include "common/pki/authority.h"
#include "common/pki/join.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ringmaster;
  // Else a line for each text that is not UTF-8.
  [[maybe_unused]] static auto* const quiet = google::protobuf::SetLogHandler(nullptr);
  static const pki::Time now = std::chrono::sys_days(std::chrono::January / 15 / 2030);
  static const auto authority = pki::Authority::Create("home", now);
  static const auto key = pki::Key::Generate();
  RING_CHECK(authority.ok() && key.ok(), "there is an authority");
  v1::JoinRequest request;
  if (request.ParseFromArray(data, static_cast<int>(size))) {
    const auto certificate =
        authority->Issue(request.signing_request(), {"home", pki::Kind::kWorker, request.name()},
                         pki::kLeafValidity, now);
    const auto asked = pki::KeyHashOfRequest(request.signing_request());
    if (certificate.ok()) {
      RING_CHECK(asked.ok() && certificate->KeyHash() == *asked, "of the key that asked");
      RING_CHECK(
          pki::Verify(*certificate, {authority->certificate()}, pki::Side::kClient, now).ok(),
          "what is issued can be used");
    }
  }
  v1::JoinReply reply;
  if (reply.ParseFromArray(data, static_cast<int>(size))) {
    RING_CHECK(!pki::CheckIssued(reply.issued(), *key, now).ok(), "of another key");
  }
  return 0;
}
