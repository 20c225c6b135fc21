#include "worker/job/catch_up.h"

#include <catch2/catch.hpp>
#include <utility>

#include "tests/worker/train/follow_case.h"

namespace ringmaster::worker {
namespace {

std::string Bytes(const Sha256Digest& digest) { return {digest.begin(), digest.end()}; }

// A trainer that holds S(step).
std::unique_ptr<Trainer> TrainedTo(FakeCase* job, uint64_t step) {
  auto trainer = job->Prepare();
  REQUIRE(trainer.ok());
  if (step == 0) return *std::move(trainer);
  std::stop_source stop;
  StopAt observer(step, &stop);
  RunPeers peers;
  peers.observer = &observer;
  const RunResult result = (*trainer)->Run(
      {.generation = {1, 1}, .position = {0, 1}, .shards = {0, 1, 2, 3}}, peers, stop.get_token());
  REQUIRE(result.applied == step);
  return *std::move(trainer);
}

// Members w0, w1, ...; `holds` says who holds S(step).
v1::Start StartAt(uint64_t step, const Sha256Digest& digest, const std::vector<bool>& holds) {
  v1::Start start;
  start.set_job_id("job");
  start.set_start_step(step);
  start.set_digest(Bytes(digest));
  for (size_t i = 0; i < holds.size(); ++i) {
    v1::RingMember& member = *start.add_ring();
    member.set_name("w" + std::to_string(i));
    member.set_ring_address("host" + std::to_string(i) + ":1");
    member.set_holds(holds[i]);
  }
  return start;
}

CatchUpResult Run(const v1::Start& start, uint32_t rank, const StateSources& sources,
                  Trainer* trainer, const std::stop_token& stop = {}) {
  return CatchUp(&start, rank, &sources, trainer)
      .Run(std::chrono::steady_clock::now() + std::chrono::seconds(30), stop);
}

// Members that hold S(step) answer with it; who is asked is written down.
struct Peers {
  explicit Peers(Trainer* holder) {
    sources.peer = [this, holder](const FetchOptions& options, StateSink* sink,
                                  const std::stop_token&) -> Status {
      asked.push_back(options.source);
      addresses.push_back(options.address);
      if (options.source == silent) return absl::UnavailableError(options.source + " is silent");
      RING_ASSIGN_OR_RETURN(const MemoryState copy, CopyOf(*holder, options.step));
      return testing::WriteAll(copy, sink);
    };
  }

