#include "worker/log/log_shipper.h"

#include <pthread.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <random>
#include <utility>

#include "common/signals.h"
#include "worker/log/ship_stream.h"

namespace ringmaster::worker {
namespace {

constexpr size_t kChunkBytes = 256 << 10;
constexpr int kFailuresToTell = 3;
constexpr std::chrono::milliseconds kFirstBackoff{50};
constexpr std::chrono::milliseconds kLastBackoff{1000};

}  // namespace

LogShipper::LogShipper(const std::shared_ptr<grpc::Channel>& channel, Spool* spool, Options options)
    : stub_(v1::Fleet::NewStub(channel)), spool_(spool), options_(std::move(options)) {}

LogShipper::~LogShipper() { Stop(); }

void LogShipper::Start() {
  thread_ = std::jthread([this](const std::stop_token& stop) { Run(stop); });
  pthread_setname_np(thread_.native_handle(), "log-shipper");
}

void LogShipper::Stop() {
  if (!thread_.joinable()) return;
  {
    MutexLock lock(mu_);
    draining_ = true;
  }
  spool_->Wake();
  {
    MutexLock lock(mu_);
    const auto deadline = std::chrono::steady_clock::now() + options_.drain_limit;
    changed_.WaitUntil(mu_, deadline, [this]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return done_; });
    thread_.request_stop();
    if (stream_ != nullptr) stream_->Cancel();
  }
  spool_->Wake();
  thread_.join();
}

bool LogShipper::MayWait() {
  MutexLock lock(mu_);
  return !draining_;
}

bool LogShipper::AwaitLines() {
  // An hour only bounds each single wait; Stop wakes it.
  if (MayWait())
    (void)spool_->WaitForLines(std::chrono::steady_clock::now() + std::chrono::hours(1));
  return !spool_->drained();
}

void LogShipper::Run(const std::stop_token& stop) {
  std::minstd_rand jitter(std::random_device{}());
  std::chrono::milliseconds backoff = kFirstBackoff;
  while (!stop.stop_requested()) {
    const bool lines = AwaitLines();
    if (lines) {
      const Status status = RunStream(stop);
      if (failures_ == 0) backoff = kFirstBackoff;
      // Once an outage, because it is a line more to ship; a coordinator that restarts is none.
      if (!status.ok() && ++failures_ == kFailuresToTell) {
        spdlog::warn("log lines wait in the spool: {}", Message(status));
      }
    }
    if (!MayWait()) break;  // one attempt, or nothing is left
    if (!lines) continue;
    std::uniform_int_distribution<int64_t> wait(backoff.count() / 2, backoff.count());
    (void)WaitForStop(stop, std::chrono::milliseconds(wait(jitter)));
    backoff = std::min(backoff * 2, kLastBackoff);
  }
  MutexLock lock(mu_);
  done_ = true;
  changed_.NotifyAll();
}

Status LogShipper::RunStream(const std::stop_token& stop) {
  if (options_.ticket().empty()) {
    return Error(absl::StatusCode::kUnavailable, "no session with the coordinator was opened yet");
  }
  ShipStream stream(stub_.get());
  {
    MutexLock lock(mu_);
    if (stop.stop_requested()) return absl::OkStatus();
    stream_ = &stream;
  }
  bool open = stream.Begin(std::chrono::system_clock::now() + options_.answer_limit);
  while (open && !stop.stop_requested()) {
    const bool lines = AwaitLines();
    if (lines) open = ShipOne(stop, &stream);
    if (!lines && !MayWait()) break;
  }
  {
    MutexLock lock(mu_);
    stream_ = nullptr;
  }
  return open ? absl::OkStatus() : stream.End();
}

bool LogShipper::ShipOne(const std::stop_token& stop, ShipStream* stream) {
  Spool::Batch batch = spool_->Unacknowledged(kChunkBytes);
  if (batch.lines.empty()) {
    // Files that cannot be read now are tried again later; newer lines may be readable.
    return !WaitForStop(stop, kLastBackoff);
  }
  const uint64_t newest = batch.lines.back().number();
  v1::LogChunk chunk;
  chunk.set_worker(options_.worker);
  chunk.set_spool(batch.spool);
  chunk.set_ticket(options_.ticket());
  for (v1::SpooledLine& line : batch.lines) *chunk.add_lines() = std::move(line);
  const auto deadline = std::chrono::system_clock::now() + options_.answer_limit;
  v1::LogAck ack;
  if (!stream->Send(chunk, deadline) || !stream->Hear(&ack, deadline)) return false;
  spool_->Acknowledge(batch.spool, std::min(ack.number(), newest));
  failures_ = 0;
  return true;
}

}  // namespace ringmaster::worker
