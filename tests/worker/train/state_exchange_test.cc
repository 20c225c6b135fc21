// The state as a copy for peers, and its replacement by a copy or a checkpoint.
#include "worker/train/state_exchange.h"

#include <malloc.h>

#include <array>
#include <catch2/catch.hpp>
#include <map>
#include <thread>

#include "tests/support/model_option.h"
#include "tests/worker/train/regroup_case.h"

namespace ringmaster::worker {
namespace {

v1::JobSpec EveryStep(const std::string& best = "") {
  v1::JobSpec spec = SmallSpec();
  spec.mutable_checkpoint()->set_every_steps(1);
  spec.mutable_checkpoint()->set_best(best);
  return spec;
}

RunResult RunAlone(Trainer* trainer, const std::shared_ptr<CheckpointSink>& sink = nullptr,
                   Observer* observer = nullptr, const std::stop_token& at_boundary = {}) {
  Generation generation;
  generation.ring = {
      {.trainer = trainer, .shards = kAllShards, .at_boundary = at_boundary, .observer = observer}};
  generation.sink = sink;
  return RunGeneration(generation)[0];
}

// Ends a run at S(applied).
class EndAt : public Observer {
 public:
  explicit EndAt(uint64_t applied) : applied_(applied) {}
  void OnProgress(const Progress& progress) override {
    if (progress.applied == applied_) stop_.request_stop();
  }
  std::stop_token token() { return stop_.get_token(); }