  StateSources sources;
  std::string silent;
  std::vector<std::string> asked, addresses;
};

TEST_CASE("CatchUp: a member that holds the state asks nobody") {
  FakeCase job;
  const auto holder = TrainedTo(&job, 3);
  const CatchUpResult result =
      Run(StartAt(3, holder->digest(), {true, false}), 0, StateSources(), holder.get());
  CHECK(result.status.ok());
  CHECK(result.seconds == 0);
}

TEST_CASE("CatchUp: a holder of another state fails the job, naming what differs") {
  FakeCase job;
  const auto holder = TrainedTo(&job, 3);
  const auto behind = TrainedTo(&job, 2);
  const CatchUpResult step =
      Run(StartAt(3, holder->digest(), {true}), 0, StateSources(), behind.get());
  CHECK(step.outcome == Outcome::kFailed);
  CHECK(Message(step.status) ==
        "told to start at step 3 with the state that it holds, which is of step 2");
  const CatchUpResult digest =
      Run(StartAt(3, behind->digest(), {true}), 0, StateSources(), holder.get());
  CHECK(digest.outcome == Outcome::kFailed);
  CHECK(Message(digest.status).find(Hex(behind->digest())) != std::string::npos);
}

TEST_CASE("CatchUp: who is behind fetches the state, each from another holder first") {
  FakeCase job;
  const auto holder = TrainedTo(&job, 3);
  const v1::Start start = StartAt(3, holder->digest(), {true, true, false, false});
  for (const uint32_t rank : {2U, 3U}) {
    const auto joiner = TrainedTo(&job, rank == 2 ? 2 : 0);
    Peers peers(holder.get());
    const CatchUpResult result = Run(start, rank, peers.sources, joiner.get());
    REQUIRE(Message(result.status).empty());
    CHECK(result.seconds > 0);
    CHECK(joiner->applied() == 3);
    CHECK(joiner->digest() == holder->digest());
    CHECK(peers.asked == std::vector<std::string>{rank == 2 ? "w0" : "w1"});
    CHECK(peers.addresses == std::vector<std::string>{rank == 2 ? "host0:1" : "host1:1"});
  }
}

TEST_CASE("CatchUp: a holder that is lost is replaced by the next; without another it is named") {
  FakeCase job;
  const auto holder = TrainedTo(&job, 3);
  const auto joiner = TrainedTo(&job, 0);
  Peers peers(holder.get());
  peers.silent = "w0";
  REQUIRE(Run(StartAt(3, holder->digest(), {true, true, false}), 2, peers.sources, joiner.get())
              .status.ok());
  CHECK(peers.asked == std::vector<std::string>{"w0", "w1"});
  const auto late = TrainedTo(&job, 0);
  const CatchUpResult lost =
      Run(StartAt(3, holder->digest(), {true, false}), 1, peers.sources, late.get());
  CHECK(lost.outcome == Outcome::kPeerLost);
  CHECK(lost.peer == "w0");
  CHECK(Message(lost.status) == "w0 is silent");
  CHECK(late->applied() == 0);
}

TEST_CASE("CatchUp: a state of another digest is not adopted") {
  FakeCase job;
  const auto holder = TrainedTo(&job, 3);
  const auto other = TrainedTo(&job, 2);
  const auto joiner = TrainedTo(&job, 0);
  const Sha256Digest before = joiner->digest();
  Peers peers(holder.get());
  const CatchUpResult result =
      Run(StartAt(3, other->digest(), {true, false}), 1, peers.sources, joiner.get());
  CHECK_FALSE(result.status.ok());
  CHECK(result.peer == "w0");
  CHECK(joiner->applied() == 0);
  CHECK(joiner->digest() == before);
}

TEST_CASE("CatchUp: a state that is here already is not fetched again") {
  FakeCase job;
  const auto holder = TrainedTo(&job, 3);
  Peers peers(holder.get());
  CHECK(
      Run(StartAt(3, holder->digest(), {true, false}), 1, peers.sources, holder.get()).status.ok());
  CHECK(peers.asked.empty());
}

TEST_CASE("CatchUp: a fence that comes while the state is fetched stops the run") {
  FakeCase job;
  const auto joiner = TrainedTo(&job, 0);
  std::stop_source stop;
  StateSources sources;
  sources.peer = [&](const FetchOptions&, StateSink*, const std::stop_token& token) -> Status {
    stop.request_stop();
    REQUIRE(token.stop_requested());
    return absl::CancelledError("stopped");
  };
  const CatchUpResult result = Run(StartAt(3, joiner->digest(), {true, true, false}), 2, sources,
                                   joiner.get(), stop.get_token());
  CHECK(result.outcome == Outcome::kStopped);
}

TEST_CASE("CatchUp: a restored state comes from the checkpoint to the first, from it to the rest") {
  FakeCase job;
  const auto source = TrainedTo(&job, 4);
  v1::Start start = StartAt(4, {}, {false, false, false});
  start.clear_digest();
  start.mutable_restore()->set_job_id("job");
  start.mutable_restore()->set_step(4);
  start.mutable_restore()->set_manifest_sha256("ab");

  const auto first = TrainedTo(&job, 6);  // past it: a rewind
  Peers peers(first.get());
  peers.sources.checkpoint = [&](const v1::CheckpointSource& wanted,
                                 std::chrono::steady_clock::time_point,
                                 const std::stop_token&) -> StatusOr<Checkpoint> {
    CHECK(wanted.manifest_sha256() == "ab");
    return source->MakeCheckpoint();
  };
  REQUIRE(Message(Run(start, 0, peers.sources, first.get()).status).empty());
  CHECK(first->applied() == 4);
  CHECK(first->digest() == source->digest());
  CHECK(peers.asked.empty());

  const auto other = TrainedTo(&job, 0);
  REQUIRE(Message(Run(start, 2, peers.sources, other.get()).status).empty());
  CHECK(other->digest() == source->digest());
  CHECK(peers.asked == std::vector<std::string>{"w0"});
}

TEST_CASE("CatchUp: a checkpoint that is damaged fails the job, a coordinator that is away not") {
  FakeCase job;
  const auto first = TrainedTo(&job, 0);
  v1::Start start = StartAt(4, {}, {false});
  start.clear_digest();
  start.mutable_restore()->set_step(4);
  StateSources sources;
  Status answer;
  sources.checkpoint = [&](const v1::CheckpointSource&, std::chrono::steady_clock::time_point,
                           const std::stop_token&) -> StatusOr<Checkpoint> { return answer; };
  answer = absl::DataLossError("model.safetensors has another SHA-256");
  const CatchUpResult damaged = Run(start, 0, sources, first.get());
  CHECK(damaged.outcome == Outcome::kFailed);
  CHECK(Message(damaged.status) == "restoring the job: model.safetensors has another SHA-256");
  answer = absl::UnavailableError("connection refused");
  const CatchUpResult away = Run(start, 0, sources, first.get());
  CHECK(away.outcome == Outcome::kPeerLost);
  CHECK(away.peer.empty());
}

// S(3) is with w0, and w1 is to follow.
struct Followed {
  explicit Followed(const std::function<Status()>& refuses = [] { return absl::OkStatus(); }) {
    sources.peer = [this, refuses](const FetchOptions& options, StateSink* sink,
                                   const std::stop_token&) -> Status {
      asked.push_back(options.follows);
      if (options.follows == Follows::kNo) {
        RING_ASSIGN_OR_RETURN(const MemoryState copy, CopyOf(*holder, options.step));
        return testing::WriteAll(copy, sink);
      }
      RING_RETURN_IF_ERROR(refuses());
      RING_ASSIGN_OR_RETURN(const auto source, holder->Open(options.step, options.follows));
      return SendAll(source.get(), sink, {});
    };
    start.mutable_ring(1)->set_follows(true);
  }

