#include <algorithm>
#include <catch2/catch.hpp>
#include <chrono>
#include <deque>
#include <future>
#include <limits>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "common/mutex.h"
#include "tests/support/forwarding_link.h"
#include "tests/worker/ring/grpc/peer_process.h"
#include "tests/worker/ring/grpc/port_ring.h"
#include "worker/ring/all_reduce.h"

namespace ringmaster::ring {
namespace {

using exact::Block;
using exact::kBlockElements;
using std::chrono::milliseconds;
using std::chrono::seconds;
using std::chrono::steady_clock;

steady_clock::time_point InAMinute() { return steady_clock::now() + seconds(60); }

// A link that is cancelled when its member has sent and received so many frames: in place, or by
// another thread while its own goes on.
class TripLink : public ForwardingLink {
 public:
  enum class By { kOwnThread, kOtherThread };
  TripLink(Link* link, uint64_t after, By by) : ForwardingLink(link), left_(after), by_(by) {}

  Status Send(const FrameHeader& header, const Payload& payload,
              steady_clock::time_point deadline) override {
    Count();
    return ForwardingLink::Send(header, payload, deadline);
  }
  StatusOr<Frame> Receive(steady_clock::time_point deadline) override {
    Count();
    return ForwardingLink::Receive(deadline);
  }
  // After the other thread, if there was one.
  [[nodiscard]] steady_clock::time_point cancelled() {
    if (other_.joinable()) other_.join();
    return cancelled_;
  }

 private:
  void Count() {
    if (left_-- != 0) return;
    if (by_ == By::kOwnThread) {
      Trip();
    } else {
      other_ = std::jthread([this]() { Trip(); });
    }
  }
  void Trip() {
    cancelled_ = steady_clock::now();
    Cancel(absl::CancelledError("fenced"));
  }

  uint64_t left_;
  const By by_;
  steady_clock::time_point cancelled_;
  std::jthread other_;
};

// What one member had and got.
struct Member {
  std::unique_ptr<AllReduce> all_reduce;
  std::vector<int64_t> own;
  std::vector<int64_t> before;  // a copy of `own`
  Status status;
  steady_clock::time_point returned;
};

// A ring that reduces one bucket after the other until one of its members cancels.
class CancelCase {
 public:
  CancelCase(uint64_t seed, std::vector<Link*> links, GenerationId generation)
      : random_(seed), links_(std::move(links)), generation_(generation) {
    blocks_.assign(Draw(1, 150), Block{0, 0, kBlockElements});
    for (size_t rank = 0; rank < links_.size(); ++rank) {
      Member member;
      member.own.resize(blocks_.size() * kBlockElements);
      for (int64_t& value : member.own) value = static_cast<int64_t>(random_()) >> (random_() % 60);
      member.before = member.own;
      members_.push_back(std::move(member));
    }
  }

  void Run() {
    const size_t victim = Draw(0, links_.size() - 1);
    const auto by = Draw(0, 1) == 0 ? TripLink::By::kOwnThread : TripLink::By::kOtherThread;
    const ReduceOptions options{.segment_elements = kBlockElements * Draw(1, 20)};
    TripLink trip(links_[victim], Draw(0, 200), by);
    for (uint32_t rank = 0; rank < links_.size(); ++rank) {
      Link* const link = rank == victim ? &trip : links_[rank];
      const Position position{rank, static_cast<uint32_t>(links_.size())};
      members_[rank].all_reduce = std::make_unique<AllReduce>(link, position, options);
    }
    {
      std::vector<std::jthread> threads;
      for (Member& member : members_) threads.emplace_back([&]() { Reduce(&member); });
    }
    latency_ = members_[victim].returned - trip.cancelled();
    victim_ = victim;
  }

