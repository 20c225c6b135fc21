#include "worker/job/generation_run.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <future>
#include <thread>
#include <utility>

#include "tests/support/forwarding_link.h"
#include "tests/support/memory_link.h"
#include "tests/worker/train/fake_case.h"
#include "worker/session.h"

namespace ringmaster::worker {
namespace {

// A port whose answers the test chooses. `on_connect` is called in Connect, before the answer.
class FakePort : public ring::RingPort {
 public:
  [[nodiscard]] uint16_t port() const override { return 1; }
  StatusOr<std::unique_ptr<ring::Link>> Connect(const ring::LinkOptions& options,
                                                std::chrono::steady_clock::time_point) override {
    link_options = options;
    if (on_connect) on_connect();
    RING_RETURN_IF_ERROR(connect);
    return std::make_unique<ring::ForwardingLink>(link);
  }
  StatusOr<std::unique_ptr<ring::PeerWatch>> Watch(const ring::WatchOptions& options) override {
    RING_RETURN_IF_ERROR(watch);
    watch_options = options;
    return std::make_unique<Watching>(&watching);
  }
  void KeepReady(const std::vector<ring::Successor>& next) override {
    ready.clear();
    for (const ring::Successor& each : next) ready.push_back(each.name + " " + each.address);
  }
  std::shared_ptr<grpc::Channel> TakeStateChannel(const ring::Successor&) override {
    return nullptr;
  }
  void Stop() override {}

  struct Watching : public ring::PeerWatch {
    explicit Watching(bool* on) : on_(on) { *on_ = true; }
    ~Watching() override { *on_ = false; }
    bool* const on_;
  };

  ring::Link* link = nullptr;
  Status connect, watch;
  std::function<void()> on_connect;
  ring::LinkOptions link_options;
  ring::WatchOptions watch_options;
  std::vector<std::string> ready;
  bool watching = false;
};

// Rank 1 of w0, w1, w2 in generation 1.2, which starts with S(0); its neighbours are links that
// nobody serves.
struct RankOne {
  RankOne() : phases([this](Event event) { events.push_back(std::move(event)); }) {
    auto prepared = job.Prepare();
    REQUIRE(prepared.ok());
    trainer = *std::move(prepared);
    task.job = JobId("job");
    task.start.set_job_id("job");
    task.start.mutable_generation()->set_term(1);
    task.start.mutable_generation()->set_counter(2);
    task.start.set_ticket("of generation 2");
    for (int i = 0; i < 3; ++i) {
      v1::RingMember& member = *task.start.add_ring();
      member.set_name("w" + std::to_string(i));
      member.set_incarnation("i" + std::to_string(i));
      member.set_ring_address("host" + std::to_string(i) + ":1");
      member.set_holds(true);
      member.add_shards(static_cast<uint32_t>(i));
    }
    port.link = ring.link(1);
    surroundings.name = "w1";
    surroundings.incarnation = "i1";
    surroundings.port = &port;
    surroundings.coordinator = CoordinatorChannel(Address{"127.0.0.1", 1});
    surroundings.phases = &phases;
    surroundings.post = [this](Event event) { events.push_back(std::move(event)); };
  }

  RunEnded Go() {
    return GenerationRun(&surroundings, &task, trainer, &mark, &training).Run(stops);
  }

