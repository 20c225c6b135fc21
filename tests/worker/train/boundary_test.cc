// Evaluations and checkpoints between steps, in whole runs with a backend of hashes.
#include "worker/train/boundary.h"

#include <catch2/catch.hpp>
#include <set>

#include "tests/worker/train/regroup_case.h"
#include "worker/state/watch.h"
#include "worker/train/training_job.h"

namespace ringmaster::worker {
namespace {

// 34 of the 42 training samples stay: two steps an epoch.
v1::JobSpec ValidatedSpec(uint32_t epochs, const std::string& best = "") {
  v1::JobSpec spec = SmallSpec();
  spec.mutable_validation()->set_split(0.2);
  spec.set_epochs(epochs);
  spec.mutable_checkpoint()->set_every_steps(0);
  spec.mutable_checkpoint()->set_best(best);
  return spec;
}

// Higher is better.
double MetricOf(const std::string& metric, const Progress& progress) {
  const bool test = metric.starts_with("test/");
  const std::string name = metric.substr(metric.find('/') + 1);
  const double value = *(test ? progress.test : progress.validation)->metric(name);
  return name == "loss" ? -value : value;
}

TEST_CASE("Boundary: the validation set is evaluated before the test set, in rounds of its own") {
  FakeCase job({}, ValidatedSpec(2));
  std::vector<std::pair<uint64_t, uint32_t>> rounds;  // step, bucket
  const auto results = job.Run({{1, {0, 1}}, {1, {2, 3}}}, [&](const ring::Frame& frame) {
    if (frame.header.purpose != ring::Purpose::kEvaluate) return;
    const std::pair<uint64_t, uint32_t> round(frame.header.step, frame.header.bucket);
    if (rounds.empty() || rounds.back() != round) rounds.push_back(round);
  });
  RequireFinished(results, 4);
  REQUIRE(rounds ==
          std::vector<std::pair<uint64_t, uint32_t>>{{2, 0}, {2, 1}, {4, 0}, {4, 1}, {4, 2}});
}

TEST_CASE("Boundary: both sets give the same numbers on every member and cluster") {
  FakeCase job({}, ValidatedSpec(2));
  const auto reference = job.Run(kAlone);
  RequireFinished(reference, 4);
  const Progress& expected = reference[0].progress.back();
  REQUIRE(expected.validation.has_value());
  REQUIRE(expected.validation->step == 4);
  REQUIRE(expected.validation->metrics.size() == 2);
  REQUIRE(expected.validation->metric("loss") != expected.test->metric("loss"));
  for (const Cluster& cluster :
       {Cluster{{4, {0, 1, 2, 3}}}, Cluster{{1, {}}, {2, {1, 3}}, {1, {0, 2}}}}) {
    for (const MemberResult& result : job.Run(cluster)) {
      REQUIRE(result.run.end == RunEnd::kFinished);
      const Progress& found = result.progress.back();
      REQUIRE(found.validation == expected.validation);
      REQUIRE(found.test == expected.test);
    }
  }
}

TEST_CASE("Boundary: a checkpoint of every state that is better than all before it, and the last") {
  const std::string metric =
      GENERATE("test/accuracy", "test/loss", "validation/accuracy", "validation/loss");
  FakeCase job({}, ValidatedSpec(12, metric));
  const auto results = job.Run({{1, {0, 1}}, {1, {2, 3}}});
  RequireFinished(results, 24);
  std::set<uint64_t> best_steps;
  std::optional<double> best;
  for (const Progress& progress : results[1].progress) {
    if (!progress.test || progress.test->step != progress.applied) continue;
    const double value = MetricOf(metric, progress);
    if (best && value <= *best) continue;
    best = value;
    best_steps.insert(progress.applied);
  }
  REQUIRE(best_steps.size() > 1);
  REQUIRE(best_steps.size() < 12);
  std::set<uint64_t> marked, written;
  for (const Checkpoint& checkpoint : results[0].checkpoints) {
    REQUIRE(checkpoint.standing.metric.has_value());
    REQUIRE(written.insert(checkpoint.step).second);
    if (checkpoint.standing.best) marked.insert(checkpoint.step);
  }
  REQUIRE(marked == best_steps);
  best_steps.insert(24);
  REQUIRE(written == best_steps);
}

TEST_CASE("Boundary: when checkpoints are due changes no byte") {
  FakeCase plain({}, ValidatedSpec(4, "validation/loss"));
  v1::JobSpec spec = ValidatedSpec(4, "validation/loss");
  spec.mutable_checkpoint()->set_every_steps(3);
  FakeCase marked({}, spec);
  const auto a = plain.Run(kAlone);
  const auto b = marked.Run(kAlone);
  RequireFinished(a, 8);
  RequireFinished(b, 8);
  REQUIRE(LastManifest(a) == LastManifest(b));
  REQUIRE(a[0].checkpoints.size() < b[0].checkpoints.size());
  for (const Checkpoint& checkpoint : b[0].checkpoints) {
    // Steps 3 lies inside an epoch: nothing was evaluated there.
    REQUIRE(checkpoint.standing.metric.has_value() == (checkpoint.step % 2 == 0));
  }
  REQUIRE(b[0].checkpoints.size() >= 4);  // 2 (the first is best), 3, 6, 8
}

// Where `stop` ends a job, from the evaluations of one that nothing stops; 0: nowhere.
uint64_t StopOf(const std::vector<Progress>& all, uint32_t patience) {
  double best = 0;
  uint64_t newest = 0;
  uint32_t stale = 0;
  for (const Progress& progress : all) {
    if (!progress.validation || progress.validation->step <= newest) continue;
    const double loss = *progress.validation->metric("loss");
    stale = newest == 0 || loss < best ? 0 : stale + 1;
    best = newest == 0 ? loss : std::min(best, loss);
    newest = progress.validation->step;
    if (stale == patience) return newest;
  }
  return 0;
}

v1::JobSpec StoppedSpec() {
  v1::JobSpec spec = ValidatedSpec(40);
  spec.mutable_stop()->set_metric("validation/loss");
  spec.mutable_stop()->set_patience(3);
  return spec;
}

TEST_CASE("Boundary: a job stops early at the same state on every cluster, with its checkpoint") {
  FakeCase endless({}, ValidatedSpec(40));
  const uint64_t end = StopOf(endless.Run(kAlone)[0].progress, 3);
  REQUIRE(end > 6);
  REQUIRE(end < 80);
  FakeCase job({}, StoppedSpec());
  const auto reference = job.Run(kAlone);
  RequireFinished(reference, end);
  REQUIRE(reference[0].checkpoints.back().step == end);
  // The newest of three that are no better: the best is an earlier one, and was kept.
  REQUIRE_FALSE(reference[0].checkpoints.back().standing.best);
  for (const Cluster& cluster :
       {Cluster{{4, {0, 1, 2, 3}}}, Cluster{{1, {}}, {2, {1, 3}}, {1, {0, 2}}}}) {
    const auto results = job.Run(cluster);
    RequireFinished(results, end);
    REQUIRE(LastManifest(results) == LastManifest(reference));
  }
}

TEST_CASE("Boundary: how long the best stood is in a checkpoint") {
  v1::JobSpec spec = StoppedSpec();
  spec.mutable_checkpoint()->set_every_steps(1);
  FakeCase job({}, spec);
  const auto reference = job.Run(kAlone);
  const std::vector<Checkpoint>& checkpoints = reference[0].checkpoints;
  const uint64_t end = checkpoints.back().step;
  RequireFinished(reference, end);
  // From the last one too: nothing is left to do, and that is known.
  for (const uint64_t from : {end - 5, end - 2, end - 1, end}) {
    const auto trainer = job.Prepare();
    REQUIRE(trainer.ok());
    REQUIRE((*trainer)->Restore(checkpoints[from - 1]).ok());
    const auto sink = std::make_shared<MemorySink>();
    Generation generation;
    generation.ring = {{.trainer = trainer->get(), .shards = {0, 1, 2, 3}}};
    generation.sink = sink;
    const RunResult result = RunGeneration(generation)[0];
    REQUIRE(result.end == RunEnd::kFinished);
    REQUIRE(result.applied == end);
    REQUIRE(result.manifest_sha256 == LastManifest(reference));
  }
}

TEST_CASE("Boundary: evaluations follow evaluate.every_steps, and the last step") {
  v1::JobSpec spec = ValidatedSpec(4);
  spec.mutable_evaluate()->set_every_steps(3);
  FakeCase job({}, spec);
  const auto results = job.Run(kAlone);
  RequireFinished(results, 8);
  std::set<uint64_t> steps;
  for (const Progress& progress : results[0].progress) {
    if (progress.test) steps.insert(progress.test->step);
  }
  REQUIRE(steps == std::set<uint64_t>{3, 6, 8});
}

// Delivers nothing until it is opened. kAway: it says so at once; kHangs: a delivery waits.
class ShutSink : public MemorySink {
 public:
  enum class How { kAway, kHangs };
  explicit ShutSink(How how) : how_(how) {}
  Status Deliver(const Checkpoint& checkpoint, const std::stop_token& stop) override {
    {
      MutexLock lock(mu_);
      const auto limit = std::chrono::steady_clock::now() +
                         (how_ == How::kHangs ? std::chrono::seconds(60) : std::chrono::seconds(0));
      const bool open = opened_.WaitUntil(mu_, limit, [&]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
        return open_ || stop.stop_requested();
      });
      if (!open) return absl::UnavailableError("the coordinator is away");
    }
    return MemorySink::Deliver(checkpoint, stop);
  }
  void Open() {
    MutexLock lock(mu_);
    open_ = true;
    opened_.NotifyAll();
  }

