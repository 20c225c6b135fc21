#include "worker/state/checkpoint_writer.h"

#include <algorithm>
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
  CheckpointWriter writer("job", 2);
  writer.Begin(sink);
  writer.Keep(CopyAt(10));
  REQUIRE(sink->WaitUntilBegun(1));
  REQUIRE_FALSE(writer.MakeRoom(20, {}, false));  // the delivery is still on its way
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
  writer.Begin(sink);  // the coordinator does not know the last one: its store is an older copy
  REQUIRE_FALSE(writer.Covers(20, true));
  REQUIRE(writer.Covers(20, false));
}

TEST_CASE("CheckpointWriter: without checkpoints there is nothing to wait for") {
  CheckpointWriter writer("job", 2);
  writer.Begin(std::make_shared<GatedSink>());
  const auto sha = writer.Finish({});
  REQUIRE(sha.ok());
  REQUIRE(sha->empty());
}

TEST_CASE("CheckpointWriter: a stop ends the wait for the end, and the delivery goes on") {
  const auto sink = std::make_shared<GatedSink>();
  CheckpointWriter writer("job", 2);
  writer.Begin(sink);
  writer.Keep(CopyAt(10));
  writer.Keep(CopyAt(20));
  REQUIRE(sink->WaitUntilBegun(1));
  std::stop_source stop;
  Status finished;
  {
    const std::jthread waiter([&] { finished = writer.Finish(stop.get_token()).status(); });
    stop.request_stop();
  }
  REQUIRE(finished.code() == absl::StatusCode::kCancelled);
  sink->Open(2);
  REQUIRE(writer.Finish({}).ok());
  REQUIRE(sink->begun() == std::vector<uint64_t>{10, 20});
}

// Makes room for a copy as the step loop does, and keeps it; the step that is dropped for it.
uint64_t KeepDue(CheckpointWriter* writer, DueCopy copy) {
  const auto dropped = writer->MakeRoom(copy.facts.step, copy.standing, copy.last);
  if (!dropped) {
    writer->Keep(std::move(copy));
    return 0;
  }
  if (dropped->step != copy.facts.step) writer->Keep(std::move(copy));
  return dropped->step;
}

DueCopy LastAt(uint64_t step) {
  DueCopy copy = CopyAt(step);
  copy.last = true;
  return copy;
}

TEST_CASE("CheckpointWriter: who is not the first keeps the newest two, and delivers them later") {
  const auto sink = std::make_shared<GatedSink>();
  CheckpointWriter writer("job", 2);
  writer.Begin(nullptr);
  REQUIRE(KeepDue(&writer, CopyAt(10)) == 0);
  REQUIRE(KeepDue(&writer, CopyAt(20)) == 0);
  REQUIRE(KeepDue(&writer, CopyAt(30)) == 10);
  REQUIRE(writer.Finish({}).value().empty());
  REQUIRE_FALSE(writer.Covers(10, false));
  REQUIRE(writer.Covers(20, false));
  sink->Open(2);
  writer.Begin(sink);
  REQUIRE(writer.Finish({}).value() == Seal({.step = 30}, Files()).manifest_sha256);
  REQUIRE(sink->begun() == std::vector<uint64_t>{20, 30});
}

TEST_CASE("CheckpointWriter: a delivery that hangs costs the checkpoints between, and no wait") {
  const auto sink = std::make_shared<GatedSink>();
  CheckpointWriter writer("job", 2);
  writer.Begin(sink);
  REQUIRE(KeepDue(&writer, CopyAt(10)) == 0);
  REQUIRE(sink->WaitUntilBegun(1));
  REQUIRE(KeepDue(&writer, CopyAt(20)) == 0);
  REQUIRE(KeepDue(&writer, CopyAt(30)) == 20);
  REQUIRE(writer.MakeRoom(40, {}, false)->reason ==
          "checkpoints come due faster than they are stored");
  writer.Keep(CopyAt(40));
  REQUIRE(KeepDue(&writer, LastAt(50)) == 40);
  sink->Open(2);
  REQUIRE(writer.Finish({}).value() == Seal({.step = 50}, Files()).manifest_sha256);
  REQUIRE(sink->begun() == std::vector<uint64_t>{10, 50});
}

