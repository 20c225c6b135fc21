// An Access over a store in memory, with a clock that the test sets: what stories about tokens and
// identities are told with. Thread-compatible.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "common/sha256.h"
#include "coordinator/access/access.h"
#include "tests/support/memory_access_store.h"

namespace ringmaster::coordinator {

// A token as who joins has it.
struct HandedToken {
  std::string id, secret;
};

class Gatehouse {
 public:
  Gatehouse() { Restart(); }

  // Another coordinator on what is stored.
  void Restart(std::chrono::seconds certificate_life = std::chrono::hours(7 * 24)) {
    access = std::make_unique<Access>(
        store, Access::Options{certificate_life, [this](size_t bytes) { return Random(bytes); }});
    restored = access->Restore();
  }

  NewToken Make(v1::Role role, const std::string& name, uint32_t uses = 1, uint32_t ttl = 0) {
    v1::CreateTokenRequest request;
    request.set_role(role);
    request.set_name(name);
    request.set_uses(uses);
    request.set_ttl_seconds(ttl);
    return access->CreateToken(request, admin, now);
  }
  HandedToken Hand(v1::Role role, const std::string& name, uint32_t uses = 1, uint32_t ttl = 0) {
    const NewToken made = Make(role, name, uses, ttl);
    return {made.about.id(), made.secret};
  }

  // `ok worker/b`, or the word of the refusal. `key` is one letter, and names it.
  std::string Join(const HandedToken& token, char key, const std::string& name = "",
                   const std::string& address = "192.0.2.1") {
    grant = access->Redeem({token.id, token.secret, name, std::string(32, key), address}, now);
    return Said(grant.refusal, grant.identity.ToString());
  }
  std::string Renew(const IdentityName& identity) {
    Caller caller;
    caller.identity = identity;
    grant = access->Renew(caller, now);
    return Said(grant.refusal, grant.identity.ToString());
  }
  std::string Revoke(const IdentityName& identity) {
    return Said(access->RevokeIdentity(identity, admin, now), identity.ToString());
  }
  // Whether the certificate that was granted counts: `ok`, or why not.
  std::string Shows(const Grant& granted) {
    const PeerCertificate certificate{granted.identity, granted.issue, granted.issue};
    const Refusal refusal = access->identities()->Check(certificate);
    return refusal.status.ok() ? "ok" : refusal.word;
  }

  static std::string Said(const Refusal& refusal, const std::string& done) {
    return refusal.status.ok() ? "ok " + done : refusal.word;
  }

  testing::MemoryAccessStore store;
  UnixTime now{std::chrono::milliseconds(1'700'000'000'250)};
  Caller admin{std::nullopt, v1::ROLE_ADMIN, std::nullopt};
  std::unique_ptr<Access> access;
  Status restored;
  Grant grant;  // of the newest join or renewal

 private:
  std::string Random(size_t bytes) {
    std::string text;
    while (text.size() < bytes) text += DigestBytes(Sha256Of(std::to_string(drawn_++)));
    return text.substr(0, bytes);
  }
  int drawn_ = 0;
};

inline IdentityName Worker(const std::string& name) { return {IdentityKind::kWorker, name}; }
inline IdentityName Person(const std::string& name) { return {IdentityKind::kUser, name}; }

}  // namespace ringmaster::coordinator