  // What is wrong with how it ended; empty when nothing is.
  [[nodiscard]] std::string Wrong() const {
    for (size_t rank = 0; rank < members_.size(); ++rank) {
      const Member& member = members_[rank];
      if (member.own != member.before) return fmt::format("contribution of {} changed", rank);
      // Nobody is lost: whoever is not the one that cancelled learns that a neighbour left.
      const auto expected =
          rank == victim_ ? absl::StatusCode::kCancelled : absl::StatusCode::kAborted;
      if (member.status.code() != expected) {
        return fmt::format("member {} of {}, {} cancelled: {}", rank, members_.size(), victim_,
                           member.status.ToString());
      }
    }
    return "";
  }
  [[nodiscard]] steady_clock::duration latency() const { return latency_; }
  // Buffers that the transport still holds.
  [[nodiscard]] size_t unsent() const {
    size_t sum = 0;
    for (const Member& member : members_) sum += member.all_reduce->unsent();
    return sum;
  }
  // Keeps the buffers alone.
  void Forget() {
    for (Member& member : members_) {
      member.own = {};
      member.before = {};
    }
  }

 private:
  void Reduce(Member* member) {
    Context context{.job = JobHash("job-1"), .generation = generation_};
    std::vector<int64_t> totals(member->own.size());
    while (member->status.ok()) {
      member->status = member->all_reduce->Exact(context, blocks_, member->own, totals);
      ++context.bucket;
    }
    member->returned = steady_clock::now();
  }
  size_t Draw(size_t least, size_t most) {
    return std::uniform_int_distribution<size_t>(least, most)(random_);
  }

  std::mt19937_64 random_;
  const std::vector<Link*> links_;
  const GenerationId generation_;
  std::vector<Block> blocks_;
  std::vector<Member> members_;
  size_t victim_ = 0;
  steady_clock::duration latency_{};
};

void Print(const char* what, std::vector<steady_clock::duration> times) {
  std::sort(times.begin(), times.end());
  const auto at = [&](double part) {
    const auto index = static_cast<size_t>(part * static_cast<double>(times.size() - 1));
    return std::chrono::duration<double, std::milli>(times[index]).count();
  };
  fmt::print("{}: n={} p50={:.3f} p99={:.3f} max={:.3f} ms\n", what, times.size(), at(0.5),
             at(0.99), at(1));
}

// Whether `done` comes to hold within a minute.
template <typename Done>
bool Eventually(Done done) {
  for (const auto deadline = InAMinute(); !done(); std::this_thread::yield()) {
    if (steady_clock::now() > deadline) return false;
  }
  return true;
}

// So many rings of 2 to 4 members, each cancelled at a random frame: every member returns and keeps
// its contribution, and the one that was cancelled is back within 50 ms, but for a few in a hundred
// where other programs have the processors.
void CancelRings(uint64_t count) {
  // A machine under load may take long to deliver a goodbye; nobody waits for it here.
  PortRing ring(4, {.cancel_limit = seconds(60)});
  std::deque<CancelCase> cases;
  std::vector<steady_clock::duration> latencies, ends, joins;
  std::mt19937_64 random(1);
  for (uint64_t seed = 1; seed <= count; ++seed) {
    std::vector<uint32_t> order(4);
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), random);
    order.resize(2 + seed % 3);
    const GenerationId generation{1, seed};
    const auto joining = steady_clock::now();
    auto links = ring.Connect(order, generation);
    if (!links.ok()) FAIL(Message(links.status()));
    joins.push_back(steady_clock::now() - joining);
    std::vector<Link*> pointers;
    for (const auto& link : *links) pointers.push_back(link.get());
    CancelCase& run = cases.emplace_back(seed, pointers, generation);
    run.Run();
    INFO("seed " << seed);
    REQUIRE(run.Wrong() == "");
    latencies.push_back(run.latency());
    run.Forget();
    for (auto& link : *links) {
      const auto ending = steady_clock::now();
      link.reset();
      ends.push_back(steady_clock::now() - ending);
    }
  }
  const auto late = std::count_if(latencies.begin(), latencies.end(),
                                  [](auto latency) { return latency > milliseconds(50); });
  CHECK(late <= static_cast<int64_t>(count / 33));
  Print("Cancel until the all-reduce returns", latencies);
  Print("end of a cancelled link", ends);
  Print("connecting the next one", joins);
  CHECK(Eventually([&]() {
    return std::all_of(cases.begin(), cases.end(),
                       [](const CancelCase& run) { return run.unsent() == 0; });
  }));
}

}  // namespace