 private:
  const uint64_t applied_;
  std::stop_source stop_;
};

RunResult RunTo(uint64_t applied, Trainer* trainer) {
  EndAt end(applied);
  return RunAlone(trainer, nullptr, &end, end.token());
}

const Checkpoint& At(const std::vector<Checkpoint>& checkpoints, uint64_t step) {
  return *std::ranges::find(checkpoints, step, &Checkpoint::step);
}

// What a trainer offers that was restored from the checkpoint.
void RequireRow(const MemoryState& copy, const Checkpoint& checkpoint, FakeCase* job) {
  const auto restored = job->Prepare();
  REQUIRE(restored.ok());
  REQUIRE((*restored)->Restore(checkpoint).ok());
  const auto expected = CopyOf(**restored, checkpoint.step);
  REQUIRE(expected.ok());
  REQUIRE(copy.its.step == checkpoint.step);
  REQUIRE(copy.its.digest == (*restored)->digest());
  REQUIRE(copy.bytes == expected->bytes);
}

TEST_CASE("StateExchange: copies taken while training are whole states of the undisturbed run") {
  v1::JobSpec spec = EveryStep();
  spec.set_epochs(8);
  FakeCase job({}, spec);
  const auto reference = job.Run(kAlone);
  const auto trainer = job.Prepare(2);
  REQUIRE(trainer.ok());
  std::map<uint64_t, MemoryState> copies;
  std::vector<Status> refused;
  RunResult result;
  {
    std::atomic<bool> over = false;
    std::jthread copier([&] {
      while (!over) {
        // Small pieces: a step often ends between two of them.
        auto copy = CopyOf(**trainer, (*trainer)->pulse().applied, 1000);
        if (copy.ok())
          copies.emplace(copy->its.step, *std::move(copy));
        else
          refused.push_back(copy.status());
      }
    });
    const std::jthread another([&] {
      while (!over) (void)(*trainer)->Open((*trainer)->pulse().applied + 1);
    });
    result = RunAlone(trainer->get());
    over = true;
  }
  REQUIRE(result.end == RunEnd::kFinished);
  REQUIRE_FALSE(copies.empty());
  for (const Status& status : refused) {
    REQUIRE(status.code() == absl::StatusCode::kFailedPrecondition);
  }
  for (const auto& [step, copy] : copies) {
    if (step == 0) continue;
    RequireRow(copy, At(reference[0].checkpoints, step), &job);
    REQUIRE(copy.its.digest == reference[0].progress[step - 1 + (step - 1) / 3].digest);
  }
}

TEST_CASE("StateExchange: the state that is held is offered, until it goes on or is replaced") {
  FakeCase job({}, EveryStep());
  const auto reference = job.Run(kAlone);
  const auto trainer = job.Prepare();
  REQUIRE(trainer.ok());
  REQUIRE(RunTo(4, trainer->get()).applied == 4);
  REQUIRE((*trainer)->Open(5).status().code() == absl::StatusCode::kUnavailable);
  REQUIRE((*trainer)->Open(3).status().code() == absl::StatusCode::kFailedPrecondition);
  const auto copy = CopyOf(**trainer, 4);
  REQUIRE(copy.ok());
  RequireRow(*copy, At(reference[0].checkpoints, 4), &job);
  REQUIRE(copy->its.digest == (*trainer)->digest());
  REQUIRE(copy->its.test == reference[0].progress[3].test);

  const auto before = (*trainer)->Open(4);
  REQUIRE(before.ok());
  std::array<uint8_t, 8> bytes{};
  REQUIRE((*before)->Read(0, bytes).ok());
  std::string words;
  SECTION("goes on") {
    REQUIRE(RunTo(5, trainer->get()).applied == 5);
    words = "the state of step 4 is gone, this worker holds that of 5";
    const auto checkpoint = (*trainer)->MakeCheckpoint();
    REQUIRE(checkpoint.ok());
    REQUIRE(checkpoint->manifest_sha256 == At(reference[0].checkpoints, 5).manifest_sha256);
  }
  SECTION("is replaced by one of the same step, which lies elsewhere") {
    REQUIRE((*trainer)->Restore(At(reference[0].checkpoints, 4)).ok());
    words = "the state of step 4 was replaced while it was read";
  }
  const Status gone = (*before)->Read(0, bytes).status();
  REQUIRE(gone.code() == absl::StatusCode::kFailedPrecondition);
  REQUIRE(Message(gone) == words);
}

TEST_CASE(
    "StateExchange: who reads a state knows the evaluations that came after an older copy of it") {
  FakeCase job({}, EveryStep("test/loss"));
  const auto trainer = job.Prepare();
  const auto other = job.Prepare();
  REQUIRE(trainer.ok());
  REQUIRE(other.ok());
  REQUIRE(RunTo(3, trainer->get()).evaluated);
  const auto copy = CopyOf(**trainer, 3);
  REQUIRE(copy.ok());
  MemoryState ignorant = *copy;
  ignorant.its.test.reset();
  REQUIRE(AdoptCopy(ignorant, (*trainer)->digest(), other->get()).ok());
  REQUIRE_FALSE(CopyOf(**other, 3)->its.test.has_value());
  EndAt end(3);
  REQUIRE(RunAlone(other->get(), nullptr, &end, end.token()).evaluated);
  const auto after = CopyOf(**other, 3);
  REQUIRE(after.ok());
  REQUIRE(after->its.test == copy->its.test);
  REQUIRE(after->bytes == copy->bytes);
}

TEST_CASE("StateExchange: a fresh trainer that adopts a copy goes on as if it had been there") {
  FakeCase job({}, EveryStep("test/loss"));
  const auto reference = job.Run(kAlone);
  const auto holder = job.Prepare();
  const auto joiner = job.Prepare(2);
  REQUIRE(holder.ok());
  REQUIRE(joiner.ok());
  const uint64_t step = GENERATE(range(0, 7));
  if (step > 0) REQUIRE(RunTo(step, holder->get()).applied == step);
  const auto copy = CopyOf(**holder, step);
  REQUIRE(copy.ok());
  REQUIRE(AdoptCopy(*copy, (*holder)->digest(), joiner->get()).ok());
  REQUIRE((*joiner)->applied() == step);
  REQUIRE((*joiner)->digest() == (*holder)->digest());
  REQUIRE((*joiner)->pulse().applied == step);
  const auto sink = std::make_shared<MemorySink>();
  ProgressList progress;
  const RunResult result = RunAlone(joiner->get(), sink, &progress);
  INFO(result.reason);
  REQUIRE(result.end == RunEnd::kFinished);
  REQUIRE(result.manifest_sha256 == LastManifest(reference));
  for (const Checkpoint& checkpoint : sink->checkpoints()) {
    const Checkpoint& expected = At(reference[0].checkpoints, checkpoint.step);
    REQUIRE(checkpoint.manifest_sha256 == expected.manifest_sha256);
    REQUIRE(checkpoint.standing == expected.standing);
  }
  if (!progress.all.empty()) {
    REQUIRE(progress.all.back().test == reference[0].progress.back().test);
  }
}

TEST_CASE("StateExchange: a copy that is not whole changes nothing") {
  FakeCase job({}, EveryStep());
  const auto reference = job.Run(kAlone);
  const auto holder = job.Prepare();
  REQUIRE(holder.ok());
  REQUIRE(RunTo(4, holder->get()).applied == 4);
  const MemoryState good = *CopyOf(**holder, 4);
  const auto trainer = job.Prepare();
  REQUIRE(trainer.ok());
  REQUIRE(RunTo(2, trainer->get()).applied == 2);
  const Sha256Digest before = (*trainer)->digest();

  const auto refuse = [&](const MemoryState& copy, const Sha256Digest& digest) {
    const Status status = AdoptCopy(copy, digest, trainer->get());
    INFO(Message(status));
    REQUIRE(status.code() == absl::StatusCode::kDataLoss);
    REQUIRE((*trainer)->applied() == 2);
    REQUIRE((*trainer)->digest() == before);
  };
  refuse(good, before);
  MemoryState bad = good;
  bad.its.digest = before;
  refuse(bad, before);
  bad = good;
  bad.its.step = 5;
  refuse(bad, good.its.digest);
  for (const uint64_t bytes : {uint64_t{0}, good.its.bytes - 4, good.its.bytes + 4}) {
    bad = good;
    bad.its.bytes = bytes;
    bad.bytes.resize(bytes);
    refuse(bad, good.its.digest);
  }
  // A bit of a tensor, at any place.
  const size_t part = good.bytes.size() / 16;
  for (size_t at = part; at < good.bytes.size() - part; at += part) {
    bad = good;
    bad.bytes[at] ^= 1;
    refuse(bad, good.its.digest);
  }
  bad = good;
  bad.bytes.back() ^= 1;  // of what is no tensor
  refuse(bad, good.its.digest);
  const auto sink = std::make_shared<MemorySink>();
  REQUIRE(RunAlone(trainer->get(), sink).manifest_sha256 == LastManifest(reference));
}

TEST_CASE("StateExchange: a checkpoint sets the state back, or forth") {
  FakeCase job({}, EveryStep());
  const auto reference = job.Run(kAlone);
  const auto trainer = job.Prepare();
  REQUIRE(trainer.ok());
  const uint64_t from = GENERATE(0U, 1U, 3U, 6U);
  const uint64_t to = GENERATE(1U, 2U, 3U, 6U);
  const auto sink = std::make_shared<MemorySink>();
  if (from == kSteps) REQUIRE(RunAlone(trainer->get(), sink).end == RunEnd::kFinished);
  if (from > 0 && from < kSteps) REQUIRE(RunTo(from, trainer->get()).applied == from);
  const Status status = (*trainer)->Restore(At(reference[0].checkpoints, to));
  INFO(Message(status));
  REQUIRE(status.ok());
  REQUIRE((*trainer)->applied() == to);
  const auto copy = CopyOf(**trainer, to);
  REQUIRE(copy.ok());
  RequireRow(*copy, At(reference[0].checkpoints, to), &job);
  REQUIRE_FALSE(copy->its.test.has_value());
  const auto later = std::make_shared<MemorySink>();
  const RunResult result = RunAlone(trainer->get(), later);
  REQUIRE(result.end == RunEnd::kFinished);
  REQUIRE(result.evaluated);
  REQUIRE(result.manifest_sha256 == LastManifest(reference));
  // What was durable before may be lost: it is written again.
  REQUIRE(later->checkpoints().size() == kSteps - to + 1);
}

TEST_CASE("StateExchange: a checkpoint of another job is refused, the state stays") {
  FakeCase job({}, EveryStep());
  v1::JobSpec spec = EveryStep();
  spec.set_seed(2);
  FakeCase another({}, spec);
  const auto foreign = another.Run(kAlone);
  const auto reference = job.Run(kAlone);
  const auto trainer = job.Prepare();
  REQUIRE(trainer.ok());
  REQUIRE(RunTo(2, trainer->get()).applied == 2);
  REQUIRE((*trainer)->Restore(At(foreign[0].checkpoints, 3)).code() ==
          absl::StatusCode::kFailedPrecondition);
  Checkpoint broken = At(reference[0].checkpoints, 3);
  broken.files[0].bytes.back() ^= 1;
  REQUIRE((*trainer)->Restore(broken).code() == absl::StatusCode::kDataLoss);
  REQUIRE((*trainer)->applied() == 2);
  const auto sink = std::make_shared<MemorySink>();
  REQUIRE(RunAlone(trainer->get(), sink).manifest_sha256 == LastManifest(reference));
}

TEST_CASE("StateExchange: a new state drops what was folded for the former one") {
  Interrupt interrupt;
  FakeCase job(interrupt.Hooks(), EveryStep());
  const auto reference = job.Run(kAlone);
  const auto trainer = job.Prepare();
  REQUIRE(trainer.ok());
  std::stop_source stop;
  interrupt.Arm(6, [stop]() mutable { stop.request_stop(); });
  Generation generation;
  generation.ring = {{.trainer = trainer->get(), .shards = kAllShards, .stop = stop.get_token()}};
  const RunResult stopped = RunGeneration(generation)[0];
  REQUIRE(stopped.applied == 1);
  REQUIRE(stopped.folded.size() == 2);
  if (GENERATE(false, true)) {
    REQUIRE((*trainer)->Restore(At(reference[0].checkpoints, 1)).ok());
  } else {
    REQUIRE(AdoptCopy(*CopyOf(**trainer, 1), stopped.digest, trainer->get()).ok());
  }
  const auto sink = std::make_shared<MemorySink>();
  ProgressList progress;
  REQUIRE(RunAlone(trainer->get(), sink, &progress).manifest_sha256 == LastManifest(reference));
  REQUIRE(progress.all.back().shards_computed == 22);
  REQUIRE(progress.all.back().shards_dropped == 2);
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // whose heap is another one

int64_t HeapBytes() {
  const struct mallinfo2 info = mallinfo2();
  return static_cast<int64_t>(info.uordblks + info.hblkhd);
}

TEST_CASE("Memory plan: every copy of the state that may be there at once is counted") {
  const auto reduction = GENERATE(v1::REDUCTION_EXACT, v1::REDUCTION_FLOAT32);
  const std::string best = GENERATE("", "test/loss");
  v1::JobSpec spec = EveryStep(best);
  testing::SetHidden({512}, spec.mutable_model());
  spec.set_reduction(reduction);
  FakeHooks hooks;
  hooks.has_state = [](uint32_t) { return false; };
  hooks.has_master = [](uint32_t) { return false; };
  FakeCase job(hooks, spec);
  TrainerOptions options = SmallBuckets();
  options.checkpoint_copies = 2;
  const int64_t before = HeapBytes();
  auto built = BuildTrainingJob(JobId("job"), job.resolved, job.data.dataset(), &job.backend,
                                Cores(1), options);
  REQUIRE(built.ok());
  TrainingJob& training = **built;
  training.checkpoints.Begin(nullptr);
  const bool by_metric = !best.empty();
  for (uint64_t step = 1; step <= (by_metric ? 3U : 2U); ++step) {
    const Standing standing{.metric = {}, .best = by_metric && step < 3};
    DueCopy copy{.facts = {.step = step}, .standing = standing, .last = step == 3, .files = {}};
    copy.files = *CopyState(*training.state);
    training.checkpoints.Keep(std::move(copy));
  }
  const auto offered = OpenState(&training, 0, Follows::kNo);  // which is no copy
  REQUIRE(offered.ok());
  const auto restored = CopyState(*training.state);
  REQUIRE(restored.ok());
  const State taken_over(training.layout, static_cast<int>(training.spec().precision_bits()));
  // The backend's own copy of the weights is not the state's.
  const int64_t weights = static_cast<int64_t>(training.layout->blocks().arena_elements()) * 4;
  const int64_t allocated = HeapBytes() - before - weights;
  int64_t planned = 0;
  for (const auto* parts : {&training.planned.host.always, &training.planned.host.at_times}) {
    for (const WorkerMemory::Part& part : *parts) {
      const bool state = part.what.find("parameters") != std::string::npos ||
                         part.what.find("slots") != std::string::npos ||
                         part.what.find("statistics") != std::string::npos ||
                         part.what.find("sums") != std::string::npos ||
                         part.what.find("gradients") != std::string::npos ||
                         part.what.find("checkpoint") != std::string::npos ||
                         part.what.find("taken over") != std::string::npos ||
                         part.what.find("restored") != std::string::npos;
      if (state) planned += static_cast<int64_t>(part.bytes);
    }
  }
  INFO("planned " << planned << ", allocated " << allocated);
  REQUIRE(planned > 100'000'000);
  REQUIRE(std::abs(allocated - planned) < planned / 100);
}

#endif

}  // namespace
}  // namespace ringmaster::worker