 private:
  const How how_;
  Mutex mu_;
  Condition opened_;
  bool open_ ABSL_GUARDED_BY(mu_) = false;
};

// Opens a sink when S(steps) is evaluated, which is after its checkpoint came due.
class OpenAtEnd : public ProgressList {
 public:
  OpenAtEnd(uint64_t steps, ShutSink* sink) : steps_(steps), sink_(sink) {}
  void OnProgress(const Progress& progress) override {
    if (progress.test && progress.test->step == steps_) sink_->Open();
    ProgressList::OnProgress(progress);
  }

 private:
  const uint64_t steps_;
  ShutSink* const sink_;
};

TEST_CASE("Boundary: no step waits for a checkpoint that cannot be delivered") {
  const auto how = GENERATE(ShutSink::How::kAway, ShutSink::How::kHangs);
  v1::JobSpec spec = SmallSpec();  // a checkpoint is due at every second step
  spec.set_epochs(4);
  constexpr uint64_t kAll = 12;
  FakeCase job({}, spec);
  const auto reference = job.Run(kAlone);
  TrainerOptions options = SmallBuckets();
  options.checkpoint_copies = 2;
  const auto first = job.Prepare(1, options);
  const auto second = job.Prepare(1, options);
  REQUIRE(first.ok());
  REQUIRE(second.ok());
  const auto sink = std::make_shared<ShutSink>(how);
  OpenAtEnd observer(kAll, sink.get());
  ProgressList beside;
  Generation generation;
  generation.ring = {{.trainer = first->get(), .shards = {0, 1}, .observer = &observer},
                     {.trainer = second->get(), .shards = {2, 3}, .observer = &beside}};
  generation.sink = sink;
  for (const RunResult& result : RunGeneration(generation)) {
    INFO(result.reason);
    REQUIRE(result.end == RunEnd::kFinished);
    REQUIRE(result.applied == kAll);
  }
  // Two are delivered, of which one is the last; every other one is named, by the first member.
  std::set<uint64_t> steps;
  for (const auto& [step, reason] : observer.dropped) REQUIRE(steps.insert(step).second);
  REQUIRE(steps.size() == 4);
  REQUIRE(beside.dropped.empty());
  REQUIRE(sink->checkpoints().size() == 2);
  for (const Checkpoint& checkpoint : sink->checkpoints()) {
    REQUIRE(steps.insert(checkpoint.step).second);
  }
  REQUIRE(steps == std::set<uint64_t>{2, 4, 6, 8, 10, 12});
  REQUIRE(sink->checkpoints().back().manifest_sha256 == LastManifest(reference));
}

Evaluation Of(uint64_t step, double accuracy, std::optional<double> loss) {
  Evaluation evaluation = {.step = step, .metrics = {{"accuracy", accuracy}}};
  if (loss) evaluation.metrics.push_back({"loss", *loss});
  return evaluation;
}

v1::Watch WatchOf(v1::SampleSplit split, const std::string& name, bool lower_is_better) {
  v1::Watch watch;
  watch.set_split(split);
  watch.set_name(name);
  watch.set_lower_is_better(lower_is_better);
  watch.set_best(true);
  return watch;
}

// A job's states by their evaluations alone.
class Watching {
 public:
  explicit Watching(const v1::Watch& watch) {
    FakeCase job({}, ValidatedSpec(1));
    const auto training = BuildTrainingJob(JobId("job"), job.resolved, job.data.dataset(),
                                           &job.backend, Cores(1), SmallBuckets());
    REQUIRE(training.ok());
    spec_.set_total_steps(100);
    if (!watch.name().empty()) *spec_.add_watches() = watch;
    state_.emplace((*training)->layout, 21, NothingWatched(spec_));
  }
  Standing Look(uint64_t step, const std::optional<Evaluation>& validation,
                const std::optional<Evaluation>& test) {
    state_->step = step;
    return LookAt(spec_, validation, test, &*state_);
  }
  uint64_t stale() const { return state_->watched[0].stale; }
  bool stops() const { return StopsEarly(spec_, *state_); }

