// The state as a copy for peers, and its replacement by a copy or a checkpoint.
#include "worker/train/state_exchange.h"

#include <malloc.h>

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

// All but the manifest.
void RequireFiles(const StateCopy& copy, const Checkpoint& checkpoint) {
  REQUIRE(copy.step == checkpoint.step);
  REQUIRE(copy.files.size() + 1 == checkpoint.files.size());
  for (size_t i = 0; i < copy.files.size(); ++i) {
    REQUIRE(copy.files[i].name == checkpoint.files[i].name);
    REQUIRE(copy.files[i].bytes == checkpoint.files[i].bytes);
  }
}

TEST_CASE("StateExchange: copies taken while training are whole states of the undisturbed run") {
  v1::JobSpec spec = EveryStep();
  spec.set_epochs(8);
  FakeCase job({}, spec);
  const auto reference = job.Run(kAlone);
  const auto trainer = job.Prepare(2);
  REQUIRE(trainer.ok());
  std::map<uint64_t, std::shared_ptr<const StateCopy>> copies;
  std::vector<Status> refused;
  RunResult result;
  {
    std::atomic<bool> over = false;
    std::jthread copier([&] {
      while (!over) {
        auto copy = (*trainer)->Copy((*trainer)->pulse().applied);
        if (copy.ok())
          copies.emplace((*copy)->step, *std::move(copy));
        else
          refused.push_back(copy.status());
      }
    });
    const std::jthread another([&] {
      while (!over) (void)(*trainer)->Copy((*trainer)->pulse().applied + 1);
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
    RequireFiles(*copy, At(reference[0].checkpoints, step));
    REQUIRE(copy->digest == reference[0].progress[step - 1 + (step - 1) / 3].digest);
  }
}

TEST_CASE("StateExchange: there is a copy of the state that is held, one for all who ask") {
  FakeCase job({}, EveryStep());
  const auto reference = job.Run(kAlone);
  const auto trainer = job.Prepare();
  REQUIRE(trainer.ok());
  REQUIRE(RunTo(4, trainer->get()).applied == 4);
  REQUIRE((*trainer)->Copy(5).status().code() == absl::StatusCode::kUnavailable);
  REQUIRE((*trainer)->Copy(3).status().code() == absl::StatusCode::kFailedPrecondition);
  const auto copy = (*trainer)->Copy(4);
  REQUIRE(copy.ok());
  REQUIRE((*trainer)->Copy(4).value() == *copy);
  RequireFiles(**copy, At(reference[0].checkpoints, 4));
  REQUIRE((*copy)->digest == (*trainer)->digest());
  REQUIRE((*copy)->test == reference[0].progress[3].test);
  REQUIRE(RunTo(5, trainer->get()).applied == 5);
  REQUIRE((*trainer)->Copy(5).value() != *copy);
  const auto checkpoint = (*trainer)->MakeCheckpoint();
  REQUIRE(checkpoint.ok());
  REQUIRE(checkpoint->manifest_sha256 == At(reference[0].checkpoints, 5).manifest_sha256);
}

TEST_CASE("StateExchange: a copy knows the evaluations that came after an older copy of the step") {
  FakeCase job({}, EveryStep("test/loss"));
  const auto trainer = job.Prepare();
  const auto other = job.Prepare();
  REQUIRE(trainer.ok());
  REQUIRE(other.ok());
  REQUIRE(RunTo(3, trainer->get()).evaluated);
  const auto copy = (*trainer)->Copy(3);
  REQUIRE(copy.ok());
  StateCopy ignorant = **copy;
  ignorant.test.reset();
  REQUIRE((*other)->Adopt(ignorant, (*trainer)->digest()).ok());
  const auto before = (*other)->Copy(3).value();
  REQUIRE_FALSE(before->test.has_value());
  EndAt end(3);
  REQUIRE(RunAlone(other->get(), nullptr, &end, end.token()).evaluated);
  const auto after = (*other)->Copy(3).value();
  REQUIRE(after->test == (*copy)->test);
  for (size_t i = 0; i < after->files.size(); ++i) {
    REQUIRE(after->files[i].bytes == (*copy)->files[i].bytes);
  }
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
  const auto copy = (*holder)->Copy(step);
  REQUIRE(copy.ok());
  REQUIRE((*joiner)->Adopt(**copy, (*holder)->digest()).ok());
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
  const StateCopy good = *(*holder)->Copy(4).value();
  const auto trainer = job.Prepare();
  REQUIRE(trainer.ok());
  REQUIRE(RunTo(2, trainer->get()).applied == 2);
  const Sha256Digest before = (*trainer)->digest();

  const auto refuse = [&](const StateCopy& copy, const Sha256Digest& digest) {
    const Status status = (*trainer)->Adopt(copy, digest);
    INFO(Message(status));
    REQUIRE(status.code() == absl::StatusCode::kDataLoss);
    REQUIRE((*trainer)->applied() == 2);
    REQUIRE((*trainer)->digest() == before);
  };
  refuse(good, before);
  StateCopy bad = good;
  bad.digest = before;
  refuse(bad, before);
  bad = good;
  bad.step = 5;
  refuse(bad, good.digest);
  bad = good;
  bad.files.pop_back();
  refuse(bad, good.digest);
  for (size_t i = 0; i < good.files.size(); ++i) {
    bad = good;
    bad.files[i].bytes.resize(bad.files[i].bytes.size() - 4);
    refuse(bad, good.digest);
    bad = good;
    std::swap(bad.files[i].bytes, bad.files[(i + 1) % bad.files.size()].bytes);
    refuse(bad, good.digest);
  }
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
  const auto copy = (*trainer)->Copy(to);
  REQUIRE(copy.ok());
  RequireFiles(**copy, At(reference[0].checkpoints, to));
  REQUIRE_FALSE((*copy)->test.has_value());
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
    REQUIRE((*trainer)->Adopt(*(*trainer)->Copy(1).value(), stopped.digest).ok());
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
  const auto peers = ShareState(&training, 0);
  REQUIRE(peers.ok());
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
                         part.what.find("another worker") != std::string::npos;
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
