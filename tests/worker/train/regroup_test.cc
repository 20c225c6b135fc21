// Runs that end in the middle of a step, and what the next generation makes of it: the bytes of an
// undisturbed run, whatever was kept, dropped, copied or adopted.
#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <functional>
#include <optional>
#include <thread>

#include "tests/support/model_option.h"
#include "tests/worker/train/regroup_case.h"
#include "worker/state/checkpoint.h"

namespace ringmaster::worker {
namespace {

// Of SmallSpec: batches of 20, 20 and 2 samples for 4 shards, twice.
constexpr uint64_t kShards = 2 * (4 + 4 + 2);

std::vector<uint32_t> FirstShards(size_t count) {
  return {kAllShards.begin(), kAllShards.begin() + static_cast<ptrdiff_t>(count)};
}

// Runs one trainer alone until a stop in the shard that is the `shards`-th to begin.
RunResult Interrupted(Trainer* trainer, Interrupt* interrupt, size_t shards,
                      const std::shared_ptr<CheckpointSink>& sink = nullptr) {
  std::stop_source stop;
  interrupt->Arm(shards, [stop]() mutable { stop.request_stop(); });
  Generation generation;
  generation.ring = {{.trainer = trainer, .shards = kAllShards, .stop = stop.get_token()}};
  generation.sink = sink;
  return RunGeneration(generation)[0];
}

RunResult Continue(Trainer* trainer, const std::shared_ptr<CheckpointSink>& sink,
                   ProgressList* observer = nullptr) {
  Generation generation{.counter = 2};
  generation.ring = {{.trainer = trainer, .shards = kAllShards, .observer = observer}};
  generation.sink = sink;
  return RunGeneration(generation)[0];
}

// Every checkpoint is byte for byte the reference's of that step, with the same standing.
void RequireSame(const std::vector<Checkpoint>& found, const std::vector<Checkpoint>& reference) {
  for (const Checkpoint& checkpoint : found) {
    const auto expected = std::ranges::find(reference, checkpoint.step, &Checkpoint::step);
    REQUIRE(expected != reference.end());
    REQUIRE(checkpoint.manifest_sha256 == expected->manifest_sha256);
    REQUIRE(checkpoint.standing == expected->standing);
    for (size_t i = 0; i < checkpoint.files.size(); ++i) {
      REQUIRE(checkpoint.files[i].name == expected->files[i].name);
      REQUIRE(checkpoint.files[i].bytes == expected->files[i].bytes);
    }
  }
}

TEST_CASE("Regroup: a step that was interrupted after any number of shards is only completed") {
  Interrupt interrupt;
  FakeCase job(interrupt.Hooks());
  const auto reference = job.Run(kAlone);
  const auto trainer = job.Prepare();
  REQUIRE(trainer.ok());
  // Of step 0, 1 and 2, which is small.
  const size_t shards = GENERATE(range(1, 11));
  const RunResult stopped = Interrupted(trainer->get(), &interrupt, shards);
  const size_t step = (shards - 1) / 4;
  REQUIRE(stopped.end == RunEnd::kStopped);
  REQUIRE(stopped.applied == step);
  REQUIRE(stopped.folded.size() == shards - 4 * step);
  const auto sink = std::make_shared<MemorySink>();
  ProgressList progress;
  const RunResult rest = Continue(trainer->get(), sink, &progress);
  REQUIRE(rest.end == RunEnd::kFinished);
  REQUIRE(rest.digest == reference[0].run.digest);
  REQUIRE(rest.manifest_sha256 == LastManifest(reference));
  REQUIRE(progress.all.back().shards_computed == kShards);
  REQUIRE(progress.all.back().shards_dropped == 0);
  REQUIRE(progress.all.back().train == reference[0].progress.back().train);
}

TEST_CASE("Regroup: a step that is interrupted again and again loses nothing") {
  Interrupt interrupt;
  FakeCase job(interrupt.Hooks());
  const auto reference = job.Run(kAlone);
  const auto trainer = job.Prepare();
  REQUIRE(trainer.ok());
  for (size_t i = 0; i < kShards; ++i) {
    const RunResult stopped = Interrupted(trainer->get(), &interrupt, 1);
    REQUIRE(stopped.end == RunEnd::kStopped);
  }
  const auto sink = std::make_shared<MemorySink>();
  ProgressList progress;
  const RunResult rest = Continue(trainer->get(), sink, &progress);
  REQUIRE(rest.manifest_sha256 == LastManifest(reference));
  REQUIRE(progress.all.back().shards_computed == kShards);
  REQUIRE(progress.all.back().shards_dropped == 0);
}

TEST_CASE("Regroup: several cores finish what they compute, and it counts") {
  Interrupt interrupt;
  FakeCase job(interrupt.Hooks());
  const auto reference = job.Run(kAlone);
  const auto trainer = job.Prepare(3);
  REQUIRE(trainer.ok());
  const size_t shards = GENERATE(range(1, 9));
  const RunResult stopped = Interrupted(trainer->get(), &interrupt, shards);
  REQUIRE(stopped.end == RunEnd::kStopped);
  REQUIRE_FALSE(stopped.folded.empty());
  const auto sink = std::make_shared<MemorySink>();
  ProgressList progress;
  const RunResult rest = Continue(trainer->get(), sink, &progress);
  REQUIRE(rest.manifest_sha256 == LastManifest(reference));
  REQUIRE(progress.all.back().shards_computed == kShards);
  REQUIRE(progress.all.back().shards_dropped == 0);
}

TEST_CASE("Regroup: one shard in all") {
  v1::JobSpec spec = SmallSpec();
  spec.set_shards(1);
  Interrupt interrupt;
  FakeCase job(interrupt.Hooks(), spec);
  const auto reference = job.Run({{1, {0}}});
  const auto trainer = job.Prepare();
  REQUIRE(trainer.ok());
  std::stop_source stop;
  interrupt.Arm(3, [stop]() mutable { stop.request_stop(); });
  Generation generation;
  generation.ring = {{.trainer = trainer->get(), .shards = {0}, .stop = stop.get_token()}};
  const RunResult stopped = RunGeneration(generation)[0];
  REQUIRE(stopped.folded == std::vector<uint32_t>{0});
  REQUIRE(stopped.applied == 2);
  generation.ring[0].stop = {};
  generation.sink = std::make_shared<MemorySink>();
  REQUIRE(RunGeneration(generation)[0].manifest_sha256 == LastManifest(reference));
}

TEST_CASE("Regroup: batch statistics of kept shards are kept") {
  v1::JobSpec spec = SmallSpec();
  spec.mutable_model()->Clear();
  spec.mutable_model()->set_name("alexnet");
  testing::SetOption("batch_norm", true, spec.mutable_model());
  spec.clear_epochs();
  spec.set_steps(1);
  Interrupt interrupt;
  FakeCase job(interrupt.Hooks(), spec);
  const auto reference = job.Run(kAlone);
  const auto trainer = job.Prepare();
  REQUIRE(trainer.ok());
  REQUIRE(Interrupted(trainer->get(), &interrupt, 2).folded == FirstShards(2));
  const auto sink = std::make_shared<MemorySink>();
  REQUIRE(Continue(trainer->get(), sink).manifest_sha256 == LastManifest(reference));
}

TEST_CASE("Regroup: another world keeps what fits and drops the rest") {
  Interrupt interrupt;
  FakeCase job(interrupt.Hooks());
  const auto reference = job.Run(kAlone);
  const auto first = job.Prepare();
  const auto second = job.Prepare();
  REQUIRE(first.ok());
  REQUIRE(second.ok());
  const size_t folded = GENERATE(1U, 2U, 3U, 4U);
  const size_t assigned = GENERATE(0U, 1U, 2U, 3U, 4U);
  const RunResult stopped = Interrupted(first->get(), &interrupt, 4 + folded);
  REQUIRE(stopped.applied == 1);
  REQUIRE(stopped.folded == FirstShards(folded));
  const auto copy = CopyOf(**first, 1);
  REQUIRE(copy.ok());
  REQUIRE(AdoptCopy(*copy, stopped.digest, second->get()).ok());
  REQUIRE((*second)->applied() == 1);
  ProgressList progress;
  Generation generation{.counter = 2};
  generation.ring = {
      {.trainer = first->get(), .shards = FirstShards(assigned), .observer = &progress},
      {.trainer = second->get(),
       .shards = {kAllShards.begin() + static_cast<ptrdiff_t>(assigned), kAllShards.end()}}};
  const auto sink = std::make_shared<MemorySink>();
  generation.sink = sink;
  const auto results = RunGeneration(generation);
  for (const RunResult& result : results) {
    INFO(result.reason);
    REQUIRE(result.end == RunEnd::kFinished);
    REQUIRE(result.digest == reference[0].run.digest);
  }
  REQUIRE(results[0].manifest_sha256 == LastManifest(reference));
  RequireSame(sink->checkpoints(), reference[0].checkpoints);
  const bool kept = folded <= assigned;
  // Steps 1, 3 and 4 are whole; 2 and 5 have samples in shards 1 and 3 alone.
  const size_t small = assigned < 2 ? 0 : assigned < 4 ? 1 : 2;
  const size_t own = 3 * assigned + 2 * small;
  REQUIRE(progress.all.back().shards_computed == 4 + (kept ? 0 : folded) + own);
  REQUIRE(progress.all.back().shards_dropped == (kept ? 0 : folded));
}

TEST_CASE("Regroup: when a neighbour is lost, what was folded is kept") {
  Interrupt interrupt;
  FakeCase job(interrupt.Hooks());
  const auto reference = job.Run(kAlone);
  const auto trainer = job.Prepare();
  REQUIRE(trainer.ok());
  ring::MemoryRing links(2);
  // The other member never was there, and is lost while this one computes its second shard.
  interrupt.Arm(2, [&links] { links.Lose(1); });
  const Assignment assignment{.position = {.rank = 0, .size = 2}, .shards = {1, 2, 3}};
  const RunResult lost = (*trainer)->Run(assignment, {.link = links.link(0)}, {});
  REQUIRE(lost.end == RunEnd::kPeerLost);
  REQUIRE(lost.link_error == absl::StatusCode::kUnavailable);
  REQUIRE(lost.folded.size() >= 2);
  const auto sink = std::make_shared<MemorySink>();
  ProgressList progress;
  REQUIRE(Continue(trainer->get(), sink, &progress).manifest_sha256 == LastManifest(reference));
  REQUIRE(progress.all.back().shards_computed == kShards);
}

TEST_CASE("Regroup: a kernel that fails on its way leaves nothing behind") {
  std::atomic<int> calls = 0;
  FakeHooks hooks;
  hooks.before_shard = [&](const ShardInput& input) {
    const bool fails = input.step == 1 && ++calls == 3;
    return fails ? Internal("kernel broke") : absl::OkStatus();
  };
  FakeCase job(hooks);
  const auto trainer = job.Prepare();
  REQUIRE(trainer.ok());
  const RunResult failed = Continue(trainer->get(), nullptr);
  REQUIRE(failed.end == RunEnd::kFailed);
  REQUIRE(failed.applied == 1);
  REQUIRE(failed.folded.empty());
  const auto sink = std::make_shared<MemorySink>();
  REQUIRE(Continue(trainer->get(), sink).manifest_sha256 == LastManifest(FakeCase().Run(kAlone)));
}

TEST_CASE("Regroup: with float32 sums nothing is kept") {
  v1::JobSpec spec = SmallSpec();
  spec.set_reduction(v1::REDUCTION_FLOAT32);
  Interrupt interrupt;
  FakeCase job(interrupt.Hooks(), spec);
  const auto trainer = job.Prepare();
  REQUIRE(trainer.ok());
  const RunResult stopped = Interrupted(trainer->get(), &interrupt, 6);
  REQUIRE(stopped.applied == 1);
  REQUIRE(stopped.folded.empty());
  ProgressList progress;
  const RunResult rest = Continue(trainer->get(), nullptr, &progress);
  REQUIRE(rest.end == RunEnd::kFinished);
  REQUIRE(progress.all.back().shards_computed == kShards + 2);
  REQUIRE(progress.all.back().shards_dropped == 2);
}

TEST_CASE("Regroup: a run ends at the same boundary for all, and does what is due there") {
  FakeCase job;
  const auto reference = job.Run(kAlone);
  const auto first = job.Prepare();
  const auto second = job.Prepare();
  REQUIRE(first.ok());
  REQUIRE(second.ok());
  const size_t leaver = GENERATE(0U, 1U);  // who is told; the other one is not
  const uint64_t step = GENERATE(2U, 3U);
  std::stop_source boundary;
  StopAt observer(step - 1, &boundary);  // the step after it is the first whose record says so
  Generation generation;
  generation.ring = {{.trainer = first->get(), .shards = {0, 1}},
                     {.trainer = second->get(), .shards = {2, 3}}};
  generation.ring[leaver].at_boundary = boundary.get_token();
  generation.ring[leaver].observer = &observer;
  const auto sink = std::make_shared<MemorySink>();
  generation.sink = sink;
  const auto left = RunGeneration(generation);
  for (const RunResult& result : left) {
    REQUIRE(result.end == RunEnd::kStopped);
    REQUIRE(result.applied == step);
    REQUIRE(result.evaluated);
    REQUIRE(result.folded.empty());  // nobody began another step
  }
  for (const auto* trainer : {&*first, &*second}) REQUIRE((*trainer)->applied() == step);
  generation.counter = 2;
  generation.evaluated = true;
  generation.ring[leaver].at_boundary = {};
  generation.ring[leaver].observer = nullptr;
  for (const RunResult& result : RunGeneration(generation)) {
    REQUIRE(result.end == RunEnd::kFinished);
    REQUIRE(result.digest == reference[0].run.digest);
  }
  RequireSame(sink->checkpoints(), reference[0].checkpoints);
  REQUIRE(sink->checkpoints().size() == 3);  // none twice
}

TEST_CASE("Regroup: evaluations that every holder knows are not made again, others are") {
  FakeCase job;
  const auto reference = job.Run(kAlone);
  const auto trainer = job.Prepare();
  REQUIRE(trainer.ok());
  std::stop_source boundary;
  StopAt observer(3, &boundary);
  Generation generation;
  generation.ring = {{.trainer = trainer->get(),
                      .shards = kAllShards,
                      .at_boundary = boundary.get_token(),
                      .observer = &observer}};
  const RunResult left = RunGeneration(generation)[0];
  REQUIRE(left.applied == 3);
  REQUIRE(left.evaluated);
  const bool known = GENERATE(false, true);
  ProgressList progress;
  generation.ring[0].at_boundary = {};
  generation.ring[0].observer = &progress;
  generation.evaluated = known;
  REQUIRE(RunGeneration(generation)[0].end == RunEnd::kFinished);
  REQUIRE(progress.all.size() == (known ? 4 : 5));  // three steps, one or two evaluations
  REQUIRE(progress.all.front().test == reference[0].progress[3].test);
  REQUIRE(progress.all.back().test == reference[0].progress.back().test);
}

TEST_CASE(
    "Regroup: an evaluation that one member cannot end has no result there, and is made again") {
  FakeCase job;
  const auto reference = job.Run(kAlone);
  const auto first = job.Prepare();
  const auto second = job.Prepare();
  REQUIRE(first.ok());
  REQUIRE(second.ok());
  Generation generation;
  generation.ring = {{.trainer = first->get(), .shards = {0, 1}},
                     {.trainer = second->get(), .shards = {2, 3}}};
  ring::MemoryRing links(2);
  links.Tamper(0, [&](ring::Frame& frame) {
    if (frame.header.purpose == ring::Purpose::kEvaluate) frame.header.step += 1;
  });
  const std::vector<RunResult> cut = RunGeneration(generation, &links);
  REQUIRE(cut[0].applied == 3);  // it may have had the other's part before the ring ended
  REQUIRE(cut[1].applied == 3);
  REQUIRE_FALSE(cut[1].evaluated);
  const auto copy = CopyOf(**second, 3);
  REQUIRE(copy.ok());
  REQUIRE_FALSE(copy->its.test.has_value());
  generation.sink = std::make_shared<MemorySink>();
  for (const RunResult& result : RunGeneration(generation)) {
    REQUIRE(result.end == RunEnd::kFinished);
    REQUIRE(result.digest == reference[0].run.digest);
  }
}

// Keeps the stop from the run for a while: its callback comes later than the run's, and so is
// called first. Step thread.
class LateStop : public Observer {
 public:
  void OnProgress(const Progress& progress) override {
    if (progress.applied != 3) return;
    ++reports_;
    if (!delay_) delay_.emplace(stop_.get_token(), [this] { Delay(); });
  }
  void Stop() { stop_.request_stop(); }
  std::stop_token token() { return stop_.get_token(); }
  [[nodiscard]] int reports() const { return reports_; }

