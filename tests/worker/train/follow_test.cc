// A job that follows its ring while its state is on its way.
#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <functional>
#include <limits>
#include <random>
#include <thread>

#include "tests/support/model_option.h"
#include "tests/worker/train/follow_case.h"

namespace ringmaster::worker {
namespace {

v1::JobSpec AveragedSpec() {
  v1::JobSpec spec = SmallSpec();
  spec.mutable_optimizer()->mutable_ema()->set_decay(0.5);
  return spec;
}

FakeHooks OnHost(FakeHooks hooks = {}) {
  hooks.has_state = [](uint32_t) { return false; };
  return hooks;
}

// What a follower tells, and when it was whole.
class Told : public ProgressList {
 public:
  void OnProgress(const Progress& progress) override {
    RING_CHECK(whole, "nothing is told of a state that is not there");
    ProgressList::OnProgress(progress);
  }
  void OnWhole() override {
    RING_CHECK(!whole, "once");
    whole = true;
  }
  bool whole = false;
};

// Has pieces wait until `source` has ended a step: one in `every` is of the next state then, and of
// those that are not the first ones of their state as many were read before, and come late.
FeedHooks Spread(const Trainer* source, uint32_t every, uint32_t seed) {
  const auto random = std::make_shared<std::mt19937>(seed);
  const auto wait = [source, every, random](uint64_t step) -> Status {
    if ((*random)() % every > 0 || step == kSteps) return absl::OkStatus();
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (source->pulse().applied <= step) {
      if (std::chrono::steady_clock::now() > deadline) return absl::DeadlineExceededError("late");
      std::this_thread::yield();
    }
    return absl::OkStatus();
  };
  // Not the first one of a step: the job waits for it before it ends the step before.
  const auto newest = std::make_shared<uint64_t>(kSteps);
  const auto late = [wait, newest](size_t, uint64_t step, std::span<uint8_t>) {
    return std::exchange(*newest, step) == step ? wait(step) : absl::OkStatus();
  };
  return {.before_read = wait, .before_write = late};
}

struct Ring {
  explicit Ring(FakeCase* job) {
    for (int i = 0; i < 3; ++i) {
      TrainerOptions options = SmallBuckets();
      options.piece_bytes = 16384;  // some thirty pieces
      trainers.push_back(*job->Prepare(1, options));
    }
  }
  // Two members at S(step), which have all shards, and a third one that has none and follows.
  Generation Begin(uint64_t step) {
    if (step > 0) {
      std::stop_source stop;
      StopAt first(step, &stop);
      Generation alone{.ring = Members()};
      alone.ring.pop_back();
      alone.ring[0].observer = &first;
      alone.ring[0].at_boundary = stop.get_token();
      for (const RunResult& result : RunGeneration(alone)) {
        RING_CHECK(result.end == RunEnd::kStopped, "both end where they should");
      }
    }
    Generation next{.counter = 2, .ring = Members()};
    next.ring[2].observer = &told;
    return next;
  }
  std::vector<Place> Members() {
    return {{.trainer = trainers[0].get(), .shards = {0, 2}},
            {.trainer = trainers[1].get(), .shards = {1, 3}},
            {.trainer = trainers[2].get(), .shards = {}}};
  }

