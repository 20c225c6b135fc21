// The calls that are under way, by who makes them: how many of a kind one identity may have at a
// time, how often it may call, and what ends its calls when it may be here no longer. Who comes
// without TLS has no identity: an administrator of this host, whose calls nobody counts. Owned by
// the daemon; thread-safe. It knows methods by what they cost alone; who may call which is the
// gate's.
//
// An answer takes room until gRPC has sent it, which the caller may know before we do. The stages
// of a call with one answer are
//
//   waiting -> served -> answered -> gone
//
// Waiting and served ones of an identity are so many at most: one more is refused. Served and
// answered ones are no more than that either: who finds them so many waits. Whoever calls one after
// the other is thus never refused, and answers that nobody takes are no more than calls.
#pragma once

#include <grpcpp/server_context.h>
#include <grpcpp/support/server_callback.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/mutex.h"
#include "coordinator/access/allowance.h"
#include "coordinator/access/identities.h"
#include "coordinator/service/gate.h"

namespace ringmaster::coordinator {

enum class CallKind : uint8_t {
  kShort,       // answered at once; never cut off
  kSubmission,  // likewise
  kLasting,     // a stream, or an answer that takes its time
  // A worker has one; what there is besides are those before it, until their end is noticed.
  kSession,
  kLogLines,
  kUpload,
};

// A method as it is counted: `Jobs/Watch`.
struct Method {
  const char* name;
  CallKind kind;
};

class OpenCalls;

// One call. Its reactor keeps it, and lets go of it in OnDone at the latest.
class OpenCall : public std::enable_shared_from_this<OpenCall> {
 public:
  OpenCall(OpenCalls* calls, grpc::CallbackServerContext* context, CallKind kind, Caller caller)
      : calls_(calls), kind_(kind), caller_(std::move(caller)), context_(context) {}
  ~OpenCall() { Leave(); }
  OpenCall(const OpenCall&) = delete;
  OpenCall& operator=(const OpenCall&) = delete;

  [[nodiscard]] const Caller& caller() const { return caller_; }
  [[nodiscard]] CallKind kind() const { return kind_; }

  // It ends as CANCELLED, soon. Nothing happens once it is left.
  void Cancel();
  // What Cut does instead of Cancel.
  void SetCut(std::function<void(const std::string& reason)> cut);
  void Cut(const std::string& reason);
  // It is answered: to be called before its caller can know that.
  void SetAnswered();
  // It counts no more, and its context is touched no more: to be called before gRPC frees that.
  void Leave();

 private:
  OpenCalls* const calls_;
  const CallKind kind_;
  const Caller caller_;

  // Held while the call is cancelled. gRPC runs no reaction of it meanwhile on the same thread.
  Mutex mu_;
  grpc::CallbackServerContext* context_ ABSL_GUARDED_BY(mu_);  // null once it is left
  std::function<void(const std::string&)> cut_ ABSL_GUARDED_BY(mu_);
};

// A call of gRPC's `Reactor` that is counted. Whoever derives from it leaves `call_` in OnDone.
template <typename Reactor>
class CountedCall : public Reactor {
 public:
  explicit CountedCall(std::shared_ptr<OpenCall> call) : call_(std::move(call)) {}

 protected:
  // In place of the Reactor's.
  void Finish(const grpc::Status& status) {
    if (call_) call_->SetAnswered();
    Reactor::Finish(status);
  }

  const std::shared_ptr<OpenCall> call_;  // null: it was refused before it was one
};

// One that is refused before anything is read or written; `call` where it was entered.
template <typename Reactor>
class RefusedCall final : public CountedCall<Reactor> {
 public:
  explicit RefusedCall(const grpc::Status& status, std::shared_ptr<OpenCall> call = nullptr)
      : CountedCall<Reactor>(std::move(call)) {
    this->Finish(status);
  }

 private:
  void OnDone() override {
    if (this->call_) this->call_->Leave();
    delete this;  // gRPC decides its lifetime
  }
};

// One with one answer.
class UnaryCall final : private CountedCall<grpc::ServerUnaryReactor> {
 public:
  UnaryCall(const UnaryCall&) = delete;
  UnaryCall& operator=(const UnaryCall&) = delete;
  [[nodiscard]] const Caller& caller() const { return call_->caller(); }
  // Once. Behind it nothing of the call may be touched: not its request, nor this.
  using CountedCall::Finish;

 private:
  friend class OpenCalls;
  using CountedCall::CountedCall;
  void OnDone() override;
};

class OpenCalls {
 public:
  struct Hands {
    // Asked once more about a call that can be cut when it is counted, where Cut finds it, and
    // about one that waited.
    CallerOf caller_of;
    // Of who has too many, or calls too often; any thread. May be empty.
    std::function<void(const Passage& refused, const std::string& path)> on_refusal;
    std::function<UnixTime()> now;
  };
  explicit OpenCalls(Hands hands);

  // A call comes in. RESOURCE_EXHAUSTED, TOO_MANY: there is no room for it; else as of `caller_of`.
  struct Entry {
    Refusal refusal;
    std::shared_ptr<OpenCall> call;  // null when it was refused
  };
  [[nodiscard]] Entry Enter(grpc::CallbackServerContext* context, const Method& method);

  // One with one answer: `serve` finishes it, now or later, unless it was refused. It runs at once,
  // or on another thread when the caller has answers under way.
  using Serve = std::function<void(UnaryCall* call)>;
  grpc::ServerUnaryReactor* Answer(grpc::CallbackServerContext* context, const Method& method,
                                   Serve serve);

  // Ends those of this identity that last. Who enters from now on asks `caller_of` itself.
  void Cut(const IdentityName& identity, const std::string& reason);
  // Ends those whose certificate has ended, unless their identity has a newer one by now.
  void CutEnded(const Identities& identities, UnixTime now);

 private:
  friend class OpenCall;
  enum class Stage : uint8_t { kWaiting, kServed, kAnswered };
  struct Open {
    const OpenCall* raw;
    std::weak_ptr<OpenCall> call;
    Stage stage;
    std::function<void()> serve;  // while it waits
  };
  using CallsOfOne = std::vector<Open>;  // in the order in which they came

  [[nodiscard]] static size_t CountBut(Stage left_out, CallKind kind, const CallsOfOne& open);
  [[nodiscard]] Refusal Count(const std::shared_ptr<OpenCall>& call, const Method& method);
  // False: it need not wait.
  [[nodiscard]] bool Wait(const OpenCall& call, std::function<void()> serve);
  void SetAnswered(const OpenCall& call);
  // Serves who waits for its room.
  void Remove(const OpenCall& call);

  const Hands hands_;

  Mutex mu_;
  std::map<IdentityName, CallsOfOne> open_ ABSL_GUARDED_BY(mu_);
  Allowance submitted_ ABSL_GUARDED_BY(mu_), called_ ABSL_GUARDED_BY(mu_);  // by identity
};

}  // namespace ringmaster::coordinator
