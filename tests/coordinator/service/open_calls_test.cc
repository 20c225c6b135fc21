#include "coordinator/service/open_calls.h"

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <cstddef>
#include <functional>
#include <list>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "common/mutex.h"
#include "common/rpc/rpc_status.h"
#include "ringmaster/v1/jobs.grpc.pb.h"
#include "tests/support/served.h"

namespace ringmaster::coordinator {
namespace {

using std::chrono::seconds;

IdentityName Eva() { return {IdentityKind::kUser, "eva"}; }
IdentityName Max() { return {IdentityKind::kUser, "max"}; }

// Says something, and lasts until it is cancelled.
class Endless : public CountedCall<grpc::ServerWriteReactor<v1::JobStatus>> {
 public:
  explicit Endless(std::shared_ptr<OpenCall> call) : CountedCall(std::move(call)) {
    StartWrite(&message_);
  }

 private:
  void OnCancel() override { Finish(grpc::Status::CANCELLED); }
  void OnDone() override {
    call_->Leave();
    delete this;
  }
  const v1::JobStatus message_;
};

using AtOnce = RefusedCall<grpc::ServerWriteReactor<v1::JobStatus>>;

// Watches without end, but of the job `over`; a Get is answered when Release says so, a Why and a
// Submit at once.
class Doors final : public v1::Jobs::CallbackService {
 public:
  explicit Doors(OpenCalls* calls) : calls_(*calls) {}

  grpc::ServerWriteReactor<v1::JobStatus>* Watch(grpc::CallbackServerContext* context,
                                                 const v1::WatchRequest* request) override {
    OpenCalls::Entry entry = calls_.Enter(context, {"Jobs/Watch", CallKind::kLasting});
    const Refusal& refusal = entry.refusal;
    if (entry.call == nullptr) return new AtOnce(ToGrpc(refusal.status, refusal.word));
    if (request->job_id() == "over") return new AtOnce(grpc::Status::OK, std::move(entry.call));
    return new Endless(std::move(entry.call));
  }
  grpc::ServerUnaryReactor* Get(grpc::CallbackServerContext* context, const v1::GetRequest*,
                                v1::JobStatus*) override {
    return calls_.Answer(context, {"Jobs/Get", CallKind::kShort}, [this](UnaryCall* call) {
      MutexLock lock(mu_);
      held_.push_back(call);
    });
  }
  grpc::ServerUnaryReactor* Why(grpc::CallbackServerContext* context, const v1::WhyRequest*,
                                v1::WhyResponse*) override {
    return calls_.Answer(context, {"Jobs/Why", CallKind::kShort},
                         [](UnaryCall* call) { call->Finish(grpc::Status::OK); });
  }
  grpc::ServerUnaryReactor* Submit(grpc::CallbackServerContext* context, const v1::SubmitRequest*,
                                   v1::SubmitResponse* response) override {
    return calls_.Answer(context, {"Jobs/Submit", CallKind::kSubmission},
                         [response](UnaryCall* call) {
                           response->set_job_id(call->caller().ToString());
                           call->Finish(grpc::Status::OK);
                         });
  }
  size_t held() {
    MutexLock lock(mu_);
    return held_.size();
  }
  void Release() {
    MutexLock lock(mu_);
    for (UnaryCall* const call : std::exchange(held_, {})) call->Finish(grpc::Status::OK);
  }

