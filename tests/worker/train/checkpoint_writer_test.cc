#include "worker/train/checkpoint_writer.h"

#include <catch2/catch.hpp>
#include <chrono>
#include <thread>

#include "common/mutex.h"

namespace ringmaster::worker {
namespace {

const auto kPatience = std::chrono::seconds(60);

// Holds each delivery until it is let go or stopped. Thread-safe.
class GatedSink : public CheckpointSink {
 public:
  Status Deliver(const Checkpoint& checkpoint, const std::stop_token& stop) override {
    const std::stop_callback wake(stop, [this] {
      MutexLock lock(mu_);
      changed_.NotifyAll();
    });
    MutexLock lock(mu_);
    begun_.push_back(checkpoint.step);
    changed_.NotifyAll();
    const bool open = changed_.WaitUntil(
        mu_, std::chrono::steady_clock::now() + kPatience,
        [&]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return stop.stop_requested() || open_ > 0; });
    if (!open || stop.stop_requested()) return absl::CancelledError("stopped");
    --open_;
    return absl::OkStatus();
  }
  void Open(int deliveries) {
    MutexLock lock(mu_);
    open_ += deliveries;
    changed_.NotifyAll();
  }
  bool WaitUntilBegun(size_t deliveries) {
    MutexLock lock(mu_);
    return changed_.WaitUntil(
        mu_, std::chrono::steady_clock::now() + kPatience,
        [&]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return begun_.size() >= deliveries; });
  }
  std::vector<uint64_t> begun() {
    MutexLock lock(mu_);
    return begun_;
  }

 private:
  Mutex mu_;
  Condition changed_;
  int open_ ABSL_GUARDED_BY(mu_) = 0;
  std::vector<uint64_t> begun_ ABSL_GUARDED_BY(mu_);
};

std::vector<CheckpointFile> Files() { return {{"model.safetensors", "bytes"}}; }

TEST_CASE("CheckpointWriter: training goes on while a checkpoint is delivered") {
  GatedSink sink;
  CheckpointWriter writer(&sink);
  REQUIRE(writer.Submit({.step = 10}, {}, Files()).ok());
  REQUIRE(sink.WaitUntilBegun(1));  // Submit returned, the delivery did not
  sink.Open(2);
  REQUIRE(writer.Submit({.step = 20}, {}, Files()).ok());
  const auto sha = writer.Finish();
  REQUIRE(sha.ok());
  REQUIRE(*sha == Seal({.step = 20}, Files()).manifest_sha256);
  REQUIRE(sink.begun() == std::vector<uint64_t>{10, 20});
}

TEST_CASE("CheckpointWriter: without checkpoints there is nothing to wait for") {
  GatedSink sink;
  CheckpointWriter writer(&sink);
  const auto sha = writer.Finish();
  REQUIRE(sha.ok());
  REQUIRE(sha->empty());
}

TEST_CASE("CheckpointWriter: a stop ends a delivery and whoever waits for it") {
  GatedSink sink;
  CheckpointWriter writer(&sink);
  REQUIRE(writer.Submit({.step = 10}, {}, Files()).ok());
  REQUIRE(sink.WaitUntilBegun(1));
  Status second;
  {
    const std::jthread waiter([&] { second = writer.Submit({.step = 20}, {}, Files()); });
    writer.Stop();
  }
  REQUIRE(second.code() == absl::StatusCode::kCancelled);
  REQUIRE_FALSE(writer.Finish().ok());
  REQUIRE(sink.begun() == std::vector<uint64_t>{10});
}

}  // namespace
}  // namespace ringmaster::worker
