// Who is and was let in, as the gate looks it up: names, roles, and which certificates of a name
// count. Pure values; thread-compatible, and shared ones never change.
#pragma once

#include <chrono>
#include <map>
#include <string>

#include "coordinator/access/access_store.h"
#include "coordinator/logic/refusal.h"
#include "ringmaster/v1/access.pb.h"

namespace ringmaster::coordinator {

// 1 to 100 letters, digits, dots, dashes and underscores; not `.` and `..`, as it is a part of a
// path.
[[nodiscard]] bool IsIdentityName(const std::string& name);
// ROLE_WORKER is a worker's, every other a person's.
[[nodiscard]] IdentityKind KindOf(v1::Role role);

// What a peer's certificate says, once it is known that an authority of this cluster signed it.
struct PeerCertificate {
  IdentityName identity;
  UnixSeconds issued;  // when it was signed: `issue` of the Grant that it was signed for
  UnixSeconds expires;
};

// Every identity that there ever was.
class Identities {
 public:
  void Put(const IdentityRecord& record) { all_[record.identity] = record; }
  // Null when there is none.
  [[nodiscard]] const IdentityRecord* Find(const IdentityName& name) const;
  // Null when there is none, or it is revoked.
  [[nodiscard]] const IdentityRecord* FindLive(const IdentityName& name) const;
  // Whether this certificate is one of a live identity. UNAUTHENTICATED: NOT_AUTHENTICATED,
  // REVOKED.
  [[nodiscard]] Refusal Check(const PeerCertificate& certificate) const;
  // Until when somebody's newest certificate may be good, `now` at the least: each was given a life
  // of its own day. One of a clock that was ahead counts as given now.
  [[nodiscard]] UnixSeconds LastEnd(UnixTime now) const;
  // Workers first, each by name.
  [[nodiscard]] const std::map<IdentityName, IdentityRecord>& all() const { return all_; }

 private:
  std::map<IdentityName, IdentityRecord> all_;
};

// Whether a certificate of that issue, which begins `backdating` before it, has begun.
// FAILED_PRECONDITION: CLOCK_SET_BACK, with what the clock said before, and what it says.
[[nodiscard]] Refusal CheckIssue(const IdentityName& identity, UnixSeconds issue,
                                 std::chrono::seconds backdating, UnixTime now);

// `2026-11-21T14:02:11Z`, as messages have times.
[[nodiscard]] std::string TimeText(UnixTime time);

}  // namespace ringmaster::coordinator
