#include "worker/session.h"

#include <pthread.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <deque>
#include <random>
#include <utility>

#include "common/rpc/channel.h"
#include "common/rpc/rpc_status.h"

namespace ringmaster::worker {
namespace {

constexpr size_t kQueueLimit = 4096;
constexpr std::chrono::milliseconds kFirstBackoff{50};
constexpr std::chrono::milliseconds kLastBackoff{500};

std::chrono::steady_clock::time_point Now() { return std::chrono::steady_clock::now(); }

}  // namespace

std::shared_ptr<grpc::Channel> CoordinatorChannel(const Address& address, const Dialer& dialer) {
  grpc::ChannelArguments arguments = ChannelOptions(kLastBackoff);
  // A backstop: heartbeats find a silent peer first.
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, 2000);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 5000);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  return dialer.Dial(address, {pki::Kind::kCoordinator, ""}, arguments);
}

// One stream. gRPC holds it by raw pointer until OnDone: whoever began it waits for that (WaitDone)
// and lets go of it only then, so that no thread of gRPC is the one that destroys it, perhaps while
// the process ends.
class Session::Stream : public grpc::ClientBidiReactor<v1::WorkerMessage, v1::CoordinatorMessage> {
 public:
  explicit Stream(const std::function<void(Event)>* post) : post_(post) {}

  // First call; nobody else may have the stream before it returned.
  void Begin(v1::Fleet::Stub* stub) {
    stub->async()->Session(&context_, this);
    StartRead(&incoming_);
    AddHold();  // writes start outside of reactions
    StartCall();
  }

  // Attach is the first message of a session: what comes before it belongs to the session before
  // this one and is dropped.
  void Send(v1::WorkerMessage message) {
    MutexLock lock(mu_);
    attached_ = attached_ || message.has_attach();
    if (!attached_ || ended_ || finishing_) return;
    if (outgoing_.size() >= kQueueLimit) {
      context_.TryCancel();
      return;
    }
    outgoing_.push_back(std::move(message));
    if (outgoing_.size() == 1) StartWrite(&outgoing_.front());
  }

  void Cancel() { context_.TryCancel(); }

  // Half-closes once everything queued was written.
  void Finish() {
    MutexLock lock(mu_);
    if (ended_ || finishing_) return;
    finishing_ = true;
    if (outgoing_.empty()) CloseWrites();
  }

  // Waits until gRPC is done with the stream; false at the deadline.
  bool WaitDone(std::chrono::steady_clock::time_point deadline) {
    MutexLock lock(mu_);
    return changed_.WaitUntil(mu_, deadline,
                              [this]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return done_; });
  }

  grpc::Status status() {
    MutexLock lock(mu_);
    return status_;
  }

  void OnReadDone(bool ok) override {
    if (!ok) {
      MutexLock lock(mu_);
      End();
      return;
    }
    (*post_)(FromCoordinator{std::move(incoming_)});
    incoming_.Clear();
    StartRead(&incoming_);
  }

  void OnWriteDone(bool ok) override {
    MutexLock lock(mu_);
    if (!ok || ended_) {
      End();
      return;
    }
    outgoing_.pop_front();
    if (!outgoing_.empty()) {
      StartWrite(&outgoing_.front());
    } else if (finishing_) {
      CloseWrites();
    }
  }

  void OnDone(const grpc::Status& status) override {
    MutexLock lock(mu_);
    status_ = status;
    done_ = true;
    changed_.NotifyAll();
  }

 private:
  void CloseWrites() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { StartWritesDone(); }
  void End() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (std::exchange(ended_, true)) return;
    RemoveHold();
  }

  const std::function<void(Event)>* const post_;
  grpc::ClientContext context_;
  v1::CoordinatorMessage incoming_;

  Mutex mu_;
  Condition changed_;
  std::deque<v1::WorkerMessage> outgoing_ ABSL_GUARDED_BY(mu_);
  bool attached_ ABSL_GUARDED_BY(mu_) = false;  // Attach was queued
  bool finishing_ ABSL_GUARDED_BY(mu_) = false;
  bool ended_ ABSL_GUARDED_BY(mu_) = false;
  bool done_ ABSL_GUARDED_BY(mu_) = false;
  grpc::Status status_ ABSL_GUARDED_BY(mu_);
};

Session::Session(std::shared_ptr<grpc::Channel> channel, std::function<void(Event)> post)
    : channel_(std::move(channel)), stub_(v1::Fleet::NewStub(channel_)), post_(std::move(post)) {}

Session::~Session() { Stop(); }

void Session::Start() {
  thread_ = std::jthread([this](const std::stop_token& stop) { Run(stop); });
  pthread_setname_np(thread_.native_handle(), "session");
}

void Session::Send(v1::WorkerMessage message) {
  std::shared_ptr<Stream> stream;
  {
    MutexLock lock(mu_);
    stream = stream_;
  }
  if (stream != nullptr) stream->Send(std::move(message));
}

void Session::Close(const std::string& reason) {
  spdlog::warn("session closed: {}", reason);
  MutexLock lock(mu_);
  if (stream_ != nullptr) stream_->Cancel();
}

void Session::RunOnce() {
  auto stream = std::make_shared<Stream>(&post_);
  stream->Begin(stub_.get());
  {
    MutexLock lock(mu_);
    stream_ = stream;
    if (stopping_) stream->Cancel();  // Stop came before it could see the stream
  }
  post_(Connected{});
  // The stream lives as long as the worker; an hour only bounds each single wait.
  while (!stream->WaitDone(Now() + std::chrono::hours(1))) {
  }
  {
    MutexLock lock(mu_);
    stream_.reset();
  }
  const grpc::Status status = stream->status();
  post_(Disconnected{status.ok() ? "ended by the coordinator" : status.error_message()});
}

void Session::Run(const std::stop_token& stop) {
  std::minstd_rand jitter(std::random_device{}());
  std::chrono::milliseconds backoff = kFirstBackoff;
  while (!stop.stop_requested()) {
    const auto begun = Now();
    RunOnce();
    if (Now() - begun > kLastBackoff) backoff = kFirstBackoff;
    std::uniform_int_distribution<int64_t> wait(backoff.count() / 2, backoff.count());
    if (!Pause(Now() + std::chrono::milliseconds(wait(jitter)))) return;
    backoff = std::min(backoff * 2, kLastBackoff);
  }
}

bool Session::Pause(std::chrono::steady_clock::time_point until) {
  const auto ends = [this]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return stopping_ || last_; };
  // Who is connected was refused, and asks again later.
  if (channel_->GetState(false) != GRPC_CHANNEL_READY) {
    (void)AwaitConnection(*channel_, until, [this, &ends]() {
      MutexLock lock(mu_);
      return ends();
    });
    until = Now();
  }
  MutexLock lock(mu_);
  changed_.WaitUntil(mu_, until, ends);
  return !last_;
}

void Session::OpenNoMore() {
  MutexLock lock(mu_);
  last_ = true;
  changed_.NotifyAll();
}

void Session::Stop() {
  std::shared_ptr<Stream> stream;
  {
    MutexLock lock(mu_);
    if (std::exchange(stopping_, true)) return;
    stream = stream_;
    changed_.NotifyAll();
  }
  thread_.request_stop();
  if (stream != nullptr) {
    stream->Finish();
    if (!stream->WaitDone(Now() + std::chrono::seconds(2))) stream->Cancel();
  }
  if (thread_.joinable()) thread_.join();
}

}  // namespace ringmaster::worker
