#include "coordinator/service/gate.h"

#include <catch2/catch.hpp>
#include <map>
#include <string>
#include <vector>

#include "common/rpc/rpc_status.h"
#include "coordinator/access/permissions.h"

namespace ringmaster::coordinator {
namespace {

using std::chrono::seconds;

constexpr UnixSeconds kJoined{seconds(1'700'000'000)};

// A connection whose certificate says what the test wants: `worker/b`, `user/eva`, `old user/eva`
// for one of before kJoined; everything else is no certificate of this cluster.
class Connection : public grpc::AuthContext {
 public:
  explicit Connection(std::string certificate) : certificate_(std::move(certificate)) {}
  bool IsPeerAuthenticated() const override { return true; }
  std::vector<grpc::string_ref> GetPeerIdentity() const override { return {certificate_}; }
  std::string GetPeerIdentityPropertyName() const override { return "certificate"; }
  std::vector<grpc::string_ref> FindPropertyValues(const std::string&) const override {
    return {certificate_};
  }
  grpc::AuthPropertyIterator begin() const override { return Iterator(); }
  grpc::AuthPropertyIterator end() const override { return Iterator(); }
  void AddProperty(const std::string&, const grpc::string_ref&) override {}
  bool SetPeerIdentityPropertyName(const std::string&) override { return false; }

 private:
  struct Iterator : grpc::AuthPropertyIterator {};
  const std::string certificate_;
};

StatusOr<PeerCertificate> ReadConnection(const grpc::AuthContext& connection) {
  const grpc::string_ref shown = connection.GetPeerIdentity().front();
  std::string text(shown.data(), shown.size());
  PeerCertificate certificate;
  certificate.issued = kJoined;
  certificate.expires = kJoined + seconds(100);
  if (text.rfind("old ", 0) == 0) {
    certificate.issued -= seconds(1);
    text = text.substr(4);
  }
  if (text.rfind("worker/", 0) == 0) {
    certificate.identity = {IdentityKind::kWorker, text.substr(7)};
  } else if (text.rfind("user/", 0) == 0) {
    certificate.identity = {IdentityKind::kUser, text.substr(5)};
  } else {
    return Error(absl::StatusCode::kInternal, "the certificate has two names, expected one");
  }
  return certificate;
}

struct GateAtWork {
  GateAtWork() {
    Identities identities;
    const auto put = [&](IdentityKind kind, const std::string& name, v1::Role role) {
      IdentityRecord record;
      record.identity = {kind, name};
      record.role = role;
      record.joined = record.issued = kJoined;
      if (name == "gone") record.revoked = kJoined + seconds(1);
      identities.Put(record);
    };
    put(IdentityKind::kUser, "vera", v1::ROLE_VIEWER);
    put(IdentityKind::kUser, "sam", v1::ROLE_SUBMITTER);
    put(IdentityKind::kUser, "eva", v1::ROLE_ADMIN);
    put(IdentityKind::kUser, "gone", v1::ROLE_ADMIN);
    put(IdentityKind::kWorker, "b", v1::ROLE_WORKER);
    put(IdentityKind::kWorker, "gone", v1::ROLE_WORKER);
    board.Publish(std::make_shared<const Identities>(identities));
  }
  grpc::Status Call(const std::string& certificate, const std::string& path) {
    Connection connection(certificate);
    grpc::AuthMetadataProcessor::InputMetadata metadata;
    metadata.emplace(":path", path);
    return gate.Process(metadata, &connection, nullptr, nullptr);
  }
  std::string Word(const std::string& certificate, const std::string& path) {
    const grpc::Status status = Call(certificate, path);
    return status.ok() ? "ok" : ErrorReason(status);
  }

  IdentityBoard board;
  UnixTime now = kJoined;
  std::vector<v1::AuditEntry> told;
  Gate gate{{&board, ReadConnection,
             [this](const v1::AuditEntry& entry, UnixTime) { told.push_back(entry); },
             [this] { return now; }}};
};

TEST_CASE("Gate: a call comes in where the table lets the role in, and nowhere else") {
  GateAtWork at;
  const std::map<std::string, v1::Role> roles = {{"user/vera", v1::ROLE_VIEWER},
                                                 {"user/sam", v1::ROLE_SUBMITTER},
                                                 {"user/eva", v1::ROLE_ADMIN},
                                                 {"worker/b", v1::ROLE_WORKER}};
  for (const char* path :
       {"/ringmaster.v1.Jobs/List", "/ringmaster.v1.Jobs/Submit", "/ringmaster.v1.Jobs/Cancel",
        "/ringmaster.v1.Fleet/Session", "/ringmaster.v1.Access/CreateToken",
        "/ringmaster.v1.Access/Renew", "/grpc.health.v1.Health/Check",
        "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", "/some.Other/Method"}) {
    for (const auto& [certificate, role] : roles) {
      INFO(path << " " << certificate);
      const bool may = ScopeOf(path, role) != v1::SCOPE_NONE;
      CHECK(at.Word(certificate, path) == (may ? "ok" : "NOT_PERMITTED"));
    }
    CHECK(at.Word("user/gone", path) == "REVOKED");
    CHECK(at.Word("worker/gone", path) == "REVOKED");
    CHECK(at.Word("old user/eva", path) == "REVOKED");
    CHECK(at.Word("user/nobody", path) == "NOT_AUTHENTICATED");
    CHECK(at.Word("worker/eva", path) == "NOT_AUTHENTICATED");
    CHECK(at.Word("", path) == "NOT_AUTHENTICATED");
  }
}

TEST_CASE("Gate: a refusal says who, what, and who may") {
  GateAtWork at;
  const grpc::Status denied = at.Call("user/vera", "/ringmaster.v1.Jobs/Cancel");
  CHECK(denied.error_code() == grpc::StatusCode::PERMISSION_DENIED);
  CHECK(denied.error_message() ==
        "user/vera, whose role is viewer, may not call /ringmaster.v1.Jobs/Cancel; who may is "
        "submitter or admin");
  const grpc::Status unknown = at.Call("two names", "/ringmaster.v1.Jobs/List");
  CHECK(unknown.error_code() == grpc::StatusCode::UNAUTHENTICATED);
  CHECK(unknown.error_message() == "the certificate has two names, expected one");
  CHECK(at.Call("user/gone", "/ringmaster.v1.Jobs/List").error_code() ==
        grpc::StatusCode::UNAUTHENTICATED);
}

TEST_CASE("Gate: a call without a path is refused") {
  GateAtWork at;
  Connection connection("user/eva");
  CHECK_FALSE(at.gate.Process({}, &connection, nullptr, nullptr).ok());
}

TEST_CASE("Gate: who was let in is known to the services") {
  GateAtWork at;
  const Passage eva = at.gate.Identify(Connection("user/eva"));
  REQUIRE(eva.refusal.status.ok());
  CHECK(eva.caller.ToString() == "user/eva");
  CHECK(eva.caller.role == v1::ROLE_ADMIN);
  CHECK(eva.caller.certificate_expires == kJoined + seconds(100));
  const Passage gone = at.gate.Identify(Connection("user/gone"));
  CHECK(gone.refusal.word == "REVOKED");
  CHECK(gone.caller.role == v1::ROLE_UNSPECIFIED);
}

TEST_CASE("Gate: what is published holds for the next call") {
  GateAtWork at;
  REQUIRE(at.Word("user/eva", "/ringmaster.v1.Jobs/List") == "ok");
  Identities identities = *at.board.Get();
  IdentityRecord eva = *identities.Find({IdentityKind::kUser, "eva"});
  eva.revoked = kJoined;
  identities.Put(eva);
  at.board.Publish(std::make_shared<const Identities>(identities));
  CHECK(at.Word("user/eva", "/ringmaster.v1.Jobs/List") == "REVOKED");
}

TEST_CASE("Gate: a connection is worth what its certificate is") {
  GateAtWork at;
  at.now = kJoined + seconds(99);
  CHECK(at.Word("user/eva", "/ringmaster.v1.Jobs/List") == "ok");
  at.now = kJoined + seconds(100);
  const grpc::Status ended = at.Call("user/eva", "/ringmaster.v1.Jobs/List");
  CHECK(ended.error_code() == grpc::StatusCode::UNAUTHENTICATED);
  CHECK(ended.error_message() ==
        "user/eva made this connection with a certificate that was good until "
        "2023-11-14T22:15:00Z, and the coordinator's clock says 2023-11-14T22:15:00Z; connect "
        "anew with a renewed one");
  CHECK(at.Word("worker/b", "/ringmaster.v1.Fleet/Session") == "CERTIFICATE_EXPIRED");
  CHECK(at.Word("worker/b", "/ringmaster.v1.Access/Renew") == "ok");
  CHECK(at.Word("worker/gone", "/ringmaster.v1.Access/Renew") == "REVOKED");
}

TEST_CASE("Gate: who has renewed goes on over a connection of before") {
  GateAtWork at;
  Identities identities = *at.board.Get();
  IdentityRecord eva = *identities.Find({IdentityKind::kUser, "eva"});
  eva.certificate_expires = kJoined + seconds(200);
  identities.Put(eva);
  at.board.Publish(std::make_shared<const Identities>(identities));
  at.now = kJoined + seconds(199);
  CHECK(at.Word("user/eva", "/ringmaster.v1.Jobs/List") == "ok");
  at.now = kJoined + seconds(200);
  CHECK(at.Word("user/eva", "/ringmaster.v1.Jobs/List") == "CERTIFICATE_EXPIRED");
}

TEST_CASE("Gate: refusals are counted, and told once a minute") {
  GateAtWork at;
  for (int i = 0; i < 9; ++i) (void)at.Call("user/vera", "/ringmaster.v1.Jobs/Cancel");
  (void)at.Call("user/eva", "/ringmaster.v1.Jobs/Cancel");
  CHECK(at.gate.refused() == 9);
  REQUIRE(at.told.size() == 1);
  CHECK(at.told[0].who() == "user/vera");
  CHECK(at.told[0].subject() == "/ringmaster.v1.Jobs/Cancel");
  CHECK(at.told[0].result() == "NOT_PERMITTED");
  at.now += std::chrono::minutes(1);
  (void)at.Call("user/vera", "/ringmaster.v1.Jobs/Cancel");
  (void)at.Call("no certificate", "/ringmaster.v1.Jobs/Cancel");
  REQUIRE(at.told.size() == 3);
  CHECK(at.told[1].result() == "NOT_PERMITTED, 8 more");
  CHECK(at.told[2].who() == "unknown");
}

}  // namespace
}  // namespace ringmaster::coordinator
