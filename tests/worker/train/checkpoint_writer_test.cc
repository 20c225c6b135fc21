#include "worker/train/checkpoint_writer.h"

#include <catch2/catch.hpp>
#include <chrono>
#include <thread>

#include "tests/worker/train/training_case.h"

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

DueCopy CopyAt(uint64_t step) {
  DueCopy copy;
  copy.facts.step = step;
  copy.files = Files();
  return copy;
}

DueCopy BestAt(uint64_t step) {
  DueCopy copy = CopyAt(step);
  copy.standing = {.metric = 0.5, .best = true};
  return copy;
}

TEST_CASE("CheckpointWriter: training goes on while a checkpoint is delivered") {
  const auto sink = std::make_shared<GatedSink>();
  CheckpointWriter writer("job");
  writer.Begin(sink);
  writer.Keep(CopyAt(10));
  REQUIRE(sink->WaitUntilBegun(1));
  REQUIRE(writer.WaitForRoom({}).ok());  // the delivery is still on its way
  writer.Keep(CopyAt(20));
  REQUIRE_FALSE(writer.HasRoom());
  sink->Open(2);
  const auto sha = writer.Finish({});
  REQUIRE(sha.ok());
  REQUIRE(*sha == Seal({.step = 20}, Files()).manifest_sha256);
  REQUIRE(sink->begun() == std::vector<uint64_t>{10, 20});
  REQUIRE(writer.HasRoom());
  REQUIRE(writer.Covers(20, true));
  REQUIRE_FALSE(writer.Covers(30, false));
}

TEST_CASE("CheckpointWriter: without checkpoints there is nothing to wait for") {
  CheckpointWriter writer("job");
  writer.Begin(std::make_shared<GatedSink>());
  const auto sha = writer.Finish({});
  REQUIRE(sha.ok());
  REQUIRE(sha->empty());
}

TEST_CASE("CheckpointWriter: a stop ends a wait, and the delivery goes on") {
  const auto sink = std::make_shared<GatedSink>();
  CheckpointWriter writer("job");
  writer.Begin(sink);
  writer.Keep(CopyAt(10));
  writer.Keep(CopyAt(20));
  REQUIRE(sink->WaitUntilBegun(1));
  std::stop_source stop;
  Status room;
  {
    const std::jthread waiter([&] { room = writer.WaitForRoom(stop.get_token()); });
    stop.request_stop();
  }
  REQUIRE(room.code() == absl::StatusCode::kCancelled);
  REQUIRE(writer.Finish(stop.get_token()).status().code() == absl::StatusCode::kCancelled);
  sink->Open(2);
  REQUIRE(writer.Finish({}).ok());
  REQUIRE(sink->begun() == std::vector<uint64_t>{10, 20});
}

TEST_CASE("CheckpointWriter: who is not the first keeps the newest two, and delivers them later") {
  const auto sink = std::make_shared<GatedSink>();
  CheckpointWriter writer("job");
  writer.Begin(nullptr);
  for (const uint64_t step : {10U, 20U, 30U}) {
    REQUIRE(writer.WaitForRoom({}).ok());  // it never waits
    writer.Keep(CopyAt(step));
  }
  REQUIRE(writer.Finish({}).value().empty());
  REQUIRE_FALSE(writer.Covers(10, false));
  REQUIRE(writer.Covers(20, false));
  sink->Open(2);
  writer.Begin(sink);
  REQUIRE(writer.Finish({}).value() == Seal({.step = 30}, Files()).manifest_sha256);
  REQUIRE(sink->begun() == std::vector<uint64_t>{20, 30});
}

TEST_CASE("CheckpointWriter: what is durable needs no copy any more") {
  const auto sink = std::make_shared<GatedSink>();
  CheckpointWriter writer("job");
  writer.Begin(nullptr);
  writer.Keep(CopyAt(10));
  writer.Keep(CopyAt(20));
  writer.Forget(10);
  REQUIRE(writer.HasRoom());
  REQUIRE(writer.Covers(10, false));  // durable, so that no second one is made
  DueCopy last = CopyAt(30);
  last.last = true;
  writer.Keep(std::move(last));
  writer.Forget(30);
  sink->Open(2);
  writer.Begin(sink);
  // The last one is delivered whoever else did: its manifest is told.
  REQUIRE(writer.Finish({}).value() == Seal({.step = 30}, Files()).manifest_sha256);
  REQUIRE(sink->begun() == std::vector<uint64_t>{30});
  writer.Rewind();
  REQUIRE_FALSE(writer.Covers(10, false));
  REQUIRE_FALSE(writer.Covers(30, true));
}

TEST_CASE("CheckpointWriter: a delivery that fails is given up, unless the run depends on it") {
  const auto broken = std::make_shared<BrokenSink>();
  const auto sink = std::make_shared<GatedSink>();
  CheckpointWriter writer("job");
  writer.Begin(broken);
  writer.Keep(CopyAt(10));
  REQUIRE(writer.Finish({}).value().empty());
  REQUIRE_FALSE(writer.Covers(10, false));
  writer.Keep(BestAt(20));
  const Status failed = writer.Finish({}).status();
  REQUIRE(failed.code() == absl::StatusCode::kResourceExhausted);
  REQUIRE(Message(failed).find("the checkpoint of step 20: disk full") != std::string::npos);
  REQUIRE(writer.WaitForRoom({}) == failed);
  sink->Open(1);
  writer.Begin(sink);  // the next run tries again
  REQUIRE(writer.Finish({}).value() == Seal({.step = 20}, Files()).manifest_sha256);
}

TEST_CASE("CheckpointWriter: a delivery in hand goes on when another member is the first") {
  const auto sink = std::make_shared<GatedSink>();
  CheckpointWriter writer("job");
  writer.Begin(sink);
  writer.Keep(CopyAt(10));
  writer.Keep(CopyAt(20));
  REQUIRE(sink->WaitUntilBegun(1));
  writer.Begin(nullptr);
  writer.Forget(10);  // not what is being read
  writer.Keep(CopyAt(30));
  REQUIRE(writer.Covers(10, false));
  REQUIRE_FALSE(writer.Covers(20, false));
  sink->Open(1);
  while (!writer.HasRoom()) std::this_thread::yield();
  REQUIRE(sink->begun() == std::vector<uint64_t>{10});
}

TEST_CASE("CheckpointWriter: its end cancels a delivery") {
  const auto sink = std::make_shared<GatedSink>();
  {
    CheckpointWriter writer("job");
    writer.Begin(sink);
    writer.Keep(CopyAt(10));
    REQUIRE(sink->WaitUntilBegun(1));
  }
  REQUIRE(sink->begun() == std::vector<uint64_t>{10});
}

}  // namespace
}  // namespace ringmaster::worker