 private:
  // Until the run wrongly goes on, or long enough that it would have.
  void Delay() {
    for (int i = 0; i < 20'000 && reports_ < 2; ++i) std::this_thread::yield();
  }

  std::stop_source stop_;
  std::atomic<int> reports_{0};  // of S(3): the step, then its evaluation
  std::optional<std::stop_callback<std::function<void()>>> delay_;
};

TEST_CASE("Regroup: a stop in the middle of an evaluation leaves no half result") {
  LateStop late;
  std::atomic<int> shards = 0;
  std::jthread stopper;
  FakeHooks hooks;
  hooks.before_evaluation = [&](const ShardInput&) {
    if (++shards != 2) return;
    stopper = std::jthread([&] { late.Stop(); });
    while (!late.token().stop_requested()) std::this_thread::yield();
  };
  FakeCase job(hooks);
  const auto trainer = job.Prepare();
  REQUIRE(trainer.ok());
  Generation generation;
  generation.ring = {
      {.trainer = trainer->get(), .shards = kAllShards, .stop = late.token(), .observer = &late}};
  const RunResult stopped = RunGeneration(generation)[0];
  REQUIRE(stopped.end == RunEnd::kStopped);
  REQUIRE(stopped.applied == 3);
  REQUIRE_FALSE(stopped.evaluated);
  REQUIRE(late.reports() == 1);
  ProgressList progress;
  REQUIRE(Continue(trainer->get(), nullptr, &progress).end == RunEnd::kFinished);
  REQUIRE(progress.all.front().test == FakeCase().Run(kAlone)[0].progress[3].test);
}

// Holds every delivery until its end is asked for. Thread-safe.
class StuckSink : public CheckpointSink {
 public:
  Status Deliver(const Checkpoint&, const std::stop_token& stop) override {
    Mutex mu;
    Condition changed;
    const std::stop_callback wake(stop, [&] {
      MutexLock lock(mu);
      changed.NotifyAll();
    });
    MutexLock lock(mu);
    (void)changed.WaitUntil(mu, std::chrono::steady_clock::now() + std::chrono::minutes(1),
                            [&] { return stop.stop_requested(); });
    return absl::CancelledError("stopped");
  }
};

// A coordinator that forms the ring anew, and stores nothing meanwhile. Thread-safe.
class FencingSink : public CheckpointSink {
 public:
  explicit FencingSink(std::stop_source* fence) : fence_(fence) {}
  Status Deliver(const Checkpoint& checkpoint, const std::stop_token&) override {
    const bool first = checkpoint.step == 6 && fence_->request_stop();
    return first ? absl::UnavailableError("the ring is being formed") : absl::OkStatus();
  }