 private:
  OpenCalls& calls_;
  Mutex mu_;
  std::vector<UnaryCall*> held_ ABSL_GUARDED_BY(mu_);
};

// Whoever calls says who it is.
Passage WhoSays(grpc::CallbackServerContext* context) {
  Passage passage;
  const auto who = context->client_metadata().find("who");
  if (who == context->client_metadata().end()) return passage;
  passage.caller.identity = {IdentityKind::kUser,
                             std::string(who->second.data(), who->second.size())};
  return passage;
}

std::unique_ptr<grpc::ClientContext> From(const std::string& who) {
  auto context = std::make_unique<grpc::ClientContext>();
  context->set_deadline(std::chrono::system_clock::now() + seconds(20));
  if (!who.empty()) context->AddMetadata("who", who);
  return context;
}

// A Watch as its client sees it.
class Watcher {
 public:
  Watcher(v1::Jobs::Stub* stub, const std::string& who, const std::string& job = "")
      : context_(From(who)) {
    v1::WatchRequest request;
    request.set_job_id(job);
    reader_ = stub->Watch(context_.get(), request);
    v1::JobStatus message;
    open_ = reader_->Read(&message);
  }
  ~Watcher() {
    if (!ended_) (void)Leave();
  }
  [[nodiscard]] bool open() const { return open_; }
  grpc::Status Leave() {
    context_->TryCancel();
    return End();
  }
  grpc::Status End() {
    v1::JobStatus message;
    while (reader_->Read(&message)) {
    }
    ended_ = true;
    return reader_->Finish();
  }

 private:
  std::unique_ptr<grpc::ClientContext> context_;
  std::unique_ptr<grpc::ClientReader<v1::JobStatus>> reader_;
  bool open_ = false, ended_ = false;
};

struct House {
  House() : stub(v1::Jobs::NewStub(served.channel())) {}

  // `open`, or the word of the refusal.
  std::string TryWatch(const std::string& who) {
    Watcher watcher(stub.get(), who);
    return watcher.open() ? "open" : ErrorReason(watcher.End());
  }
  // The same, when the ends of others may still be on their way.
  std::string AwaitWatch(const std::string& who) {
    const auto end = std::chrono::steady_clock::now() + seconds(20);
    std::string word = TryWatch(who);
    while (word == "TOO_MANY" && std::chrono::steady_clock::now() < end) {
      std::this_thread::yield();
      now = now.load() + seconds(1);
      word = TryWatch(who);
    }
    return word;
  }
  grpc::Status Submit(const std::string& who) {
    v1::SubmitResponse response;
    return stub->Submit(From(who).get(), v1::SubmitRequest(), &response);
  }
  std::vector<std::unique_ptr<Watcher>> Watch(const std::string& who, int count) {
    std::vector<std::unique_ptr<Watcher>> watchers;
    for (int i = 0; i < count; ++i) watchers.push_back(std::make_unique<Watcher>(stub.get(), who));
    return watchers;
  }

  // So many Gets, until Release.
  std::vector<std::jthread> Hold(const std::string& who, size_t count) {
    std::vector<std::jthread> asking;
    for (size_t i = 0; i < count; ++i) {
      asking.emplace_back([this, who] {
        v1::JobStatus response;
        (void)stub->Get(From(who).get(), v1::GetRequest(), &response);
      });
    }
    const auto end = std::chrono::steady_clock::now() + seconds(20);
    while (doors.held() < count && std::chrono::steady_clock::now() < end) {
      std::this_thread::yield();
    }
    REQUIRE(doors.held() == count);
    return asking;
  }

