// The coordinator's own: its cluster's authority and its server certificate, in DATA/pki. Made at
// the first start; ca.pem and ca.key that somebody put there before are taken. Whoever has ca.key
// is the cluster. Owned by the coordinator's daemon; thread-safe.
//
// A new authority takes the old one's place without a stop, for whoever is seen within the overlap:
//
//   Rotate ──► both are trusted, ──► both are trusted, ──► the new one
//              the old one signs     the new one signs     alone
//
// Each half of the overlap is longer than a certificate is good for; the first one, in which those
// of before end, than any of theirs. In it everybody renews, and so gets to know the new authority
// before anybody shows a certificate of it; in the second one everybody renews again, and has such
// a one before the old one is trusted no more.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/mutex.h"
#include "common/pki/authority.h"
#include "common/pki/certificate.h"
#include "common/pki/credential_folder.h"
#include "common/status.h"

namespace ringmaster::pki {

inline constexpr char kAuthorityKeyFile[] = "ca.key";
inline constexpr char kAuthorityFile[] = "ca.pem";
inline constexpr char kClusterFile[] = "cluster-id";
inline constexpr char kServerFolder[] = "server";  // credentials (credential_folder.h)
// The authority that is to come: ca.key and ca.pem, and the seconds since 1970 from which on it
// signs, and until which the other one is trusted.
inline constexpr char kNextFolder[] = "next";
inline constexpr char kTimesFile[] = "times";

struct Rotation {
  Authority next;
  Time signs;  // from then on
  Time ends;   // then the other one is trusted no more
};

// As they are at one time.
struct Authorities {
  Authority signer;
  std::optional<Authority> other;  // is trusted, too
  std::optional<Rotation> rotation;
  // The signer first.
  [[nodiscard]] std::vector<Certificate> trusted() const;
  // The one that stays: what tokens are to pin.
  [[nodiscard]] const Authority& newest() const { return rotation ? rotation->next : signer; }
};

class AuthorityFolder {
 public:
  struct Options {
    std::chrono::seconds leaf_validity = kLeafValidity;
    std::chrono::seconds overlap = 2 * kLeafValidity;  // twice leaf_validity at the least
  };

  // Opens `folder`, or makes it whole; then does as Tend. Nothing half-made is left by a crash.
  // PERMISSION_DENIED: folder or a file is not this user's alone (with the `chmod`).
  // FAILED_PRECONDITION: one of the files is missing, or the authority cannot be used. UNAVAILABLE:
  // it cannot be written.
  [[nodiscard]] static StatusOr<AuthorityFolder> Open(const std::string& folder, Time now,
                                                      Options options);
  [[nodiscard]] static StatusOr<AuthorityFolder> Open(const std::string& folder, Time now) {
    return Open(folder, now, Options());
  }

  [[nodiscard]] Authorities At(Time now) const;
  [[nodiscard]] const std::string& cluster() const { return cluster_; }  // its id
  // The folder of the coordinator's credentials, for ServerTls and LoadCredentials.
  [[nodiscard]] std::string server() const { return folder_ + "/" + kServerFolder; }
  // The same, and while there are two authorities a certificate of the other one, too: for those
  // who know that one alone.
  [[nodiscard]] StatusOr<std::vector<Credentials>> Servers(Time now) const;

  // When the server certificate has to be renewed: `now` where there is none that can be used, or
  // the authorities are others.
  [[nodiscard]] Time RenewalDue(Time now) const;
  // What it is time for: the end of a rotation; and a new key with a new certificate of the server,
  // when that is due. Errors as of WriteCredentials and Authority::Issue.
  [[nodiscard]] Status Tend(Time now);
  // What Tend changed of whom to believe, once, for the log; empty: nothing.
  [[nodiscard]] std::string TakeChange();

  // Makes another authority, which signs from half of the overlap on, but not before `last_end`: of
  // the certificates that are out, which may be good for longer than those of today.
  // FAILED_PRECONDITION: one is on its way. UNAVAILABLE: it cannot be written.
  [[nodiscard]] Status Rotate(Time now, Time last_end);

 private:
  struct State {
    explicit State(Authority authority) : current(std::move(authority)) {}
    Mutex mu;
    Authority current ABSL_GUARDED_BY(mu);  // of ca.key and ca.pem
    std::optional<Rotation> rotation ABSL_GUARDED_BY(mu);
    std::string change ABSL_GUARDED_BY(mu);
  };
  AuthorityFolder(std::string folder, std::string cluster, Authority authority, Options options)
      : folder_(std::move(folder)),
        cluster_(std::move(cluster)),
        options_(options),
        state_(std::make_unique<State>(std::move(authority))) {}
  [[nodiscard]] StatusOr<Credentials> MakeServer(const Authority& signer,
                                                 std::vector<Certificate> trusted, Time now) const;
  [[nodiscard]] Status RenewServer(const Authorities& authorities, Time now);
  [[nodiscard]] Status EndRotation(Time now);
  [[nodiscard]] std::string TimesFile() const {
    return folder_ + "/" + kNextFolder + "/" + kTimesFile;
  }
  // With one that an earlier process began. The time in which nobody served does not count, but for
  // a restart's: in each half everybody is to renew.
  [[nodiscard]] Status GoOn(Rotation rotation, Time now);

  std::string folder_;
  std::string cluster_;
  Options options_;
  std::unique_ptr<State> state_;
};

}  // namespace ringmaster::pki