// A coordinator that is away for its first deliveries.
class AwaySink : public CheckpointSink {
 public:
  explicit AwaySink(size_t tries) : left_(tries) {}
  Status Deliver(const Checkpoint& checkpoint, const std::stop_token&) override {
    MutexLock lock(mu_);
    tried_.NotifyAll();
    if (left_ > 0) {
      --left_;
      return absl::UnavailableError("the coordinator is away");
    }
    delivered_.push_back(checkpoint.step);
    return absl::OkStatus();
  }
  bool WaitUntilLeft(size_t tries) {
    MutexLock lock(mu_);
    return tried_.WaitUntil(mu_, std::chrono::steady_clock::now() + kPatience,
                            [&]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return left_ <= tries; });
  }
  std::vector<uint64_t> delivered() {
    MutexLock lock(mu_);
    return delivered_;
  }

 private:
  Mutex mu_;
  Condition tried_;
  size_t left_ ABSL_GUARDED_BY(mu_);
  std::vector<uint64_t> delivered_ ABSL_GUARDED_BY(mu_);
};

TEST_CASE("CheckpointWriter: what may pass is tried again, until it is delivered") {
  const auto sink = std::make_shared<AwaySink>(2);
  CheckpointWriter writer("job", 2);
  writer.Begin(sink);
  writer.Keep(CopyAt(10));
  REQUIRE(writer.Finish({}).value() == Seal({.step = 10}, Files()).manifest_sha256);
  REQUIRE(sink->delivered() == std::vector<uint64_t>{10});
}

