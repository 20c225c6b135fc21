// A link that is cancelled while two to four members do what steps do: several buckets in one
// round, sums of int32 and int64, a record beside the last.
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

#include "common/exact/block_sums.h"
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
  // From the Cancel until its member's thread returned: until now. On that thread.
  [[nodiscard]] steady_clock::duration TimeSinceCancel() {
    const auto now = steady_clock::now();
    if (other_.joinable()) other_.join();
    return now - cancelled_;
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
  exact::BlockSums own, totals;
  std::vector<int64_t> before;  // what `own` holds
  std::vector<int64_t> record, record_total;
  Status status;
};

// A ring that reduces one round after the other until one of its members cancels.
class CancelCase {
 public:
  CancelCase(uint64_t seed, std::vector<Link*> links, GenerationId generation)
      : random_(seed), links_(std::move(links)), generation_(generation) {
    const size_t buckets = Draw(1, 4);
    for (size_t i = 0; i < buckets; ++i) {
      buckets_.push_back({blocks_.size(), Draw(1, 60)});
      blocks_.resize(blocks_.size() + buckets_.back().block_count, Block{0, 0, kBlockElements});
    }
    for (size_t rank = 0; rank < links_.size(); ++rank) members_.push_back(MakeMember());
  }

  void Run() {
    const size_t victim = Draw(0, links_.size() - 1);
    const auto by = Draw(0, 1) == 0 ? TripLink::By::kOwnThread : TripLink::By::kOtherThread;
    const ReduceOptions options{.segment_elements = kBlockElements * Draw(1, 20)};
    victim_ = victim;
    TripLink trip(links_[victim], Draw(0, 200), by);
    for (uint32_t rank = 0; rank < links_.size(); ++rank) {
      Link* const link = rank == victim ? &trip : links_[rank];
      const Position position{rank, static_cast<uint32_t>(links_.size())};
      members_[rank].all_reduce = std::make_unique<AllReduce>(link, position, options);
    }
    {
      std::vector<std::jthread> threads;
      for (size_t rank = 0; rank < members_.size(); ++rank) {
        threads.emplace_back([this, &trip, rank]() {
          Reduce(&members_[rank]);
          if (rank == victim_) latency_ = trip.TimeSinceCancel();
        });
      }
    }
  }

  // What is wrong with how it ended; empty when nothing is.
  [[nodiscard]] std::string Wrong() const {
    for (size_t rank = 0; rank < members_.size(); ++rank) {
      const Member& member = members_[rank];
      if (Read(member.own) != member.before) {
        return fmt::format("contribution of {} changed", rank);
      }
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
      Member kept;
      kept.all_reduce = std::move(member.all_reduce);
      member = std::move(kept);
    }
  }

 private:
  // Of blocks of 1 to 60 bits.
  Member MakeMember() {
    Member member{.own = exact::BlockSums(blocks_.size()),
                  .totals = exact::BlockSums(blocks_.size())};
    member.before.resize(blocks_.size() * kBlockElements);
    for (size_t b = 0; b < blocks_.size(); ++b) {
      const auto part = std::span(member.before).subspan(b * kBlockElements, kBlockElements);
      const auto shift = Draw(4, 63);
      for (int64_t& value : part) value = static_cast<int64_t>(random_()) >> shift;
      member.own.Write(b, part);
    }
    member.record.assign(kRecord.size() * kBlockElements, static_cast<int64_t>(random_()));
    member.record_total.resize(member.record.size());
    return member;
  }
  [[nodiscard]] std::vector<int64_t> Read(const exact::BlockSums& sums) const {
    std::vector<int64_t> read(blocks_.size() * kBlockElements);
    for (size_t b = 0; b < blocks_.size(); ++b) {
      sums.Read(b, std::span(read).subspan(b * kBlockElements, kBlockElements));
    }
    return read;
  }
  void Reduce(Member* member) {
    for (uint64_t step = 0; member->status.ok(); ++step) member->status = Round(step, member);
  }
  Status Round(uint64_t step, Member* member) {
    AllReduce& reduce = *member->all_reduce;
    reduce.Begin({.job = JobHash("job-1"), .generation = generation_, .step = step});
    uint32_t index = 0;
    for (const exact::Bucket& bucket : buckets_) {
      RING_RETURN_IF_ERROR(reduce.AddExact(
          index++, std::span(blocks_).subspan(bucket.first_block, bucket.block_count),
          {&member->own, bucket.first_block}, {&member->totals, bucket.first_block}));
      reduce.Nudge();  // as if the next one were there
      RING_RETURN_IF_ERROR(reduce.Work(AllReduce::Until::kNews));
    }
    RING_RETURN_IF_ERROR(reduce.AddExact(index, kRecord, std::span<const int64_t>(member->record),
                                         std::span(member->record_total)));
    return reduce.Work(AllReduce::Until::kIdle);
  }
  size_t Draw(size_t least, size_t most) {
    return std::uniform_int_distribution<size_t>(least, most)(random_);
  }

  inline static const std::vector<Block> kRecord{3, Block{0, 0, kBlockElements}};

  std::mt19937_64 random_;
  const std::vector<Link*> links_;
  const GenerationId generation_;
  std::vector<Block> blocks_;
  std::vector<exact::Bucket> buckets_;
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
// its contribution. How soon is printed, not judged, as other programs have the processors too;
// that no timer is in between is in link_edges_test.cc.
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
