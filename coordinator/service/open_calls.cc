#include "coordinator/service/open_calls.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <utility>
#include <vector>

#include "common/rpc/rpc_status.h"

namespace ringmaster::coordinator {
namespace {

// Of one identity within kSpan; so many at once, and on average a tenth of it a second.
constexpr size_t kMostSubmissions = 100, kMostCalls = 500;
constexpr std::chrono::seconds kSpan{10};

// Of one identity, of all kinds and in all stages: streams that ended have no bound of their own.
constexpr size_t kMostOpen = 512;

struct Bound {
  size_t most;
  const char* what;
};

Bound BoundOf(CallKind kind) {
  switch (kind) {
    case CallKind::kShort:
      return {32, "calls"};
    case CallKind::kSubmission:
      return {32, "submissions"};
    case CallKind::kLasting:
      return {64, "calls that last (streams, downloads, checks, measurements)"};
    case CallKind::kSession:
      return {4, "sessions"};
    case CallKind::kLogLines:
      return {4, "streams of log lines"};
    case CallKind::kUpload:
      return {4, "uploads"};
  }
  return {0, "calls of no kind"};
}

bool CanBeCut(CallKind kind) { return kind != CallKind::kShort && kind != CallKind::kSubmission; }

Refusal TooMany(const std::string& message) {
  return {Error(absl::StatusCode::kResourceExhausted, "{}", message), "TOO_MANY"};
}

}  // namespace

void OpenCall::Cancel() {
  MutexLock lock(mu_);
  if (context_ != nullptr) context_->TryCancel();
}

void OpenCall::SetCut(std::function<void(const std::string& reason)> cut) {
  MutexLock lock(mu_);
  cut_ = std::move(cut);
}

void OpenCall::Cut(const std::string& reason) {
  std::function<void(const std::string&)> cut;
  {
    MutexLock lock(mu_);
    cut = cut_;
  }
  cut ? cut(reason) : Cancel();
}

void OpenCall::SetAnswered() {
  if (caller_.identity) calls_->SetAnswered(*this);
}

void OpenCall::Leave() {
  {
    MutexLock lock(mu_);
    if (context_ == nullptr) return;
    context_ = nullptr;
    cut_ = nullptr;
  }
  if (caller_.identity) calls_->Remove(*this);
}

void UnaryCall::OnDone() {
  call_->Leave();
  delete this;  // gRPC decides its lifetime
}

OpenCalls::OpenCalls(Hands hands)
    : hands_(std::move(hands)), submitted_(kMostSubmissions, kSpan), called_(kMostCalls, kSpan) {}

OpenCalls::Entry OpenCalls::Enter(grpc::CallbackServerContext* context, const Method& method) {
  Passage passage = hands_.caller_of(context);
  if (!passage.refusal.status.ok()) return {std::move(passage.refusal), nullptr};
  auto call = std::make_shared<OpenCall>(this, context, method.kind, passage.caller);
  if (!passage.caller.identity) return {{}, std::move(call)};
  passage.refusal = Count(call, method);
  if (!passage.refusal.status.ok()) {
    call->Leave();
    if (hands_.on_refusal) {
      hands_.on_refusal(passage, fmt::format("/ringmaster.v1.{}", method.name));
    }
    return {std::move(passage.refusal), nullptr};
  }
  // Whoever was cut off since the first look was not seen by it.
  if (CanBeCut(method.kind)) passage = hands_.caller_of(context);
  if (passage.refusal.status.ok()) return {{}, std::move(call)};
  call->Leave();
  return {std::move(passage.refusal), nullptr};
}

size_t OpenCalls::CountBut(Stage left_out, CallKind kind, const CallsOfOne& open) {
  return static_cast<size_t>(std::ranges::count_if(
      open, [&](const Open& one) { return one.raw->kind() == kind && one.stage != left_out; }));
}

Refusal OpenCalls::Count(const std::shared_ptr<OpenCall>& call, const Method& method) {
  const std::string who = call->caller().ToString();
  const Bound bound = BoundOf(method.kind);
  const bool submits = method.kind == CallKind::kSubmission;
  const UnixTime now = hands_.now();
  MutexLock lock(mu_);
  CallsOfOne& open = open_[*call->caller().identity];
  const size_t same = CountBut(Stage::kAnswered, method.kind, open);
  if (same >= bound.most) {
    return TooMany(
        fmt::format("{} has {} {} open, the most that one identity may have at a time; "
                    "end one, or wait until one has ended",
                    who, same, bound.what));
  }
  if (open.size() >= kMostOpen) {
    return TooMany(fmt::format("{} has {} calls under way, most of them ended; take their ends",
                               who, open.size()));
  }
  Allowance& allowance = submits ? submitted_ : called_;
  if (!allowance.Take(who, now)) {
    return TooMany(
        fmt::format("{} made {} {} within {} s, the most that one identity may make; "
                    "call less often",
                    who, submits ? kMostSubmissions : kMostCalls, submits ? "submissions" : "calls",
                    kSpan.count()));
  }
  open.push_back({call.get(), call, Stage::kServed, {}});
  return {};
}

bool OpenCalls::Wait(const OpenCall& call, std::function<void()> serve) {
  if (!call.caller().identity) return false;
  MutexLock lock(mu_);
  CallsOfOne& open = open_[*call.caller().identity];
  if (CountBut(Stage::kWaiting, call.kind(), open) <= BoundOf(call.kind()).most) return false;
  Open& waiting = *std::ranges::find(open, &call, &Open::raw);
  waiting.stage = Stage::kWaiting;
  waiting.serve = std::move(serve);
  return true;
}

void OpenCalls::SetAnswered(const OpenCall& call) {
  MutexLock lock(mu_);
  const auto of_one = open_.find(*call.caller().identity);
  if (of_one == open_.end()) return;
  const auto open = std::ranges::find(of_one->second, &call, &Open::raw);
  if (open != of_one->second.end()) open->stage = Stage::kAnswered;
}

void OpenCalls::Remove(const OpenCall& call) {
  std::function<void()> serve;
  {
    MutexLock lock(mu_);
    const auto of_one = open_.find(*call.caller().identity);
    if (of_one == open_.end()) return;
    CallsOfOne& open = of_one->second;
    std::erase_if(open, [&](const Open& one) { return one.raw == &call; });
    const auto next = std::ranges::find_if(open, [&](const Open& one) {
      return one.raw->kind() == call.kind() && one.stage == Stage::kWaiting;
    });
    if (next != open.end() &&
        CountBut(Stage::kWaiting, call.kind(), open) < BoundOf(call.kind()).most) {
      next->stage = Stage::kServed;
      serve = std::exchange(next->serve, {});
    }
    if (open.empty()) open_.erase(of_one);
  }
  if (serve) serve();
}

grpc::ServerUnaryReactor* OpenCalls::Answer(grpc::CallbackServerContext* context,
                                            const Method& method, Serve serve) {
  Entry entry = Enter(context, method);
  if (entry.call == nullptr) {
    grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
    reactor->Finish(ToGrpc(entry.refusal.status, entry.refusal.word));
    return reactor;
  }
  // It may be finished when `serve` returns; gRPC is done with it only behind that.
  auto* const call = new UnaryCall(entry.call);
  const auto later = [this, context, call, serve] {
    // How long it waited is the caller's choice: it may have given up meanwhile, or be gone.
    const Refusal refusal = hands_.caller_of(context).refusal;
    if (!refusal.status.ok()) return call->Finish(ToGrpc(refusal.status, refusal.word));
    context->IsCancelled() ? call->Finish(grpc::Status::CANCELLED) : serve(call);
  };
  if (!Wait(*entry.call, later)) serve(call);
  return call;
}

void OpenCalls::Cut(const IdentityName& identity, const std::string& reason) {
  std::vector<std::shared_ptr<OpenCall>> calls;
  {
    MutexLock lock(mu_);
    const auto of_one = open_.find(identity);
    if (of_one == open_.end()) return;
    for (const Open& open : of_one->second) {
      if (auto call = open.call.lock(); call != nullptr) calls.push_back(std::move(call));
    }
  }
  for (const auto& call : calls) {
    if (CanBeCut(call->kind())) call->Cut(reason);
  }
}

void OpenCalls::CutEnded(const Identities& identities, UnixTime now) {
  std::vector<IdentityName> ended;
  {
    MutexLock lock(mu_);
    for (const auto& [identity, calls] : open_) {
      const IdentityRecord* const record = identities.Find(identity);
      if (record == nullptr || record->certificate_expires <= now) ended.push_back(identity);
    }
  }
  for (const IdentityName& identity : ended) Cut(identity, "its certificate ended");
}

}  // namespace ringmaster::coordinator