TEST_CASE("GrpcLink: cancelled at any frame, every member returns and keeps its contribution") {
  CancelRings(100);
}

TEST_CASE("GrpcLink: the same a thousand times", "[nightly]") { CancelRings(1'000); }

TEST_CASE("GrpcLink: a neighbour that stands still holds up neither a Cancel nor the next ring") {
  PeerProcess peer;
  const int peer_port = peer.ReadPort();
  REQUIRE(peer_port != 0);
  PortRing ring(2, {.cancel_limit = milliseconds(100)});
  LinkOptions options = ring.OptionsOf({0, 1}, 0, {1, 1});
  options.successor_address = "127.0.0.1:" + std::to_string(peer_port);
  peer.WritePort(ring.port(0)->port());
  auto link = ring.port(0)->Connect(options, InAMinute());
  REQUIRE(link.ok());
  REQUIRE((*link)->Receive(InAMinute()).ok());
  peer.Stop();

  BufferPool pool(1 << 20, 4);
  auto sending = std::async(std::launch::async, [&]() {
    Status status;
    while (status.ok()) {
      auto buffer = pool.Acquire();
      std::fill_n(buffer.get(), pool.buffer_bytes(), 7);
      const Payload payload({{buffer.get(), pool.buffer_bytes()}}, buffer);
      buffer.reset();
      const FrameHeader header = Sealed({.job = JobHash("job-1"), .generation = {1, 1}}, payload);
      status = (*link)->Send(header, payload, InAMinute());
    }
    return status;
  });
  // Seven are unsent, and the eighth does not fit beside their headers: Send waits.
  REQUIRE(Eventually([&]() { return pool.out() >= 8; }));
  const auto cancelled = steady_clock::now();
  (*link)->Cancel(absl::CancelledError("fenced"));
  CHECK(sending.get() == absl::CancelledError("fenced"));
  CHECK((*link)->Receive(InAMinute()).status() == absl::CancelledError("fenced"));
  link->reset();
  const auto next = ring.Connect({0, 1}, {1, 2});
  const auto joined = steady_clock::now();
  REQUIRE(next.ok());
  Print("from Cancel beside a stopped neighbour to the next ring", {joined - cancelled});
  CHECK(Eventually([&]() { return pool.out() == 0; }));
}

TEST_CASE("GrpcLink: who stops to connect left, for a neighbour that accepted it already") {
  PortRing ring(3, {.cancel_limit = seconds(60)});
  const auto bystander = *RingPort::Create({"127.0.0.1", 0});
  std::stop_source stop;
  std::vector<std::future<StatusOr<std::unique_ptr<Link>>>> joining;
  for (uint32_t rank = 0; rank < 3; ++rank) {
    LinkOptions options = ring.OptionsOf({0, 1, 2}, rank, {1, 1});
    options.stop = stop.get_token();
    // Member 0 never sees its predecessor, so it does not join; member 1 does.
    if (rank == 2) options.successor_address = "127.0.0.1:" + std::to_string(bystander->port());
    joining.push_back(std::async(std::launch::async, [&, rank, options]() {
      return ring.port(rank)->Connect(options, InAMinute());
    }));
  }
  const auto link = joining[1].get();
  REQUIRE(link.ok());
  stop.request_stop();
  CHECK(joining[0].get().status().code() == absl::StatusCode::kCancelled);
  CHECK(joining[2].get().status().code() == absl::StatusCode::kCancelled);
  CHECK((*link)->Receive(InAMinute()).status().code() == absl::StatusCode::kAborted);
}

}  // namespace ringmaster::ring
