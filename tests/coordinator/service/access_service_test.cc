// The Access service on a server within the process, over a loop of its own and a store in memory.
#include "coordinator/service/access_service.h"

#include <spdlog/spdlog.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <utility>

#include "common/loop.h"
#include "common/rpc/rpc_status.h"
#include "common/sha256.h"
#include "tests/support/memory_access_store.h"
#include "tests/support/served.h"

namespace ringmaster::coordinator {
namespace {

struct Deadline : grpc::ClientContext {
  Deadline() { set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(20)); }
};

class AccessHouse {
 public:
  enum class Signs { kYes, kNo };
  explicit AccessHouse(Signs signs = Signs::kYes) {
    spdlog::set_level(spdlog::level::off);
    loop_.Start();
    service_ = std::make_unique<AccessService>(MakeHands(signs));
    RING_CHECK(service_->Restore().ok(), "an empty store is restored");
    server_ = std::make_unique<testing::Served>(service_.get());
    stub_ = v1::Access::NewStub(server_->channel());
  }
  ~AccessHouse() { loop_.Stop(); }
  AccessHouse(const AccessHouse&) = delete;
  AccessHouse& operator=(const AccessHouse&) = delete;

  // The word of the error, or `ok`.
  template <typename Request, typename Response>
  std::string Call(grpc::Status (v1::Access::Stub::*method)(grpc::ClientContext*, const Request&,
                                                            Response*),
                   const Request& request, Response* response) {
    Deadline context;
    status_ = (stub_.get()->*method)(&context, request, response);
    return status_.ok() ? "ok" : ErrorReason(status_);
  }
  v1::CreateTokenResponse Create(v1::Role role, const std::string& name) {
    v1::CreateTokenRequest request;
    request.set_role(role);
    request.set_name(name);
    v1::CreateTokenResponse response;
    created_ = Call(&v1::Access::Stub::CreateToken, request, &response);
    return response;
  }
  // `line` is ID/SECRET, as this house's tokens are.
  v1::JoinReply Join(const std::string& line, char key) {
    v1::JoinRequest request;
    request.set_token_id(line.substr(0, 8));
    request.set_secret(line.substr(9));
    request.set_signing_request(signing_request_);
    std::promise<v1::JoinReply> reply;
    service_->Join(request, std::string(32, key), "192.0.2.1",
                   [&](const v1::JoinReply& got) { reply.set_value(got); });
    return reply.get_future().get();
  }
  // With a certificate of worker/NAME.
  v1::JoinReply RenewEnded(const std::string& name, const std::string& proof) {
    v1::JoinRequest request;
    request.set_renews(name);
    request.set_proof(proof);
    request.set_signing_request("again");
    std::promise<v1::JoinReply> reply;
    service_->Join(request, std::string(32, 'k'), "192.0.2.1",
                   [&](const v1::JoinReply& got) { reply.set_value(got); });
    return reply.get_future().get();
  }
  std::string Revoke(v1::Role role, const std::string& name) {
    v1::RevokeIdentityRequest request;
    request.set_role(role);
    request.set_name(name);
    v1::RevokeIdentityResponse response;
    return Call(&v1::Access::Stub::RevokeIdentity, request, &response);
  }
  v1::Access::Stub* stub() { return stub_.get(); }
  // Everything that waits on the loop is done.
  void Settle() {
    std::promise<void> done;
    RING_CHECK(loop_.Post([&] { done.set_value(); }), "the loop takes a task");
    done.get_future().wait();
  }

  Passage passage_{{}, {std::nullopt, v1::ROLE_ADMIN, std::nullopt}};  // of every call
  std::function<void()> on_queued_;  // once, when the next call waits on the loop
  std::string signing_request_ = "request";
  grpc::Status status_;
  std::string created_;
  std::vector<std::string> revoked_;  // after Settle
  testing::MemoryAccessStore store_;  // likewise
  bool rotated_ = false;              // likewise
  UnixSeconds last_end_;              // that Rotate was told; likewise
  IdentityBoard board_;
  OpenCalls calls_{{[this](grpc::CallbackServerContext*) { return passage_; }, nullptr,
                    [] { return UnixTime(); }}};
  Loop loop_{{"control", 1024, std::chrono::milliseconds(1000), nullptr}};
  std::unique_ptr<AccessService> service_;