  std::vector<std::unique_ptr<Trainer>> trainers;
  Told told;
};

void RequireProgressOf(const std::vector<Progress>& reference, const std::vector<Progress>& found) {
  for (const Progress& one : found) {
    const auto same = std::ranges::find_if(reference, [&](const Progress& other) {
      return other.applied == one.applied && other.digest == one.digest;
    });
    REQUIRE(same != reference.end());
  }
}

void RequireFollows(const v1::JobSpec& spec, const FakeHooks& hooks = {}) {
  FakeCase job(OnHost(hooks), spec);
  const auto reference = job.Run(kAlone);
  RequireFinished(reference);
  for (const uint64_t begin : {0, 2}) {
    for (const uint32_t every : {1, 3, 9}) {
      Ring ring(&job);
      const Generation generation = ring.Begin(begin);
      INFO("from step " << begin << ", a step for one of " << every);
      const Trainer& source = *ring.trainers[0];
      const auto feed = FollowFrom(source, ring.trainers[2].get(), Spread(&source, every, every));
      REQUIRE(feed.status() == absl::OkStatus());
      for (const RunResult& result : RunGeneration(generation)) {
        INFO(result.reason);
        REQUIRE(result.end == RunEnd::kFinished);
        REQUIRE(result.digest == reference[0].run.digest);
      }
      REQUIRE(ring.told.whole);
      RequireProgressOf(reference[0].progress, ring.told.all);
      const auto checkpoint = ring.trainers[2]->MakeCheckpoint();
      REQUIRE(checkpoint.ok());
      REQUIRE(checkpoint->manifest_sha256 == LastManifest(reference));
    }
  }
}

TEST_CASE("Follow: whatever comes at which step, the state is the ring's in the end") {
  RequireFollows(AveragedSpec());
}

TEST_CASE("Follow: nor does it matter that gradients are clipped, or steps skipped") {
  v1::JobSpec spec = AveragedSpec();
  spec.mutable_optimizer()->mutable_clip()->set_global_norm(0.125);
  spec.mutable_precision()->set_policy(v1::POLICY_MIXED_FLOAT16);
  FakeHooks hooks;
  hooks.on_gradient = [](const ShardInput& input, uint32_t tensor, std::span<float> gradient) {
    const bool bad = (input.step == 1 || input.step == 4) && input.samples.front() % 2 == 0;
    if (bad && tensor == 0) gradient[3] = std::numeric_limits<float>::infinity();
  };
  RequireFollows(spec, hooks);
}

// All pieces but the first come while the source evaluates: its last numbers were read before it
// looked at the outcome, and S(2) is whole at the joiner when both have looked.
TEST_CASE("Follow: what is watched is that of the state that the joiner has in the end") {
  v1::JobSpec spec = AveragedSpec();
  spec.mutable_validation()->set_split(0.2);  // two steps an epoch
  spec.set_epochs(3);
  spec.mutable_checkpoint()->set_best("validation/loss");
  std::atomic<bool> follows = false, evaluates = false, sent = false;
  const auto wait = [](const std::function<bool()>& until) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (!until() && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
    return until() ? absl::OkStatus() : absl::DeadlineExceededError("late");
  };
  FakeHooks hooks;
  hooks.before_evaluation = [&](const ShardInput& input) {
    if (!follows || input.step != 2) return;
    evaluates = true;
    (void)wait([&] { return sent.load(); });
  };
  FakeCase job(OnHost(hooks), spec);
  const auto reference = job.Run(kAlone);
  RequireFinished(reference);
  Ring ring(&job);
  const Generation generation = ring.Begin(0);
  const Trainer& source = *ring.trainers[0];
  Trainer& joiner = *ring.trainers[2];
  follows = true;
  const auto one_of_each = [&](uint64_t step) {
    return wait([&] { return step == 2 ? evaluates.load() : source.pulse().applied > step; });
  };
  const std::shared_ptr<Follower> follower = joiner.Follow("source");
  std::jthread feed([&] {
    const auto opened = source.Open(0, Follows::kYes);
    const Status status = opened.ok()
                              ? SendAll(opened->get(), follower.get(), {.before_read = one_of_each})
                              : opened.status();
    sent = true;
    follower->End(status);
  });
  REQUIRE(follower->TakeUp(source.digest(), [] { return false; }) == absl::OkStatus());
  for (const RunResult& result : RunGeneration(generation)) {
    INFO(result.reason);
    REQUIRE(result.end == RunEnd::kFinished);
    REQUIRE(result.digest == reference[0].run.digest);
  }
  REQUIRE(ring.told.whole);
  const auto checkpoint = joiner.MakeCheckpoint();
  REQUIRE(checkpoint.ok());
  REQUIRE(checkpoint->manifest_sha256 == LastManifest(reference));
}

TEST_CASE("Follow: who stops before its state is whole holds what it held, and gives none of it") {
  FakeCase job(OnHost(), AveragedSpec());
  const auto reference = job.Run(kAlone);
  Ring ring(&job);
  Generation generation = ring.Begin(1);
  Trainer& joiner = *ring.trainers[2];
  const Sha256Digest first = joiner.digest();
  std::stop_source stop;
  const auto stops = [&](uint64_t) {
    // The numbers are here: it is at S(1), and has nothing else of it.
    RING_CHECK(absl::IsUnavailable(joiner.Open(1).status()), "nothing is offered");
    stop.request_stop();
    return absl::OkStatus();
  };
  const auto feed = FollowFrom(*ring.trainers[0], &joiner, {.before_read = stops});
  REQUIRE(feed.ok());
  for (Place& place : generation.ring) place.stop = stop.get_token();
  const std::vector<RunResult> results = RunGeneration(generation);
  REQUIRE(results[2].end == RunEnd::kStopped);
  REQUIRE_FALSE(ring.told.whole);
  REQUIRE(results[2].applied == 0);
  REQUIRE(results[2].digest == first);
  REQUIRE(joiner.Check() == absl::OkStatus());
  REQUIRE(joiner.Open(0).ok());
  // And goes on from it.
  Generation alone{.counter = 3, .ring = {{.trainer = &joiner, .shards = kAllShards}}};
  REQUIRE(RunGeneration(alone)[0].digest == reference[0].run.digest);
}

TEST_CASE("Follow: a source that is lost, or sends other bits, is named") {
  FakeCase job(OnHost(), AveragedSpec());
  Ring ring(&job);
  const Generation generation = ring.Begin(1);
  const bool flips = GENERATE(false, true);
  const auto spoil = [&](size_t number, uint64_t, std::span<uint8_t> bytes) -> Status {
    if (number != 2) return absl::OkStatus();
    bytes[4000] ^= 1;
    return flips ? absl::OkStatus() : absl::UnavailableError("the stream broke");
  };
  const auto feed = FollowFrom(*ring.trainers[0], ring.trainers[2].get(), {.before_write = spoil});
  REQUIRE(feed.ok());
  const RunResult result = RunGeneration(generation)[2];
  REQUIRE(result.end == RunEnd::kPeerLost);
  REQUIRE(result.neighbour == "source");
  REQUIRE(result.link_error == absl::StatusCode::kUnavailable);
  REQUIRE(result.reason.find(flips ? "digest" : "the stream broke") != std::string::npos);
  REQUIRE(result.applied == 0);
  REQUIRE_FALSE(ring.told.whole);
}

TEST_CASE("Follow: a state of another digest is not taken up") {
  FakeCase job(OnHost(), AveragedSpec());
  Ring ring(&job);
  (void)ring.Begin(1);
  Trainer& joiner = *ring.trainers[2];
  const std::shared_ptr<Follower> follower = joiner.Follow("source");
  const Feed feed(ring.trainers[0].get(), follower);
  const Status status = follower->TakeUp(joiner.digest(), [] { return false; });
  REQUIRE(status.code() == absl::StatusCode::kDataLoss);
  REQUIRE(joiner.applied() == 0);
}

TEST_CASE("Follow: what is frozen, which no digest covers, is what the job begins with") {
  v1::JobSpec spec = AveragedSpec();
  testing::SetHidden({8}, spec.mutable_model());
  spec.add_freeze("dense1/*");
  FakeCase job(OnHost(), spec);
  for (const bool flips : {false, true}) {
    Ring ring(&job);
    const Generation generation = ring.Begin(1);
    const Trainer& source = *ring.trainers[0];
    const auto opened = source.Open(source.applied(), Follows::kYes);
    REQUIRE(opened.ok());
    size_t pieces = 0;
    for (uint64_t at = 0; at < (*opened)->facts().bytes; at = (*opened)->PieceEnd(at)) ++pieces;
    const auto spoil = [&](size_t number, uint64_t, std::span<uint8_t> bytes) {
      if (flips && number + 2 == pieces) bytes[5] ^= 1;  // the last are numbers
      return absl::OkStatus();
    };
    const auto feed = FollowFrom(source, ring.trainers[2].get(), {.before_write = spoil});
    REQUIRE(feed.ok());
    const RunResult result = RunGeneration(generation)[2];
    INFO(result.reason);
    CHECK(ring.told.whole == !flips);
    // And of a state that is fetched whole.
    const uint64_t last = source.applied();
    auto copy = CopyOf(source, last);
    REQUIRE(copy.ok());
    const auto whole = source.Open(last);
    REQUIRE(whole.ok());
    std::vector<uint64_t> ends = {0};
    while (ends.back() < copy->bytes.size()) ends.push_back((*whole)->PieceEnd(ends.back()));
    if (flips) copy->bytes[ends[ends.size() - 3] + 5] ^= 1;
    const auto other = job.Prepare();
    CHECK(AdoptCopy(*copy, source.digest(), other->get()).ok() == !flips);
    CHECK((result.reason.find("frozen parameters") != std::string::npos) == flips);
    if (flips) CHECK(result.neighbour == "source");
  }
}

// A source that says something else of its evaluations.
struct Misled final : StateSource {
  Misled(std::unique_ptr<StateSource> source, const Evaluation& test)
      : of(std::move(source)), its(of->facts()) {
    its.test = test;
  }
  [[nodiscard]] const StateFacts& facts() const override { return its; }
  [[nodiscard]] uint64_t PieceEnd(uint64_t offset) const override { return of->PieceEnd(offset); }
  StatusOr<uint64_t> Read(uint64_t offset, std::span<uint8_t> to) override {
    return of->Read(offset, to);
  }
  std::unique_ptr<StateSource> of;
  StateFacts its;
};

TEST_CASE("Follow: evaluations that no state of that step has are refused") {
  FakeCase job(OnHost(), AveragedSpec());
  Ring ring(&job);
  (void)ring.Begin(1);
  Trainer& joiner = *ring.trainers[2];
  const uint64_t at = ring.trainers[0]->applied();
  for (const Evaluation& test :
       {Evaluation{at + 1, {{"loss", 0.5}}}, Evaluation{at, {{"no metric", 0.5}}},
        Evaluation{at, {{"loss", std::numeric_limits<double>::quiet_NaN()}}}}) {
    auto opened = ring.trainers[0]->Open(at, Follows::kYes);
    INFO(Message(opened.status()));
    REQUIRE(opened.ok());
    Misled source(*std::move(opened), test);
    const std::shared_ptr<Follower> follower = joiner.Follow("source");
    std::jthread feed([&] { follower->End(SendAll(&source, follower.get(), {})); });
    CHECK(follower->TakeUp(source.its.digest, [] { return false; }).code() ==
          absl::StatusCode::kDataLoss);
    CHECK(joiner.applied() == 0);
    follower->GiveUp();
  }
}

TEST_CASE("Follow: what is not updated element by element on the host is fetched whole") {
  TrainerOptions options = SmallBuckets();
  options.follow_bytes = 0;
  v1::JobSpec spec = AveragedSpec();
  REQUIRE((*FakeCase(OnHost(), spec).Prepare(1, options))->follows());
  REQUIRE_FALSE((*FakeCase(OnHost(), spec).Prepare())->follows());  // too small to be worth it
  FakeHooks hooks = OnHost();
  if (GENERATE(false, true)) {
    spec.mutable_optimizer()->mutable_lamb();
  } else {
    hooks.has_state = [](uint32_t) { return true; };
  }
  FakeCase job(hooks, spec);
  const auto trainer = job.Prepare(1, options);
  REQUIRE_FALSE((*trainer)->follows());
  const auto opened = (*trainer)->Open(0, Follows::kYes);
  REQUIRE(opened.status().code() == absl::StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace ringmaster::worker