 private:
  v1::ResultSpec spec_;
  std::optional<State> state_;
};

TEST_CASE("Watch: strictly better, and a state that comes again stands as it stood") {
  Watching best(WatchOf(v1::SAMPLE_SPLIT_TEST, "loss", true));
  REQUIRE(best.Look(2, {}, Of(2, 0.1, 2.0)) == Standing{2.0, true});
  REQUIRE(best.Look(3, {}, Of(2, 0.1, 2.0)) == Standing{});  // not evaluated
  REQUIRE(best.Look(4, {}, Of(4, 0.9, 2.0)) == Standing{2.0, false});
  REQUIRE(best.Look(6, {}, Of(6, 0.0, {})) == Standing{});
  REQUIRE(best.Look(8, {}, Of(8, 0.0, 1.5)) == Standing{1.5, true});
  REQUIRE(best.Look(8, {}, Of(8, 0.0, 1.5)) == Standing{1.5, true});
  REQUIRE(best.Look(10, {}, Of(10, 0.0, 1.75)) == Standing{1.75, false});
  REQUIRE(best.Look(10, {}, Of(10, 0.0, 1.75)) == Standing{1.75, false});
  REQUIRE_FALSE(best.stops());
  Watching accuracy(WatchOf(v1::SAMPLE_SPLIT_VALIDATION, "accuracy", false));
  REQUIRE(accuracy.Look(2, Of(2, 0.0, {}), Of(2, 1.0, {})) == Standing{0.0, true});
  REQUIRE(accuracy.Look(4, Of(4, 0.5, {}), {}) == Standing{0.5, true});
  REQUIRE(accuracy.Look(6, Of(6, 0.25, {}), {}) == Standing{0.25, false});
  Watching none{v1::Watch()};
  REQUIRE(none.Look(2, Of(2, 1, 1), Of(2, 1, 1)) == Standing{});
}

TEST_CASE(
    "Watch: what is better by no more than min_delta is the best, and does not keep a job on") {
  v1::Watch watch = WatchOf(v1::SAMPLE_SPLIT_TEST, "loss", true);
  watch.set_patience(3);
  watch.set_min_delta(0.5);
  Watching job(watch);
  REQUIRE(job.Look(1, {}, Of(1, 0, 4.0)) == Standing{4.0, true});
  REQUIRE(job.Look(2, {}, Of(2, 0, 3.75)) == Standing{3.75, true});
  REQUIRE(job.Look(2, {}, Of(2, 0, 3.75)) == Standing{3.75, true});
  REQUIRE(job.stale() == 1);  // it came twice, and counts once
  REQUIRE(job.Look(3, {}, Of(3, 0, {})) == Standing{});
  REQUIRE(job.stale() == 2);
  REQUIRE_FALSE(job.stops());
  REQUIRE(job.Look(4, {}, Of(4, 0, 3.25)) == Standing{3.25, true});
  REQUIRE(job.stale() == 0);
  REQUIRE(job.Look(5, {}, Of(5, 0, 3.25)) == Standing{3.25, false});
  REQUIRE(job.Look(6, {}, Of(6, 0, 3.0)) == Standing{3.0, true});
  REQUIRE(job.Look(7, {}, Of(7, 0, 9.0)) == Standing{9.0, false});
  REQUIRE(job.stops());
}

}  // namespace
}  // namespace ringmaster::worker