  FakeCase job;
  ring::MemoryRing ring{3};
  FakePort port;
  std::vector<Event> events;
  StartPhases phases;
  RunSurroundings surroundings;
  RunJob task;
  std::shared_ptr<Trainer> trainer;
  StateMark mark;
  std::atomic<bool> training = false;
  RunStops stops;
};

// Tells when its own member has ended it.
struct EndedLink : ring::ForwardingLink {
  using ForwardingLink::ForwardingLink;
  void Cancel(Status reason) override {
    ForwardingLink::Cancel(std::move(reason));
    if (!told.exchange(true)) ended.set_value();
  }
  std::atomic<bool> told = false;
  std::promise<void> ended;
};

template <typename T>
const T* Posted(const RankOne& run) {
  for (const Event& event : run.events) {
    if (const T* found = std::get_if<T>(&event)) return found;
  }
  return nullptr;
}

TEST_CASE("GenerationRun: both neighbours are linked and watched, from before the ring is there") {
  RankOne run;
  run.port.on_connect = [&]() { CHECK(run.port.watching); };
  run.stops.now.request_stop();
  const RunEnded ended = run.Go();
  CHECK(ended.outcome == Outcome::kStopped);
  CHECK(ended.generation == GenerationId{1, 2});
  CHECK_FALSE(run.port.watching);
  const ring::LinkOptions& link = run.port.link_options;
  CHECK(link.job_id == "job");
  CHECK(link.generation == GenerationId{1, 2});
  CHECK(link.ticket == "of generation 2");
  CHECK(link.successor_name == "w2");
  CHECK(link.successor_address == "host2:1");
  CHECK(link.predecessor_name == "w0");
  CHECK(link.predecessor_incarnation == "i0");
  const ring::WatchOptions& watch = run.port.watch_options;
  CHECK(watch.generation == GenerationId{1, 2});
  CHECK(watch.ticket == "of generation 2");
  CHECK(watch.self_name == "w1");
  CHECK(watch.self_incarnation == "i1");
  CHECK(watch.successor_name == "w2");
  CHECK(watch.successor_address == "host2:1");
  CHECK(watch.predecessor_name == "w0");
  CHECK(watch.predecessor_incarnation == "i0");
  CHECK(watch.content().phase == "idle");
}

TEST_CASE("GenerationRun: whom the watch suspects is told with the step, and the run goes on") {
  RankOne run;
  run.port.on_connect = [&]() {
    run.port.watch_options.suspect("w2", "no beat for 300 ms");
    run.ring.Lose(0);  // so that it ends
  };
  const RunEnded ended = run.Go();
  const auto* suspected = Posted<PeerSuspected>(run);
  REQUIRE(suspected != nullptr);
  CHECK(suspected->job == JobId("job"));
  CHECK(suspected->generation == GenerationId{1, 2});
  CHECK(suspected->peer == "w2");
  CHECK(suspected->step == 0);
  CHECK(suspected->reason == "no beat for 300 ms");
  CHECK(Posted<RunJoined>(run) != nullptr);
  CHECK(ended.outcome == Outcome::kPeerLost);
}

TEST_CASE("GenerationRun: who joined has connections ready to the next two successors") {
  for (const int members : {3, 2}) {
    RankOne run;
    if (members == 2) run.task.start.mutable_ring()->RemoveLast();
    run.port.on_connect = [&]() {
      CHECK(run.port.ready.empty());
      run.ring.Lose(0);
    };
    CHECK(run.Go().outcome == Outcome::kPeerLost);
    REQUIRE(Posted<RunJoined>(run) != nullptr);
    CHECK(run.port.ready == (members == 2 ? std::vector<std::string>{"w0 host0:1"}
                                          : std::vector<std::string>{"w2 host2:1", "w0 host0:1"}));
  }
}

TEST_CASE("GenerationRun: a neighbour that cannot be reached is named") {
  RankOne run;
  run.port.ready = {"of the generation before"};
  run.port.connect = ring::WithNeighbour("w2", absl::UnavailableError("successor w0 was refused"));
  const RunEnded ended = run.Go();
  CHECK(ended.outcome == Outcome::kPeerLost);
  CHECK(ended.peer == "w2");
  CHECK(ended.applied == 0);
  CHECK(Posted<RunJoined>(run) == nullptr);
  CHECK(run.port.ready.size() == 1);
  CHECK_FALSE(run.port.watching);
}

TEST_CASE("GenerationRun: whom an error is about is not read out of its text") {
  RankOne run;
  run.port.connect = absl::UnavailableError("worker w2 left the ring: successor w0 is lost");
  CHECK(run.Go().peer.empty());
}

TEST_CASE("GenerationRun: a ring that broke because it is fenced accuses nobody") {
  for (const RunStop when : {RunStop::kNow, RunStop::kAtBoundary}) {
    RankOne run;
    run.port.connect = absl::FailedPreconditionError("successor w2 is in another generation");
    run.port.on_connect = [&]() { run.stops.Request(when); };
    CHECK(run.Go().outcome == Outcome::kStopped);
  }
}

TEST_CASE("GenerationRun: a neighbour that left because it was fenced is no loss") {
  for (const RunStop when : {RunStop::kNow, RunStop::kAtBoundary}) {
    RankOne run;
    run.surroundings.better_reason_limit = std::chrono::hours(1);
    EndedLink link(run.port.link);
    run.port.link = &link;
    run.port.on_connect = [&]() { run.ring.link(0)->Cancel(absl::CancelledError("fenced")); };
    const std::jthread coordinator([&]() {
      link.ended.get_future().wait();
      run.stops.Request(when);
    });
    CHECK(run.Go().outcome == Outcome::kStopped);
  }
}

TEST_CASE(
    "GenerationRun: the ring is connected before the state is fetched, and joined after that") {
  RankOne run;
  run.task.start.mutable_ring(1)->set_holds(false);
  run.task.start.set_start_step(3);
  std::vector<std::string> order;
  run.port.on_connect = [&]() { order.emplace_back("connect"); };
  run.surroundings.sources.peer = [&](const FetchOptions& options, StateSink*,
                                      const std::stop_token&) -> Status {
    order.push_back("fetch from " + options.source);
    CHECK(Posted<RunJoined>(run) == nullptr);
    return absl::UnavailableError("it is lost");
  };
  const RunEnded ended = run.Go();
  CHECK(order == std::vector<std::string>{"connect", "fetch from w2", "fetch from w0"});
  CHECK(ended.outcome == Outcome::kPeerLost);
  CHECK(ended.peer == "w0");
  CHECK(Posted<RunJoined>(run) == nullptr);
  // Whoever computed meanwhile does not wait for it.
  for (const uint32_t neighbour : {0U, 2U}) {
    const Status left = neighbour == 2 ? run.ring.link(2)->Receive(ring::kNoWait).status()
                                       : run.ring.link(0)->Send({}, ring::Payload(), ring::kNoWait);
    CHECK(left.code() == absl::StatusCode::kAborted);
  }
}

TEST_CASE("GenerationRun: a worker that is not in the ring says so") {
  RankOne run;
  run.surroundings.incarnation = "another life";
  const RunEnded ended = run.Go();
  CHECK(ended.outcome == Outcome::kFailed);
  CHECK(ended.reason == "generation 1.2 of job job does not contain worker w1");
}

TEST_CASE("GenerationRun: what was computed is acknowledged after a run that never came to train") {
  RankOne run;
  run.mark = {{1, 2}, true};
  run.port.connect = ring::WithNeighbour("w0", absl::UnavailableError("predecessor w0 is lost"));
  const RunEnded ended = run.Go();
  CHECK(ended.peer == "w0");
  CHECK(ended.folded == std::vector<uint32_t>{1, 2});
  CHECK(ended.evaluated);
}

}  // namespace
}  // namespace ringmaster::worker