  std::atomic<UnixTime> now{UnixTime(seconds(1'700'000'000))};
  std::function<Passage(grpc::CallbackServerContext*)> caller_of = WhoSays;
  std::vector<std::string> told;  // while nothing is under way
  OpenCalls calls{{[this](grpc::CallbackServerContext* context) { return caller_of(context); },
                   [this](const Passage& refused, const std::string& path) {
                     told.push_back(refused.caller.ToString() + " " + path + " " +
                                    refused.refusal.word);
                   },
                   [this] { return now.load(); }}};
  Doors doors{&calls};
  testing::Served served{&doors};
  std::unique_ptr<v1::Jobs::Stub> stub;
};

TEST_CASE("OpenCalls: 64 streams of one identity, and not one more") {
  House house;
  auto watchers = house.Watch("eva", 64);
  Watcher late(house.stub.get(), "eva");
  const grpc::Status refused = late.End();
  CHECK(refused.error_code() == grpc::StatusCode::RESOURCE_EXHAUSTED);
  CHECK(ErrorReason(refused) == "TOO_MANY");
  CHECK_THAT(refused.error_message(), Catch::Contains("user/eva has 64 calls that last") &&
                                          Catch::Contains("end one, or wait"));
  CHECK(house.told == std::vector<std::string>{"user/eva /ringmaster.v1.Jobs/Watch TOO_MANY"});
  // Others have their own room, other kinds of calls too, and who has no identity is not counted.
  CHECK(house.TryWatch("max") == "open");
  CHECK(house.Submit("eva").ok());
  const auto local = house.Watch("", 65);
  CHECK(house.TryWatch("") == "open");
  // The room comes back.
  watchers.pop_back();
  CHECK(house.AwaitWatch("eva") == "open");
}

TEST_CASE("OpenCalls: 32 answers of one identity, and not one more") {
  House house;
  const auto asking = house.Hold("eva", 32);
  v1::JobStatus response;
  CHECK(ErrorReason(house.stub->Get(From("eva").get(), v1::GetRequest(), &response)) == "TOO_MANY");
  // Answers are not cut off: they end by themselves.
  house.calls.Cut(Eva(), "it was revoked");
  house.doors.Release();
}

// Its answer reaches a caller before the server hears that it was sent.
TEST_CASE("OpenCalls: one after the other is not refused, with all others open") {
  House house;
  const auto watching = house.Watch("eva", 63);
  for (int i = 0; i < 200; ++i) {
    Watcher watcher(house.stub.get(), "eva", "over");
    const grpc::Status status = watcher.End();
    INFO(i << ": " << status.error_message());
    REQUIRE(status.ok());
  }
  const auto asking = house.Hold("eva", 31);
  for (int i = 0; i < 200; ++i) {
    v1::WhyResponse response;
    const grpc::Status status = house.stub->Why(From("eva").get(), v1::WhyRequest(), &response);
    INFO(i << ": " << status.error_message());
    REQUIRE(status.ok());
  }
  house.doors.Release();
}

// No gRPC: the test says when an answer is sent.
TEST_CASE("OpenCalls: answers that nobody takes keep the next calls waiting, in their order") {
  OpenCalls calls{{[](grpc::CallbackServerContext*) {
                     Passage passage;
                     passage.caller.identity = Eva();
                     return passage;
                   },
                   {},
                   [] { return UnixTime(seconds(1'700'000'000)); }}};
  std::vector<int> served;
  std::list<grpc::CallbackServerContext> contexts;
  std::vector<grpc::ServerUnaryReactor*> sent;
  for (int i = 0; i < 64; ++i) {
    sent.push_back(calls.Answer(&contexts.emplace_back(), {"Jobs/Get", CallKind::kShort},
                                [&, i](UnaryCall* call) {
                                  served.push_back(i);
                                  call->Finish(grpc::Status::OK);
                                }));
  }
  CHECK(served.size() == 32);
  // As many may wait; another kind has its own room.
  const Method short_one{"Jobs/Get", CallKind::kShort}, lasting{"Jobs/Why", CallKind::kLasting};
  CHECK(calls.Enter(&contexts.front(), short_one).refusal.word == "TOO_MANY");
  CHECK(calls.Enter(&contexts.front(), lasting).call != nullptr);
  for (size_t i = 0; i < sent.size(); ++i) {
    sent[i]->OnDone();
    REQUIRE(served.size() == std::min<size_t>(33 + i, 64));
    REQUIRE(served.back() == static_cast<int>(served.size()) - 1);
  }
}

TEST_CASE("OpenCalls: who is revoked while its call waits is not served") {
  bool revoked = false;
  OpenCalls calls{{[&](grpc::CallbackServerContext*) {
                     Passage passage;
                     passage.caller.identity = Eva();
                     if (revoked)
                       passage.refusal = {absl::UnauthenticatedError("it was"), "REVOKED"};
                     return passage;
                   },
                   {},
                   [] { return UnixTime(seconds(1'700'000'000)); }}};
  int served = 0;
  std::list<grpc::CallbackServerContext> contexts;
  std::vector<grpc::ServerUnaryReactor*> sent;
  for (int i = 0; i < 34; ++i) {
    sent.push_back(calls.Answer(&contexts.emplace_back(), {"Access/Renew", CallKind::kShort},
                                [&](UnaryCall* call) {
                                  ++served;
                                  call->Finish(grpc::Status::OK);
                                }));
  }
  CHECK(served == 32);
  sent[0]->OnDone();
  CHECK(served == 33);
  revoked = true;
  for (size_t i = 1; i < sent.size(); ++i) sent[i]->OnDone();
  CHECK(served == 33);
}

TEST_CASE("OpenCalls: who calls too often waits") {
  House house;
  for (int i = 0; i < 100; ++i) REQUIRE(house.Submit("eva").ok());
  const grpc::Status refused = house.Submit("eva");
  CHECK(refused.error_code() == grpc::StatusCode::RESOURCE_EXHAUSTED);
  CHECK(refused.error_message() ==
        "user/eva made 100 submissions within 10 s, the most that one identity may make; call less "
        "often");
  CHECK(house.Submit("max").ok());
  CHECK(house.TryWatch("eva") == "open");
  house.now = house.now.load() + seconds(10);
  CHECK(house.Submit("eva").ok());
  for (int i = 0; i < 101; ++i) REQUIRE(house.Submit("").ok());
}

TEST_CASE("OpenCalls: Cut ends the streams of one identity") {
  House house;
  auto evas = house.Watch("eva", 3);
  Watcher other(house.stub.get(), "max");
  house.calls.Cut(Eva(), "it was revoked");
  for (const auto& watcher : evas) {
    CHECK(watcher->End().error_code() == grpc::StatusCode::CANCELLED);
  }
  house.calls.Cut(Eva(), "again");
  CHECK(house.TryWatch("eva") == "open");
  // Until it leaves itself.
  house.calls.Cut(Max(), "too");
  CHECK(other.End().error_code() == grpc::StatusCode::CANCELLED);
}

TEST_CASE("OpenCalls: who is cut off while it comes in does not come in") {
  House house;
  std::atomic<int> looks = 0;
  house.caller_of = [&looks](grpc::CallbackServerContext* context) {
    Passage passage = WhoSays(context);
    if (++looks > 1) passage.refusal = {absl::UnauthenticatedError("revoked"), "REVOKED"};
    return passage;
  };
  CHECK(house.TryWatch("eva") == "REVOKED");
  house.caller_of = WhoSays;
  const auto watchers = house.Watch("eva", 64);
  house.calls.Cut(Eva(), "they are open");
  for (const auto& watcher : watchers) {
    CHECK(watcher->End().error_code() == grpc::StatusCode::CANCELLED);
  }
}

TEST_CASE("OpenCalls: a stream ends with the newest certificate of its identity") {
  House house;
  Identities identities;
  const auto put = [&](const IdentityName& name, UnixTime expires) {
    IdentityRecord record;
    record.identity = name;
    record.certificate_expires = std::chrono::floor<seconds>(expires);
    identities.Put(record);
  };
  const UnixTime now = house.now;
  put(Eva(), now + seconds(10));
  put(Max(), now + seconds(100));  // it was renewed meanwhile
  Watcher eva(house.stub.get(), "eva"), max(house.stub.get(), "max");
  house.calls.CutEnded(identities, now + seconds(9));
  Watcher second(house.stub.get(), "eva");
  house.calls.CutEnded(identities, now + seconds(10));
  CHECK(eva.End().error_code() == grpc::StatusCode::CANCELLED);
  CHECK(second.End().error_code() == grpc::StatusCode::CANCELLED);
  house.calls.Cut(Max(), "the test ends");
  CHECK(max.End().error_code() == grpc::StatusCode::CANCELLED);
}

}  // namespace
}  // namespace ringmaster::coordinator
