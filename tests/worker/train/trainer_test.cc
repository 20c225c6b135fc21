// The step loop with a backend of hashes: everything but kernels is real.
#include "worker/train/trainer.h"

#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <map>
#include <thread>

#include "common/amount.h"
#include "common/mutex.h"
#include "tests/support/model_option.h"
#include "tests/worker/train/fake_case.h"
#include "worker/backend/failure.h"
#include "worker/state/checkpoint.h"
#include "worker/state/manifest.h"

namespace ringmaster::worker {
namespace {

Assignment Alone(uint64_t counter, uint64_t start_step) {
  return {.generation = {1, counter}, .shards = {0, 1, 2, 3}, .start_step = start_step};
}

TEST_CASE("Trainer: world size, placement and cores do not change a byte of any checkpoint") {
  FakeCase job;
  const auto reference = job.Run(kAlone);
  RequireFinished(reference);
  REQUIRE(reference[0].checkpoints.size() == 3);  // steps 2, 4, 6
  const std::vector<Cluster> clusters = {
      {{4, {0, 1, 2, 3}}},
      {{2, {0, 1}}, {2, {2, 3}}},
      {{2, {0, 1}}, {1, {2}}, {1, {3}}},
      {{1, {0}}, {1, {1}}, {1, {2}}, {1, {3}}},
      {{1, {1, 3}}, {3, {0, 2}}},
      {{1, {}}, {1, {0, 1, 2, 3}}},
  };
  for (const Cluster& cluster : clusters) {
    const auto results = job.Run(cluster);
    RequireFinished(results);
    REQUIRE(results[0].run.digest == reference[0].run.digest);
    REQUIRE(results[0].checkpoints.size() == 3);
    for (size_t i = 0; i < 3; ++i) {
      const Checkpoint& expected = reference[0].checkpoints[i];
      const Checkpoint& found = results[0].checkpoints[i];
      REQUIRE(found.manifest_sha256 == expected.manifest_sha256);
      REQUIRE(found.files.size() == expected.files.size());
      for (size_t f = 0; f < found.files.size(); ++f) {
        REQUIRE(found.files[f].bytes == expected.files[f].bytes);
      }
    }
    for (size_t rank = 1; rank < results.size(); ++rank) {
      REQUIRE(results[rank].checkpoints.empty());
      REQUIRE(results[rank].progress.back().ring_bytes > 0);
    }
  }
}

TEST_CASE("Trainer: where the backend pads, one program of a mode serves every shard") {
  std::atomic<int> bound = 0;
  const auto run = [&](bool pads) {
    bound = 0;
    FakeHooks hooks;
    hooks.pads = pads;
    hooks.on_bind = [&](const graph::Program&) { ++bound; };
    FakeCase job(std::move(hooks));
    const auto results = job.Run(kAlone);
    RequireFinished(results);
    return results[0].checkpoints.back().manifest_sha256;
  };
  const std::string each = run(false);
  CHECK(bound > 2);
  CHECK(run(true) == each);
  CHECK(bound == 2);  // training and evaluation
}

TEST_CASE("Trainer: what it planned of memory, and a run's times, are told") {
  FakeCase job;
  const auto trainer = job.Prepare();
  REQUIRE(trainer.ok());
  // 3072 x 10 and 10 parameters in 121 blocks of 256, Adam's two slots, an exponent a block; two
  // sums of 8 bytes; copies of the state: for checkpoints, for a peer or
  // from it, and the second state in which that is looked at.
  constexpr uint64_t kElements = 30720 + 256;
  constexpr uint64_t kState = kElements * (4 + 2 * 4) + 121 * 2;
  const uint64_t copies = SmallBuckets().checkpoint_copies + 2;
  const WorkerMemory planned = (*trainer)->planned_memory().host;
  const auto of = [&](const std::string& what) {
    uint64_t bytes = 0;
    for (const auto* parts : {&planned.always, &planned.at_times}) {
      for (const WorkerMemory::Part& part : *parts) bytes += part.what == what ? part.bytes : 0;
    }
    return bytes;
  };
  const uint64_t beside = of("compute copies of weights") + of("samples read ahead") +
                          of("programs and kernels") + of("libraries") + of("messages") +
                          of("frames of the ring");
  REQUIRE(planned.most() - beside == kState * (1 + copies) + kElements * 2 * 8);
  ProgressList progress;
  const RunResult result = (*trainer)->Run(Alone(1, 0), {.observer = &progress}, {});
  REQUIRE(result.end == RunEnd::kFinished);
  REQUIRE(progress.all.front().run_times.compute > 0);
  REQUIRE(progress.all.back().run_times.compute > progress.all.front().run_times.compute);
  REQUIRE(progress.all.back().run_times.compute <= result.times.compute);
}

TEST_CASE("Trainer: metrics and evaluation are equal on every member and in every cluster") {
  FakeCase job;
  const auto reference = job.Run(kAlone);
  const auto results = job.Run({{1, {0, 1}}, {2, {2, 3}}});
  RequireFinished(reference);
  RequireFinished(results);
  const Progress& expected = reference[0].progress.back();
  REQUIRE(expected.test.has_value());
  REQUIRE(expected.test->metric("loss").has_value());
  REQUIRE(expected.epoch == 2);
  // Six steps, evaluated after both epochs, and not twice after the last one.
  REQUIRE(reference[0].progress.size() == kSteps + 2);
  for (const MemberResult& result : results) {
    REQUIRE(result.progress.size() == reference[0].progress.size());
    for (size_t i = 0; i < result.progress.size(); ++i) {
      const Progress& a = reference[0].progress[i];
      const Progress& b = result.progress[i];
      REQUIRE(a.applied == b.applied);
      REQUIRE(a.digest == b.digest);
      REQUIRE(a.train == b.train);
      REQUIRE(a.test.has_value() == b.test.has_value());
      if (!a.test) continue;
      REQUIRE(a.test->step == b.test->step);
      REQUIRE(a.test == b.test);
    }
  }
}

TEST_CASE("Trainer: another seed gives other bytes") {
  v1::JobSpec spec = SmallSpec();
  FakeCase first({}, spec);
  spec.set_seed(2);
  FakeCase second({}, spec);
  const auto a = first.Run(kAlone);
  const auto b = second.Run(kAlone);
  RequireFinished(a);
  RequireFinished(b);
  REQUIRE(LastManifest(a) != LastManifest(b));
  REQUIRE(a[0].known_shard_sha256 != b[0].known_shard_sha256);
}

TEST_CASE("Trainer: with float32 sums the bytes depend on the cluster, and the manifest says so") {
  v1::JobSpec spec = SmallSpec();
  spec.set_reduction(v1::REDUCTION_FLOAT32);
  FakeCase job({}, spec);
  const auto one = job.Run(kAlone);
  const auto three = job.Run({{1, {0, 1}}, {1, {2}}, {1, {3}}});
  RequireFinished(one);
  RequireFinished(three);
  REQUIRE(one[0].checkpoints.back().files[0].bytes != three[0].checkpoints.back().files[0].bytes);
  REQUIRE(one[0].run.digest != three[0].run.digest);
  const auto facts = VerifyCheckpoint(three[0].checkpoints.back());
  REQUIRE(facts.ok());
  REQUIRE_FALSE(facts->exact);
}

TEST_CASE("Trainer: batch statistics travel exactly") {
  v1::JobSpec spec = SmallSpec();
  spec.mutable_model()->Clear();
  spec.mutable_model()->set_name("alexnet");
  testing::SetOption("batch_norm", true, spec.mutable_model());
  spec.clear_epochs();
  spec.set_steps(1);
  FakeCase job({}, spec);
  const auto one = job.Run({{2, {0, 1, 2, 3}}});
  const auto two = job.Run({{1, {0}}, {1, {1, 2, 3}}});
  REQUIRE(one[0].run.end == RunEnd::kFinished);
  REQUIRE(one[0].progress.back().test == two[1].progress.back().test);
  REQUIRE(one[0].run.digest == two[1].run.digest);
  REQUIRE(LastManifest(one) == LastManifest(two));
}

TEST_CASE("Trainer: a device tells of its sums at the end of a shard, in a ring by bucket") {
  const Cluster two = {{1, {0, 1}}, {1, {2, 3}}};
  for (const Cluster& cluster : {kAlone, two}) {
    std::atomic<int> at_end = 0, by_bucket = 0;
    FakeHooks hooks;
    hooks.has_state = [](uint32_t) { return true; };
    hooks.outage = [&](const ShardInput&, const GradientSink& sink) {
      if (sink.summed) ++(sink.told == SumsTold::kAtEnd ? at_end : by_bucket);
      return absl::OkStatus();
    };
    FakeCase job(std::move(hooks));
    RequireFinished(job.Run(cluster));
    CHECK((at_end > 0) == (cluster.size() == 1));
    CHECK((by_bucket > 0) == (cluster.size() == 2));
  }
}

TEST_CASE("Trainer: every core reports the same known shard") {
  FakeCase job;
  const auto trainer = job.Prepare(3);
  REQUIRE(trainer.ok());
  const std::vector<std::string>& known = (*trainer)->known_shard_sha256();
  REQUIRE(known.size() == 3);
  REQUIRE(known[0].size() == 64);
  REQUIRE(known[1] == known[0]);
  REQUIRE(known[2] == known[0]);
  REQUIRE((*trainer)->applied() == 0);
}

TEST_CASE("Trainer: preparation says what it is at, in order") {
  FakeCase job;
  std::vector<std::string> phases;
  TrainerOptions options = SmallBuckets();
  options.on_phase = [&](const char* phase) { phases.emplace_back(phase); };
  REQUIRE(job.Prepare(2, options).ok());
  REQUIRE(phases == std::vector<std::string>{"graph", "plan", "bind", "initialize"});
}

TEST_CASE("Trainer: the parts of a step's time are in the whole, each once") {
  FakeCase job;
  const auto results = job.Run({{1, {0, 1}}, {2, {2, 3}}});
  RequireFinished(results);
  for (const MemberResult& result : results) {
    const Progress& last = result.progress.back();
    const PhaseTimes& times = last.step_times;
    double sum = 0;
    for (const double part : {times.input, times.compute, times.ring_wait, times.ring_transfer,
                              times.update, times.evaluate, times.checkpoint}) {
      REQUIRE(part >= 0);
      sum += part;
    }
    REQUIRE(times.compute > 0);
    REQUIRE(times.input > 0);
    REQUIRE(times.input_work > 0);
    REQUIRE(last.input_threads == 1);
    REQUIRE(times.ring_wait > 0);
    REQUIRE(times.ring_transfer > 0);
    REQUIRE(sum <= last.step_seconds * (1 + 1e-9));
    REQUIRE(last.samples_per_second > 0);
    REQUIRE(last.learning_rate == 0.001);
    REQUIRE(last.updates == kSteps);
    REQUIRE_FALSE(last.loss_scale.has_value());
    REQUIRE_FALSE(last.validation.has_value());
  }
}

TEST_CASE("Trainer: a value that cannot be added fails the job, naming step, shard and tensor") {
  const float bad = GENERATE(std::numeric_limits<float>::quiet_NaN(),
                             std::numeric_limits<float>::infinity(), 0x1p126F);
  FakeHooks hooks;
  hooks.on_gradient = [&](const ShardInput& input, uint32_t tensor, std::span<float> gradient) {
    // In every shard and in both tensors: the first ones are named. fc/kernel is tensor 0, fc/bias
    // tensor 1.
    if (input.step == 1 && tensor <= 1) gradient[tensor == 0 ? 7 : 0] = bad;
  };
  FakeCase job(hooks);
  const auto results = job.Run({{1, {0, 1}}, {1, {2, 3}}});
  for (const MemberResult& result : results) {
    INFO(result.run.reason);
    REQUIRE(result.run.end == RunEnd::kFailed);
    REQUIRE(result.run.applied == 1);
    REQUIRE(result.run.reason.find("step 1") != std::string::npos);
    REQUIRE(result.run.reason.find("shard 0") != std::string::npos);
    REQUIRE(result.run.reason.find("fc/kernel") != std::string::npos);
    const char* const kind = bad == 0x1p126F ? "too large" : "not finite";
    REQUIRE(result.run.reason.find(kind) != std::string::npos);
    CHECK(result.run.code == v1::FAILURE_CODE_NOT_FINITE);
  }
}

TEST_CASE("Trainer: a kernel's error fails the run and frees the neighbours") {
  FakeHooks hooks;
  hooks.before_shard = [](const ShardInput& input) {
    if (input.step == 3) return Internal("kernel broke");
    return absl::OkStatus();
  };
  FakeCase job(hooks);
  const auto results = job.Run({{1, {0, 1, 2}}, {1, {3}}, {1, {}}});
  REQUIRE(results[0].run.end == RunEnd::kFailed);
  REQUIRE(results[0].run.reason.find("step 3") != std::string::npos);
  REQUIRE(results[0].run.reason.find("kernel broke") != std::string::npos);
  CHECK(results[0].run.code == v1::FAILURE_CODE_UNSPECIFIED);
  REQUIRE(results[0].run.applied == 3);
  REQUIRE(results[2].run.end == RunEnd::kPeerLost);
  REQUIRE(results[2].run.applied == 3);
}

TEST_CASE("Trainer: a stopped run ends at a boundary, and the next one gives the same bytes") {
  FakeCase job;
  const auto reference = job.Run(kAlone);
  const auto trainer = job.Prepare(2);
  REQUIRE(trainer.ok());
  std::stop_source stop;
  StopAt observer(3, &stop);
  const auto sink = std::make_shared<MemorySink>();
  const RunResult first =
      (*trainer)->Run(Alone(1, 0), {nullptr, sink, &observer}, stop.get_token());
  REQUIRE(first.end == RunEnd::kStopped);
  REQUIRE(first.applied == 3);
  REQUIRE((*trainer)->pulse().applied == 3);
  const RunResult second = (*trainer)->Run(Alone(2, 3), {nullptr, sink, nullptr}, {});
  INFO(second.reason);
  REQUIRE(second.end == RunEnd::kFinished);
  REQUIRE(second.manifest_sha256 == LastManifest(reference));
}

TEST_CASE("Trainer: a stop while a shard computes drops the step as a whole") {
  std::stop_source stop;
  std::atomic<bool> armed = true;
  FakeHooks hooks;
  hooks.before_shard = [&](const ShardInput& input) {
    if (input.step == 4 && armed.exchange(false)) stop.request_stop();
    return absl::OkStatus();
  };
  FakeCase job(hooks);
  const auto trainer = job.Prepare();
  REQUIRE(trainer.ok());
  const RunResult stopped =
      (*trainer)->Run(Alone(1, 0), {nullptr, nullptr, nullptr}, stop.get_token());
  REQUIRE(stopped.end == RunEnd::kStopped);
  REQUIRE(stopped.applied == 4);
  const auto sink = std::make_shared<MemorySink>();
  const RunResult rest = (*trainer)->Run(Alone(2, 4), {nullptr, sink, nullptr}, {});
  REQUIRE(rest.end == RunEnd::kFinished);
  REQUIRE(rest.manifest_sha256 == LastManifest(FakeCase().Run(kAlone)));
}

TEST_CASE("Trainer: a stop that came first runs nothing") {
  FakeCase job;
  const auto trainer = job.Prepare();
  REQUIRE(trainer.ok());
  std::stop_source stop;
  stop.request_stop();
  const RunResult result = (*trainer)->Run(Alone(1, 0), {}, stop.get_token());
  REQUIRE(result.end == RunEnd::kStopped);
  REQUIRE(result.applied == 0);
}

TEST_CASE("Trainer: a stop ends the wait for a silent neighbour") {
  FakeCase job;
  const auto trainer = job.Prepare();
  REQUIRE(trainer.ok());
  ring::MemoryRing ring(2);
  std::stop_source stop;
  RunResult result;
  {
    const std::jthread runner([&] {
      const Assignment assignment{.position = {.rank = 0, .size = 2}, .shards = {0, 1}};
      result = (*trainer)->Run(assignment, {ring.link(0), nullptr, nullptr}, stop.get_token());
    });
    while (std::string((*trainer)->pulse().phase) != "reduce") std::this_thread::yield();
    stop.request_stop();
  }
  REQUIRE(result.end == RunEnd::kStopped);
  REQUIRE(result.applied == 0);
}

TEST_CASE("Trainer: a lost neighbour ends the run with its name") {
  FakeCase job;
  const auto trainer = job.Prepare();
  REQUIRE(trainer.ok());
  ring::MemoryRing ring(3);
  ring.Lose(1);
  const Assignment assignment{.position = {.rank = 0, .size = 3}, .shards = {0, 1}};
  const RunResult result = (*trainer)->Run(assignment, {ring.link(0), nullptr, nullptr}, {});
  REQUIRE(result.end == RunEnd::kPeerLost);
  REQUIRE(result.link_error == absl::StatusCode::kUnavailable);
  REQUIRE(result.reason.find("member 1 is lost") != std::string::npos);
  REQUIRE(result.neighbour == "member 1");
  REQUIRE(result.applied == 0);
}

TEST_CASE("Trainer: an assignment that does not fit the state is refused") {
  FakeCase job;
  const auto trainer = job.Prepare();
  REQUIRE(trainer.ok());
  const RunResult late = (*trainer)->Run(Alone(1, 5), {}, {});
  REQUIRE(late.end == RunEnd::kFailed);
  REQUIRE(late.reason.find("starts at step 5") != std::string::npos);
  const RunResult shard = (*trainer)->Run({.shards = {4}}, {}, {});
  REQUIRE(shard.end == RunEnd::kFailed);
  const RunResult link = (*trainer)->Run({.position = {.rank = 0, .size = 2}}, {}, {});
  REQUIRE(link.end == RunEnd::kFailed);
}

// Of the job's own class, all shards, from `step` on.
v1::ClassMap MapFrom(const v1::ResolvedJob& job, uint64_t step) {
  v1::ClassMap map = job.result().class_maps(0);
  map.set_step(step);
  map.set_before_evaluation(false);
  return map;
}

TEST_CASE("Trainer: a run ends where the next class map begins, and digests are of the maps") {
  FakeCase job;
  const auto undisturbed = job.Run(kAlone);
  RequireFinished(undisturbed);
  const auto trainer = job.Prepare();
  REQUIRE(trainer.ok());
  auto maps = job.resolved.result().class_maps();
  *maps.Add() = MapFrom(job.resolved, 2);
  (*trainer)->TakeClassMaps(maps);
  Assignment assignment = Alone(1, 0);
  const RunResult first = (*trainer)->Run(assignment, {}, {});
  CHECK(first.end == RunEnd::kStopped);
  CHECK(first.applied == 2);
  CHECK(first.reason == "the next class map begins");
  assignment = Alone(2, 2);
  assignment.class_map = 1;
  const RunResult second = (*trainer)->Run(assignment, {}, {});
  CHECK(second.end == RunEnd::kFinished);
  CHECK(second.applied == kSteps);
  // Equal sums and states, but not an equal history.
  CHECK(second.digest != undisturbed[0].run.digest);
  const StatusOr<Checkpoint> checkpoint = (*trainer)->MakeCheckpoint();
  REQUIRE(checkpoint.ok());
  CHECK(checkpoint->files.back().bytes.find(R"("before_evaluation":false)") != std::string::npos);
}

TEST_CASE("Trainer: what is to be evaluated before the next class map, or by it") {
  FakeCase job;  // evaluated at steps 3 and 6
  for (const bool before : {false, true}) {
    const auto trainer = job.Prepare();
    REQUIRE(trainer.ok());
    auto maps = job.resolved.result().class_maps();
    *maps.Add() = MapFrom(job.resolved, 3);
    maps.rbegin()->set_before_evaluation(before);
    (*trainer)->TakeClassMaps(maps);
    const RunResult first = (*trainer)->Run(Alone(1, 0), {}, {});
    CHECK(first.end == RunEnd::kStopped);
    CHECK(first.applied == 3);
    CHECK(first.evaluated == !before);
  }
}

TEST_CASE("Trainer: digest(0) is of the first class map with which a job begins") {
  FakeCase job;
  const auto trainer = job.Prepare();
  REQUIRE(trainer.ok());
  CHECK((*trainer)->known_shard_seconds() == 0);
  const Sha256Digest before = (*trainer)->digest();
  auto maps = job.resolved.result().class_maps();
  (*trainer)->BeginWith(maps);
  CHECK((*trainer)->digest() == before);
  maps[0].mutable_classes(0)->set_class_("another");
  (*trainer)->BeginWith(maps);
  CHECK((*trainer)->digest() != before);
  job.resolved.mutable_workers()->set_mix(v1::MIX_FIXED);
  const auto measured = job.Prepare();
  REQUIRE(measured.ok());
  CHECK((*measured)->known_shard_seconds() > 0);
}

TEST_CASE("Trainer: another dataset is refused by name") {
  FakeCase job;
  job.resolved.mutable_result()->mutable_data()->mutable_files(0)->set_sha256("00");
  const auto trainer = job.Prepare();
  REQUIRE(trainer.status().code() == absl::StatusCode::kFailedPrecondition);
  REQUIRE(Message(trainer.status()).find("data_batch_1.bin") != std::string::npos);
  CHECK(FailureOf(trainer.status()) == v1::FAILURE_CODE_DATASET_DIFFERS);
}

TEST_CASE("Trainer: a model that no worker can build is the job's fault") {
  FakeCase job;
  job.resolved.mutable_result()->mutable_graph()->clear_nodes();
  CHECK(FailureOf(job.Prepare().status()) == v1::FAILURE_CODE_INVALID_JOB);
  FakeCase other;
  other.resolved.mutable_result()->add_updates();
  CHECK(FailureOf(other.Prepare().status()) == v1::FAILURE_CODE_INVALID_JOB);
}

TEST_CASE("Trainer: a state that does not fit the memory is refused with its parts") {
  FakeCase job;
  std::vector<CoreOptions> cores = Cores(2);
  for (CoreOptions& core : cores) core.memory_bytes = 100'000;
  const auto trainer =
      Trainer::Prepare(JobId("job"), job.resolved, job.data.dataset(), &job.backend, cores);
  REQUIRE(trainer.status().code() == absl::StatusCode::kResourceExhausted);
  REQUIRE(Message(trainer.status()).find("optimizer slots") != std::string::npos);
  CHECK(FailureOf(trainer.status()) == v1::FAILURE_CODE_MEMORY);
}

TEST_CASE(
    "Trainer: what cores take of the host for their devices is planned, and refused in time") {
  FakeHooks hooks;
  hooks.own_memory = true;
  hooks.host_bytes = 1000;
  FakeBackend backend(hooks);
  FakeCase job;
  const auto prepare = [&](Backend* with) {
    return Trainer::Prepare(JobId("job"), job.resolved, job.data.dataset(), with, Cores(3));
  };
  const auto trainer = prepare(&backend);
  REQUIRE(trainer.ok());
  const WorkerMemory host = (*trainer)->planned_memory().host;
  const auto part = std::ranges::find(host.always, "columns and gradients on their way",
                                      &WorkerMemory::Part::what);
  REQUIRE(part != host.always.end());
  CHECK(part->bytes == 3000);

  hooks.host_bytes = HostMemory() / 3;
  FakeBackend large(hooks);
  const Status refused = prepare(&large).status();
  CHECK(absl::IsResourceExhausted(refused));
  CHECK(FailureOf(refused) == v1::FAILURE_CODE_MEMORY);
  CHECK(Message(refused).find("columns and gradients on their way") != std::string::npos);
}

TEST_CASE("Trainer: cores of a device share what its weights and state take of its memory") {
  for (const bool exact : {true, false}) {
    FakeHooks hooks;
    hooks.has_state = [](uint32_t) { return true; };
    hooks.device_bytes = 102;
    hooks.own_memory = true;
    Mutex mu;
    std::map<std::string, uint64_t> shared;
    hooks.on_core = [&](const CoreOptions& core) {
      MutexLock lock(mu);
      shared[core.name] = core.shared_bytes;
      return absl::OkStatus();
    };
    FakeBackend backend(hooks);
    FakeCase job;
    if (!exact) job.resolved.mutable_result()->set_reduction(v1::REDUCTION_FLOAT32);
    std::vector<CoreOptions> cores = Cores(3);
    for (uint32_t i = 0; i < 3; ++i) cores[i].name = fmt::format("core{}", i);
    cores[1].device = 1;
    const auto trainer =
        Trainer::Prepare(JobId("job"), job.resolved, job.data.dataset(), &backend, cores);
    REQUIRE(trainer.ok());
    using Shared = std::map<std::string, uint64_t>;
    CHECK((shared == (exact ? Shared{{"core0", 51}, {"core1", 102}, {"core2", 51}}
                            : Shared{{"core0", 26}, {"core1", 51}, {"core2", 26}})));
    CHECK((*trainer)->planned_memory().device == (exact ? 102 : 51));
  }
}

TEST_CASE(
    "Trainer: a checkpoint that cannot be delivered is given up, the last one fails the run") {
  FakeCase job;
  const auto trainer = job.Prepare();
  REQUIRE(trainer.ok());
  const auto sink = std::make_shared<BrokenSink>();
  const RunResult result = (*trainer)->Run(Alone(1, 0), {nullptr, sink, nullptr}, {});
  REQUIRE(result.end == RunEnd::kFailed);
  REQUIRE(result.applied == kSteps);
  REQUIRE(result.reason.find("the checkpoint of step 6") != std::string::npos);
  REQUIRE(result.reason.find("disk full") != std::string::npos);
}

}  // namespace
}  // namespace ringmaster::worker