TEST_CASE("CheckpointWriter: between two tries the oldest makes room, and the reason says why") {
  const auto sink = std::make_shared<AwaySink>(1'000'000);
  CheckpointWriter writer("job", 2);
  writer.Begin(sink);
  REQUIRE(KeepDue(&writer, CopyAt(10)) == 0);
  REQUIRE(KeepDue(&writer, CopyAt(20)) == 0);
  REQUIRE(sink->WaitUntilLeft(999'998));  // the first try ended: the second one began
  const auto dropped = writer.MakeRoom(30, {}, false);
  REQUIRE(dropped.has_value());
  REQUIRE(dropped->reason == "the coordinator is away");
}

TEST_CASE("CheckpointWriter: the newest best one and the last one are never dropped") {
  const auto sink = std::make_shared<GatedSink>();
  CheckpointWriter writer("job", 2);
  writer.Begin(nullptr);
  REQUIRE(KeepDue(&writer, BestAt(10)) == 0);
  REQUIRE(KeepDue(&writer, CopyAt(20)) == 0);
  REQUIRE(KeepDue(&writer, CopyAt(30)) == 20);
  REQUIRE(KeepDue(&writer, BestAt(40)) == 10);  // which it takes the place of
  REQUIRE(KeepDue(&writer, BestAt(50)) == 30);
  REQUIRE(KeepDue(&writer, CopyAt(60)) == 40);
  REQUIRE(KeepDue(&writer, LastAt(70)) == 60);
  sink->Open(2);
  writer.Begin(sink);
  REQUIRE(writer.Finish({}).value() == Seal({.step = 70}, Files()).manifest_sha256);
  REQUIRE(sink->begun() == std::vector<uint64_t>{50, 70});
}

TEST_CASE("CheckpointWriter: where both copies must stay, the one that is due is not made") {
  const auto sink = std::make_shared<GatedSink>();
  CheckpointWriter writer("job", 2);
  writer.Begin(sink);
  REQUIRE(KeepDue(&writer, CopyAt(10)) == 0);
  REQUIRE(sink->WaitUntilBegun(1));
  REQUIRE(KeepDue(&writer, BestAt(20)) == 0);
  REQUIRE(KeepDue(&writer, CopyAt(30)) == 30);
  REQUIRE_FALSE(writer.Covers(30, false));
  REQUIRE(KeepDue(&writer, LastAt(40)) == 0);  // the one time that there are three
  sink->Open(3);
  REQUIRE(writer.Finish({}).value() == Seal({.step = 40}, Files()).manifest_sha256);
  REQUIRE(sink->begun() == std::vector<uint64_t>{10, 20, 40});
}

TEST_CASE("CheckpointWriter: what it takes is told, and hashed whoever delivers") {
  const auto sink = std::make_shared<GatedSink>();
  Mutex mu;
  std::vector<std::string> told;
  std::vector<uint64_t> held;
  const auto tell = [&](const HeldCopy& copy) {
    MutexLock lock(mu);
    told.push_back(std::to_string(copy.step) + " " + copy.manifest_sha256);
    held = copy.held;
  };
  const auto manifest = [](uint64_t step) { return Seal({.step = step}, Files()).manifest_sha256; };
  {
    CheckpointWriter writer("job", 2, tell);
    writer.Begin(nullptr);  // the second member
    for (const uint64_t step : {10U, 20U, 30U}) {
      REQUIRE(KeepDue(&writer, CopyAt(step)) == (step == 30 ? 10 : 0));
    }
    // A delivery that hangs holds up no hash.
    writer.Begin(sink);
    REQUIRE(sink->WaitUntilBegun(1));
    writer.Begin(nullptr);
    REQUIRE(KeepDue(&writer, CopyAt(40)) == 30);
    {
      MutexLock lock(mu);
      CHECK(held == std::vector<uint64_t>{20, 40});  // 20 is on its way
    }
    sink->Open(1);
  }
  MutexLock lock(mu);
  for (const uint64_t step : {10U, 20U, 30U}) {
    const auto taken = std::ranges::find(told, std::to_string(step) + " ");
    const auto hashed = std::ranges::find(told, std::to_string(step) + " " + manifest(step));
    CHECK(taken < hashed);
    CHECK(hashed != told.end());
  }
}

TEST_CASE("CheckpointWriter: what is durable needs no copy any more") {
  const auto sink = std::make_shared<GatedSink>();
  // Copy 10 may be in the middle of being hashed when it is known to be durable: it has gone when
  // copy 20 was hashed, which comes after it.
  Mutex mu;
  Condition changed;
  bool hashed = false;
  CheckpointWriter writer("job", 2, [&](const HeldCopy& copy) {
    MutexLock lock(mu);
    hashed = hashed || (copy.step == 20 && !copy.manifest_sha256.empty());
    changed.NotifyAll();
  });
  writer.Begin(nullptr);
  writer.Keep(CopyAt(10));
  writer.Keep(CopyAt(20));
  writer.Forget(10);
  {
    MutexLock lock(mu);
    REQUIRE(changed.WaitUntil(mu, std::chrono::steady_clock::now() + kPatience,
                              [&]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return hashed; }));
  }
  REQUIRE(writer.HasRoom());
  REQUIRE(writer.Covers(10, false));  // durable, so that no second one is made
  writer.Keep(LastAt(30));
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
  CheckpointWriter writer("job", 2);
  writer.Begin(broken);
  writer.Keep(CopyAt(10));
  REQUIRE(writer.Finish({}).value().empty());
  REQUIRE_FALSE(writer.Covers(10, false));
  writer.Keep(BestAt(20));
  const Status failed = writer.Finish({}).status();
  REQUIRE(failed.code() == absl::StatusCode::kResourceExhausted);
  REQUIRE(Message(failed).find("the checkpoint of step 20: disk full") != std::string::npos);
  REQUIRE(writer.status() == failed);
  sink->Open(1);
  writer.Begin(sink);  // the next run tries again
  REQUIRE(writer.Finish({}).value() == Seal({.step = 20}, Files()).manifest_sha256);
}

TEST_CASE("CheckpointWriter: a delivery in hand goes on when another member is the first") {
  const auto sink = std::make_shared<GatedSink>();
  CheckpointWriter writer("job", 2);
  writer.Begin(sink);
  writer.Keep(CopyAt(10));
  writer.Keep(CopyAt(20));
  REQUIRE(sink->WaitUntilBegun(1));
  writer.Begin(nullptr);
  writer.Forget(10);  // not what is being read
  REQUIRE(KeepDue(&writer, CopyAt(30)) == 20);
  REQUIRE(writer.Covers(10, false));
  REQUIRE_FALSE(writer.Covers(20, false));
  sink->Open(1);
  while (!writer.HasRoom()) std::this_thread::yield();
  REQUIRE(sink->begun() == std::vector<uint64_t>{10});
}

TEST_CASE("CheckpointWriter: its end cancels a delivery") {
  const auto sink = std::make_shared<GatedSink>();
  {
    CheckpointWriter writer("job", 2);
    writer.Begin(sink);
    writer.Keep(CopyAt(10));
    REQUIRE(sink->WaitUntilBegun(1));
  }
  REQUIRE(sink->begun() == std::vector<uint64_t>{10});
}

}  // namespace
}  // namespace ringmaster::worker