 private:
  AccessService::Hands MakeHands(Signs signs) {
    AccessService::Hands hands;
    hands.store = &store_;
    hands.identities = &board_;
    hands.run = [this](size_t, std::function<void()> task) -> Status {
      if (!loop_.Post(std::move(task))) return absl::UnavailableError("stopping");
      if (on_queued_) std::exchange(on_queued_, nullptr)();
      return absl::OkStatus();
    };
    hands.calls = &calls_;
    if (signs == Signs::kYes) {
      hands.authority = Authority{
          [](const std::string& request) {
            return request == "garbage" ? InvalidArgument("signing_request: it is no PKCS #10")
                                        : absl::OkStatus();
          },
          [](const std::string& request, const IdentityName& identity,
             UnixSeconds now) -> StatusOr<v1::IssuedCertificate> {
            v1::IssuedCertificate issued;
            issued.set_certificate(fmt::format("{} signed for {} at {}", request,
                                               identity.ToString(),
                                               now.time_since_epoch().count()));
            return issued;
          },
          [](const std::string& id, const std::string& secret) { return id + "/" + secret; },
          [](const IdentityName& identity) { return "spiffe://c/" + identity.ToString(); },
          [](const v1::JoinRequest& request) -> StatusOr<PeerCertificate> {
            if (request.proof() != "proof")
              return absl::UnauthenticatedError("it has not that key");
            const UnixSeconds issued(std::chrono::seconds(1'700'000'000));
            return PeerCertificate{{IdentityKind::kWorker, request.renews()}, issued, issued};
          },
          [this] {
            v1::ListAuthoritiesResponse response;
            response.add_authorities()->set_id("old");
            if (rotated_) response.add_authorities()->set_id("new");
            return response;
          },
          [this](UnixSeconds last_end) {
            last_end_ = last_end;
            return std::exchange(rotated_, true) ? FailedPrecondition("one is on its way")
                                                 : absl::OkStatus();
          }};
    }
    hands.random_bytes = [this](size_t bytes) {
      std::string text;
      while (text.size() < bytes) text += DigestBytes(Sha256Of(std::to_string(drawn_++)));
      return text.substr(0, bytes);
    };
    hands.now = [] { return UnixTime(std::chrono::milliseconds(1'700'000'000'250)); };
    hands.on_revoked = [this](const IdentityName& name) {
      const bool still_live = board_.Get()->FindLive(name) != nullptr;
      revoked_.push_back(name.ToString() + (still_live ? " still comes in" : ""));
    };
    return hands;
  }

  int drawn_ = 0;
  std::unique_ptr<testing::Served> server_;
  std::unique_ptr<v1::Access::Stub> stub_;
};

TEST_CASE("AccessService: a token is made, listed, redeemed, and its identity revoked") {
  AccessHouse house;
  const v1::CreateTokenResponse made = house.Create(v1::ROLE_WORKER, "b");
  REQUIRE(house.created_ == "ok");
  CHECK(made.token().size() == 8 + 1 + 26);
  CHECK(made.about().id() == made.token().substr(0, 8));
  CHECK(made.about().created_by() == "local");
  v1::ListTokensResponse tokens;
  REQUIRE(house.Call(&v1::Access::Stub::ListTokens, v1::ListTokensRequest(), &tokens) == "ok");
  REQUIRE(tokens.tokens_size() == 1);
  CHECK(tokens.tokens(0).name() == "b");

  const v1::JoinReply reply = house.Join(made.token(), 'k');
  CHECK(reply.code() == 0);
  CHECK(reply.issued().certificate() == "request signed for worker/b at 1700000000");
  CHECK(house.board_.Get()->FindLive({IdentityKind::kWorker, "b"}) != nullptr);
  const v1::JoinReply other = house.Join(made.token(), 'x');
  CHECK(other.code() == static_cast<int>(grpc::StatusCode::PERMISSION_DENIED));
  CHECK(other.reason() == "TOKEN_USED");
  CHECK_FALSE(other.message().empty());
  CHECK_FALSE(other.has_issued());

  v1::ListIdentitiesResponse identities;
  REQUIRE(house.Call(&v1::Access::Stub::ListIdentities, v1::ListIdentitiesRequest(), &identities) ==
          "ok");
  REQUIRE(identities.identities_size() == 1);
  CHECK(identities.identities(0).uri() == "spiffe://c/worker/b");
  CHECK(identities.identities(0).joined().seconds() == 1'700'000'000);
  CHECK_FALSE(identities.identities(0).has_revoked());

  CHECK(house.Revoke(v1::ROLE_ADMIN, "b") == "IDENTITY_NOT_FOUND");
  CHECK(house.Revoke(v1::ROLE_WORKER, "b") == "ok");
  CHECK(house.Revoke(v1::ROLE_WORKER, "b") == "REVOKED");
  house.Settle();
  CHECK(house.revoked_ == std::vector<std::string>{"worker/b"});
  CHECK(house.Join(made.token(), 'k').reason() == "REVOKED");
}

TEST_CASE("AccessService: of 64 keys that race for one use one is let in") {
  AccessHouse house;
  const std::string token = house.Create(v1::ROLE_WORKER, "b").token();
  std::vector<std::future<std::string>> keys;
  for (int i = 0; i < 64; ++i) {
    keys.push_back(std::async(std::launch::async, [&house, &token, i] {
      const v1::JoinReply reply = house.Join(token, static_cast<char>(i));
      return reply.code() == 0 ? "ok" : reply.reason();
    }));
  }
  std::map<std::string, int> outcomes;
  for (auto& key : keys) ++outcomes[key.get()];
  CHECK(outcomes["ok"] == 1);
  CHECK(outcomes["TOKEN_USED"] == 5);  // then the address waits
  CHECK(outcomes["TOO_MANY"] == 58);
}

TEST_CASE("AccessService: who renews gets a certificate of its own name") {
  AccessHouse house;
  const std::string token = house.Create(v1::ROLE_SUBMITTER, "eva").token();
  REQUIRE(house.Join(token, 'k').code() == 0);
  v1::RenewRequest request;
  request.set_signing_request("again");
  v1::IssuedCertificate issued;
  CHECK(house.Call(&v1::Access::Stub::Renew, request, &issued) == "NO_IDENTITY");
  house.passage_.caller = {IdentityName{IdentityKind::kUser, "eva"}, v1::ROLE_SUBMITTER,
                           UnixSeconds(std::chrono::seconds(1'700'600'000))};
  CHECK(house.Call(&v1::Access::Stub::Renew, request, &issued) == "ok");
  CHECK(issued.certificate() == "again signed for user/eva at 1700000000");
  house.Settle();
  const size_t entries = house.store_.audit.size();
  request.set_signing_request("garbage");
  CHECK(house.Call(&v1::Access::Stub::Renew, request, &issued) == "INVALID_REQUEST");
  for (const size_t bytes : {size_t{0}, size_t{16'385}}) {
    request.set_signing_request(std::string(bytes, 'x'));
    CHECK(house.Call(&v1::Access::Stub::Renew, request, &issued) == "INVALID_REQUEST");
  }
  house.Settle();
  CHECK(house.store_.audit.size() == entries);  // nothing was issued
  v1::WhoAmIResponse who;
  REQUIRE(house.Call(&v1::Access::Stub::WhoAmI, v1::WhoAmIRequest(), &who) == "ok");
  CHECK(who.identity() == "spiffe://c/user/eva");
  CHECK(who.role() == v1::ROLE_SUBMITTER);
  CHECK(who.local().empty());
  CHECK(who.certificate_expires().seconds() == 1'700'600'000);
}

TEST_CASE("AccessService: a join with an old certificate gets the next one for its own name") {
  AccessHouse house;
  REQUIRE(house.Join(house.Create(v1::ROLE_WORKER, "b").token(), 'k').code() == 0);
  const v1::JoinReply renewed = house.RenewEnded("b", "proof");
  CHECK(renewed.code() == 0);
  CHECK(renewed.issued().certificate() == "again signed for worker/b at 1700000000");
  CHECK(renewed.now().seconds() == 1'700'000'000);
  const v1::JoinReply other = house.RenewEnded("b", "none");
  CHECK(other.reason() == "NOT_AUTHENTICATED");
  CHECK(other.message() == "it has not that key");
  CHECK_FALSE(other.has_issued());
  CHECK(other.now().seconds() == 1'700'000'000);
  CHECK(house.RenewEnded("c", "proof").reason() == "NOT_AUTHENTICATED");
  REQUIRE(house.Revoke(v1::ROLE_WORKER, "b") == "ok");
  CHECK(house.RenewEnded("b", "proof").reason() == "REVOKED");
  house.Settle();
  std::vector<std::string> refused;
  for (const v1::AuditEntry& entry : house.store_.audit) {
    if (entry.what() == "renew") refused.push_back(entry.who() + ": " + entry.result());
  }
  CHECK(refused == std::vector<std::string>{"worker/b: ok", "address 192.0.2.1: NOT_AUTHENTICATED",
                                            "worker/c: NOT_AUTHENTICATED", "worker/b: REVOKED"});
}

TEST_CASE("AccessService: a new authority is made once, and is in the audit") {
  AccessHouse house;
  const v1::RotateAuthorityRequest request;
  v1::ListAuthoritiesResponse both, list;
  CHECK(house.Call(&v1::Access::Stub::RotateAuthority, request, &both) == "ok");
  CHECK(both.authorities_size() == 2);
  CHECK(house.Call(&v1::Access::Stub::RotateAuthority, request, &both) == "ROTATING");
  CHECK(house.Call(&v1::Access::Stub::ListAuthorities, v1::ListAuthoritiesRequest(), &list) ==
        "ok");
  CHECK(list.authorities_size() == 2);
  house.service_->NoteDone("authority", "new signs");
  house.Settle();
  REQUIRE(house.store_.audit.size() == 2);
  CHECK(house.store_.audit[0].who() == "local");
  CHECK(house.store_.audit[0].what() == "authority rotate");
  CHECK(house.store_.audit[0].subject() == "new");
  CHECK(house.store_.audit[1].who() == "coordinator");
  AccessHouse other(AccessHouse::Signs::kNo);
  CHECK(other.Call(&v1::Access::Stub::RotateAuthority, request, &both) == "NO_AUTHORITY");
  CHECK(other.Call(&v1::Access::Stub::ListAuthorities, v1::ListAuthoritiesRequest(), &list) ==
        "NO_AUTHORITY");
}

TEST_CASE("AccessService: a new authority waits for the end of the newest certificate") {
  AccessHouse house;
  const std::string token = house.Create(v1::ROLE_WORKER, "b").token();
  REQUIRE(house.Join(token, 'k').code() == 0);
  v1::ListAuthoritiesResponse both;
  REQUIRE(house.Call(&v1::Access::Stub::RotateAuthority, v1::RotateAuthorityRequest(), &both) ==
          "ok");
  house.Settle();
  const UnixSeconds issued(std::chrono::seconds(1'700'000'000));
  CHECK(house.last_end_ == issued + std::chrono::hours(7 * 24));
}

TEST_CASE("AccessService: who is local says so") {
  AccessHouse house;
  v1::WhoAmIResponse who;
  REQUIRE(house.Call(&v1::Access::Stub::WhoAmI, v1::WhoAmIRequest(), &who) == "ok");
  CHECK(who.local() == "yes");
  CHECK(who.identity().empty());
  CHECK(who.role() == v1::ROLE_ADMIN);
  CHECK_FALSE(who.has_certificate_expires());
}

TEST_CASE("AccessService: a caller that is nobody any more gets nothing") {
  AccessHouse house;
  house.passage_.refusal = {absl::UnauthenticatedError("user/eva was revoked"), "REVOKED"};
  v1::WhoAmIResponse who;
  CHECK(house.Call(&v1::Access::Stub::WhoAmI, v1::WhoAmIRequest(), &who) == "REVOKED");
  CHECK(house.status_.error_code() == grpc::StatusCode::UNAUTHENTICATED);
  (void)house.Create(v1::ROLE_WORKER, "b");
  CHECK(house.created_ == "REVOKED");
}

TEST_CASE("AccessService: a call that waited behind the end of who made it does nothing") {
  AccessHouse house;
  REQUIRE(house.Join(house.Create(v1::ROLE_ADMIN, "eva").token(), 'k').code() == 0);
  std::promise<void> go, queued;
  REQUIRE(house.loop_.Post([gone = go.get_future().share()] { gone.wait(); }));
  house.on_queued_ = [&] { queued.set_value(); };
  v1::RevokeIdentityRequest request;
  request.set_role(v1::ROLE_ADMIN);
  request.set_name("eva");
  v1::RevokeIdentityResponse response;
  Deadline context;
  std::promise<std::string> revoked;
  house.stub()->async()->RevokeIdentity(
      &context, &request, &response,
      [&](const grpc::Status& status) { revoked.set_value(status.ok() ? "ok" : "refused"); });
  queued.get_future().wait();
  house.passage_.caller = {IdentityName{IdentityKind::kUser, "eva"}, v1::ROLE_ADMIN, std::nullopt};
  house.on_queued_ = [&] { go.set_value(); };
  CHECK(house.Create(v1::ROLE_WORKER, "b").token().empty());
  CHECK(house.created_ == "REVOKED");
  CHECK(house.status_.error_code() == grpc::StatusCode::UNAUTHENTICATED);
  CHECK(revoked.get_future().get() == "ok");
  house.Settle();
  REQUIRE(house.store_.tokens.size() == 1);  // the one that she joined with
  CHECK(house.store_.tokens.begin()->second.name == "eva");
  CHECK(house.store_.audit.back().subject() == "/ringmaster.v1.Access/CreateToken");
  CHECK(house.store_.audit.back().result() == "REVOKED");
}

TEST_CASE("AccessService: without an authority nobody joins, and nothing is made") {
  AccessHouse house(AccessHouse::Signs::kNo);
  (void)house.Create(v1::ROLE_WORKER, "b");
  CHECK(house.created_ == "NO_AUTHORITY");
  CHECK(house.status_.error_code() == grpc::StatusCode::FAILED_PRECONDITION);
  CHECK(house.Join("aaaaaaaa/b", 'k').reason() == "NO_AUTHORITY");
  v1::RenewRequest request;
  v1::IssuedCertificate issued;
  CHECK(house.Call(&v1::Access::Stub::Renew, request, &issued) == "NO_AUTHORITY");
}

TEST_CASE("AccessService: what cannot be stored is not answered as done") {
  AccessHouse house;
  const std::string token = house.Create(v1::ROLE_WORKER, "b").token();
  house.Settle();
  house.store_.fails = true;
  CHECK(house.Create(v1::ROLE_WORKER, "c").token().empty());
  CHECK(house.created_ == "STORE_UNAVAILABLE");
  const v1::JoinReply reply = house.Join(token, 'k');
  CHECK(reply.reason() == "STORE_UNAVAILABLE");
  CHECK_FALSE(reply.has_issued());
  CHECK(house.board_.Get()->all().empty());
}

TEST_CASE("AccessService: a loop that has stopped is no bug of the caller") {
  AccessHouse house;
  house.loop_.Stop();
  (void)house.Create(v1::ROLE_WORKER, "b");
  CHECK(house.created_ == "UNAVAILABLE");
  CHECK(house.Join("aaaaaaaa/b", 'k').reason() == "UNAVAILABLE");
}

TEST_CASE("AccessService: the audit has the changes, and what the gate refused") {
  AccessHouse house;
  (void)house.Create(v1::ROLE_WORKER, "b");
  v1::AuditEntry refused;
  refused.set_who("user/eva");
  refused.set_what("call");
  refused.set_result("NOT_PERMITTED");
  house.service_->NoteRefusal(refused, UnixTime(std::chrono::milliseconds(1'700'000'001'000)));
  v1::ListAuditRequest request;
  v1::ListAuditResponse audit;
  REQUIRE(house.Call(&v1::Access::Stub::ListAudit, request, &audit) == "ok");
  REQUIRE(audit.entries_size() == 2);
  CHECK(audit.entries(0).what() == "token create");
  CHECK(audit.entries(1).who() == "user/eva");
  CHECK(audit.entries(1).previous() == DigestOf(audit.entries(0)));
  request.set_limit(1'001);
  CHECK(house.Call(&v1::Access::Stub::ListAudit, request, &audit) == "INVALID_REQUEST");
}

TEST_CASE("AccessService: a token that is revoked is none any more") {
  AccessHouse house;
  v1::RevokeTokenRequest request;
  request.set_id(house.Create(v1::ROLE_WORKER, "b").about().id());
  v1::RevokeTokenResponse response;
  CHECK(house.Call(&v1::Access::Stub::RevokeToken, request, &response) == "ok");
  CHECK(house.Call(&v1::Access::Stub::RevokeToken, request, &response) == "TOKEN_NOT_FOUND");
}

}  // namespace
}  // namespace ringmaster::coordinator
