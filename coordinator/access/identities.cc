#include "coordinator/access/identities.h"

#include <google/protobuf/util/time_util.h>

#include <algorithm>

#include "common/ids.h"

namespace ringmaster::coordinator {
namespace {

using google::protobuf::util::TimeUtil;

Refusal Unauthenticated(const std::string& word, const std::string& message) {
  return {Status(absl::StatusCode::kUnauthenticated, message), word};
}

}  // namespace

bool IsIdentityName(const std::string& name) { return IsName(name) && name != "." && name != ".."; }

IdentityKind KindOf(v1::Role role) {
  return role == v1::ROLE_WORKER ? IdentityKind::kWorker : IdentityKind::kUser;
}

const IdentityRecord* Identities::Find(const IdentityName& name) const {
  const auto found = all_.find(name);
  return found == all_.end() ? nullptr : &found->second;
}

const IdentityRecord* Identities::FindLive(const IdentityName& name) const {
  const IdentityRecord* const record = Find(name);
  return record == nullptr || record->revoked ? nullptr : record;
}

Refusal Identities::Check(const PeerCertificate& certificate) const {
  const IdentityRecord* const record = Find(certificate.identity);
  const std::string name = certificate.identity.ToString();
  if (record == nullptr) {
    return Unauthenticated(
        "NOT_AUTHENTICATED",
        fmt::format("{} is no identity that this coordinator knows: its store may be an "
                    "older copy, or another one; join again with a new token",
                    name));
  }
  if (record->revoked) {
    return Unauthenticated(
        "REVOKED", fmt::format("{} was revoked at {}; an administrator can let it in again with "
                               "`ringctl token create`",
                               name, TimeText(*record->revoked)));
  }
  if (certificate.issued < record->joined) {
    return Unauthenticated(
        "REVOKED",
        fmt::format("this certificate of {} is from before it was revoked, and another one "
                    "joined with that name since; join again with a new token",
                    name));
  }
  return {};
}

UnixSeconds Identities::LastEnd(UnixTime now) const {
  const auto seconds = std::chrono::ceil<std::chrono::seconds>(now);
  UnixSeconds last = seconds;
  for (const auto& [name, record] : all_) {
    if (record.revoked) continue;
    const auto life = record.certificate_expires - record.issued;
    last = std::max(last, std::min(record.certificate_expires, seconds + life));
  }
  return last;
}

Refusal CheckIssue(const IdentityName& identity, UnixSeconds issue, std::chrono::seconds backdating,
                   UnixTime now) {
  if (issue <= now + backdating) return {};
  const std::string name = identity.ToString();
  return {FailedPrecondition(
              "{0} has a certificate that was issued when the coordinator's clock said {1}, and "
              "now it says {2}: a new one could not be used before {1}. Compare `date -u` on "
              "its host with others: if it is right now, it was ahead then; join with another "
              "name, and end this one with `ringctl identity revoke`",
              name, TimeText(issue), TimeText(now)),
          "CLOCK_SET_BACK"};
}

std::string TimeText(UnixTime time) {
  const auto seconds = std::chrono::floor<std::chrono::seconds>(time);
  return TimeUtil::ToString(TimeUtil::SecondsToTimestamp(seconds.time_since_epoch().count()));
}

}  // namespace ringmaster::coordinator