 private:
  std::stop_source* const fence_;
};

TEST_CASE("Regroup: a fence at a boundary does not wait for the last checkpoint") {
  FakeCase job;
  const auto reference = job.Run(kAlone);
  const auto trainer = job.Prepare();
  REQUIRE(trainer.ok());
  std::stop_source fence;
  Generation generation;
  generation.ring = {
      {.trainer = trainer->get(), .shards = kAllShards, .at_boundary = fence.get_token()}};
  generation.sink = std::make_shared<FencingSink>(&fence);
  const RunResult left = RunGeneration(generation)[0];
  REQUIRE(left.end == RunEnd::kStopped);
  REQUIRE(left.applied == 6);
  REQUIRE(left.evaluated);
  const RunResult ended = Continue(trainer->get(), std::make_shared<MemorySink>());
  REQUIRE(ended.end == RunEnd::kFinished);
  REQUIRE(ended.manifest_sha256 == LastManifest(reference));
}

TEST_CASE("Regroup: the second member delivers what the first one could not") {
  FakeCase job;
  const auto reference = job.Run(kAlone);
  auto first = job.Prepare();
  const auto second = job.Prepare();
  REQUIRE(first.ok());
  REQUIRE(second.ok());
  std::stop_source stop;
  StopAt observer(5, &stop);
  Generation generation;
  generation.ring = {{.trainer = first->get(), .shards = {0, 1}},
                     {.trainer = second->get(),
                      .shards = {2, 3},
                      .stop = stop.get_token(),
                      .observer = &observer}};
  generation.sink = std::make_shared<StuckSink>();
  const auto results = RunGeneration(generation);
  REQUIRE(results[1].end == RunEnd::kStopped);
  REQUIRE(results[1].applied == 5);
  *first = nullptr;  // with its copies
  const auto sink = std::make_shared<MemorySink>();
  REQUIRE(Continue(second->get(), sink).manifest_sha256 == LastManifest(reference));
  REQUIRE(sink->checkpoints().size() == 3);
  RequireSame(sink->checkpoints(), reference[0].checkpoints);
}

TEST_CASE("Regroup: a copy that is known to be durable is not delivered again") {
  FakeCase job;
  const auto reference = job.Run(kAlone);
  const auto first = job.Prepare();
  const auto second = job.Prepare();
  REQUIRE(first.ok());
  REQUIRE(second.ok());
  std::stop_source stop;
  StopAt observer(5, &stop);
  Generation generation;
  generation.ring = {{.trainer = first->get(), .shards = {0, 1}, .stop = stop.get_token()},
                     {.trainer = second->get(), .shards = {2, 3}, .observer = &observer}};
  const auto sink = std::make_shared<MemorySink>();
  generation.sink = sink;
  REQUIRE(RunGeneration(generation)[1].applied == 5);
  (*second)->ForgetCopies(2);
  const auto later = std::make_shared<MemorySink>();
  REQUIRE(Continue(second->get(), later).manifest_sha256 == LastManifest(reference));
  REQUIRE(later->checkpoints().size() == 2);  // 4 and 6
  REQUIRE(later->checkpoints()[0].step == 4);
}

TEST_CASE("Regroup: whoever is the first at the end makes the last checkpoint from its state") {
  FakeCase job;
  const auto reference = job.Run(kAlone);
  std::vector<std::unique_ptr<Trainer>> trainers;
  Generation generation;
  for (uint32_t shard : {0U, 1U, 2U}) {
    auto trainer = job.Prepare();
    REQUIRE(trainer.ok());
    trainers.push_back(*std::move(trainer));
    generation.ring.push_back({.trainer = trainers.back().get(), .shards = {shard}});
  }
  generation.ring[2].shards.push_back(3);
  generation.sink = std::make_shared<MemorySink>();
  for (const RunResult& result : RunGeneration(generation)) {
    REQUIRE(result.end == RunEnd::kFinished);
    REQUIRE(result.evaluated);
  }
  for (const auto& trainer : trainers) {
    trainer->ForgetCopies(kSteps);
    const auto sink = std::make_shared<MemorySink>();
    Generation again{.counter = 2};
    again.ring = {{.trainer = trainer.get(), .shards = kAllShards}};
    again.evaluated = true;
    again.sink = sink;
    const RunResult result = RunGeneration(again)[0];
    REQUIRE(result.end == RunEnd::kFinished);
    REQUIRE(result.manifest_sha256 == LastManifest(reference));
    RequireSame(sink->checkpoints(), reference[0].checkpoints);
  }
}

TEST_CASE("Regroup: checkpoints by time are the first member's alone") {
  v1::JobSpec spec = SmallSpec();
  spec.mutable_checkpoint()->set_every_steps(0);
  FakeCase rare({}, spec);
  spec.mutable_checkpoint()->set_every_seconds(1e-9);
  FakeCase often({}, spec);
  const auto reference = FakeCase().Run(kAlone);
  const auto last_only = rare.Run({{1, {0, 1}}, {1, {2, 3}}});
  const auto all = often.Run({{1, {0, 1}}, {1, {2, 3}}});
  REQUIRE(last_only[0].checkpoints.size() == 1);
  REQUIRE(all[0].checkpoints.size() >= 2);
  REQUIRE(all[0].checkpoints.front().step == 1);
  REQUIRE(LastManifest(all) == LastManifest(reference));
  REQUIRE(all[1].checkpoints.empty());
}

}  // namespace
}  // namespace ringmaster::worker