  FakeCase job{FakeHooks{.has_state = [](uint32_t) { return false; }}};
  const std::unique_ptr<Trainer> holder = TrainedTo(&job, 3);
  const std::unique_ptr<Trainer> joiner = TrainedTo(&job, 0);
  v1::Start start = StartAt(3, holder->digest(), {true, false});
  StateSources sources;
  std::vector<Follows> asked;
};

TEST_CASE(
    "CatchUp: who follows waits for numbers alone, and has its former state again behind it") {
  Followed followed;
  const Sha256Digest first = followed.joiner->digest();
  {
    CatchUp catch_up(&followed.start, 1, &followed.sources, followed.joiner.get());
    const CatchUpResult result =
        catch_up.Run(std::chrono::steady_clock::now() + std::chrono::seconds(30), {});
    CHECK(result.status.ok());
    CHECK(result.follows);
    CHECK(followed.joiner->applied() == 3);
    CHECK(absl::IsUnavailable(followed.joiner->Open(3).status()));
  }
  CHECK(followed.asked == std::vector<Follows>{Follows::kYes});
  CHECK(followed.joiner->applied() == 0);
  CHECK(followed.joiner->digest() == first);
}

TEST_CASE("CatchUp: a state that cannot be followed is fetched whole") {
  Followed followed([] { return absl::FailedPreconditionError("it is on a device"); });
  const CatchUpResult result = Run(followed.start, 1, followed.sources, followed.joiner.get());
  CHECK(result.status.ok());
  CHECK_FALSE(result.follows);
  CHECK(followed.asked == std::vector<Follows>{Follows::kYes, Follows::kNo});
  CHECK(followed.joiner->digest() == followed.holder->digest());
}

TEST_CASE("CatchUp: a stop ends the wait for numbers") {
  std::stop_source stop;
  Followed followed([stop]() mutable {
    stop.request_stop();
    return absl::UnavailableError("nobody is there");
  });
  const CatchUpResult result =
      Run(followed.start, 1, followed.sources, followed.joiner.get(), stop.get_token());
  CHECK(result.outcome == Outcome::kStopped);
  CHECK(followed.joiner->applied() == 0);
}

}  // namespace
}  // namespace ringmaster::worker
