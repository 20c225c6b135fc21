// One bit that changes on the wire, anywhere, while two members do what a step does: all buckets in
// one round, sums of int32 and int64, a record beside the last. An error that says what, or no
// effect; never a wrong sum, not even in a bucket that finished before the error; never a wait
// without an end.
#include <algorithm>
#include <array>
#include <catch2/catch.hpp>
#include <chrono>
#include <map>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "common/exact/block_sums.h"
#include "tests/worker/ring/grpc/flipping_proxy.h"
#include "tests/worker/ring/grpc/port_ring.h"
#include "worker/ring/all_reduce.h"

namespace ringmaster::ring {
namespace {

using std::chrono::seconds;
using Clock = std::chrono::steady_clock;

constexpr size_t kFlipBlocks = 48;
constexpr uint32_t kFlipBuckets = 3;
constexpr size_t kRecordBlocks = 2;
// A frame that lost its length waits for bytes that nobody sends, until this is over.
constexpr seconds kFlipPatience{2};
// Where nothing was changed all of it comes.
constexpr seconds kUnflippedPatience{60};

// What one member of two came to.
struct FlipMember {
  Status status;
  std::string wrong;  // what must not be; empty
  Clock::duration took{};
};

class FlipCase {
 public:
  FlipCase(PortRing* ring, GenerationId generation, std::string address, seconds patience)
      : ring_(ring), generation_(generation), address_(std::move(address)), patience_(patience) {}

  // Member 0 reaches member 1 at the address.
  std::vector<FlipMember> Run() {
    std::vector<FlipMember> members(2);
    std::vector<std::jthread> threads;
    for (uint32_t rank = 0; rank < 2; ++rank) {
      threads.emplace_back([this, rank, &members]() {
        const auto begin = Clock::now();
        members[rank].status = Reduce(rank, &members[rank].wrong);
        members[rank].took = Clock::now() - begin;
      });
    }
    threads.clear();
    return members;
  }

 private:
  // Of a bucket, or behind the last one of the record. Every fifth block is of int64.
  [[nodiscard]] static std::vector<int64_t> Own(uint32_t rank, uint32_t bucket) {
    std::mt19937_64 random(rank * 100 + bucket);
    const size_t blocks = bucket < kFlipBuckets ? kFlipBlocks : kRecordBlocks;
    std::vector<int64_t> own(blocks * exact::kBlockElements);
    for (size_t i = 0; i < own.size(); ++i) {
      own[i] = static_cast<int64_t>(random()) >> (i / exact::kBlockElements % 5 == 0 ? 20 : 44);
    }
    return own;
  }
  [[nodiscard]] static std::vector<int64_t> Read(const exact::BlockSums& sums, uint32_t bucket) {
    std::vector<int64_t> read(kFlipBlocks * exact::kBlockElements);
    for (size_t b = 0; b < kFlipBlocks; ++b) {
      sums.Read(bucket * kFlipBlocks + b,
                std::span(read).subspan(b * exact::kBlockElements, exact::kBlockElements));
    }
    return read;
  }

  // One member's.
  struct Sums {
    exact::BlockSums own{kFlipBuckets * kFlipBlocks}, totals{kFlipBuckets * kFlipBlocks};
    std::vector<int64_t> record, record_total;

    explicit Sums(uint32_t rank) : record(Own(rank, kFlipBuckets)), record_total(record.size()) {
      for (uint32_t bucket = 0; bucket < kFlipBuckets; ++bucket) {
        const std::vector<int64_t> numbers = Own(rank, bucket);
        for (size_t b = 0; b < kFlipBlocks; ++b) {
          own.Write(bucket * kFlipBlocks + b,
                    std::span(numbers).subspan(b * exact::kBlockElements, exact::kBlockElements));
        }
      }
    }
    [[nodiscard]] std::vector<int64_t> Contribution(uint32_t bucket) const {
      return bucket < kFlipBuckets ? Read(own, bucket) : record;
    }
    [[nodiscard]] std::vector<int64_t> Totals(uint32_t bucket) const {
      return bucket < kFlipBuckets ? Read(totals, bucket) : record_total;
    }
  };

  Status Reduce(uint32_t rank, std::string* wrong) {
    LinkOptions options = ring_->OptionsOf({0, 1}, rank, generation_);
    if (rank == 0) options.successor_address = address_;
    RING_ASSIGN_OR_RETURN(const auto link,
                          ring_->port(rank)->Connect(options, Clock::now() + patience_));
    Sums sums(rank);
    AllReduce reduce(link.get(), {rank, 2},
                     {.segment_elements = 4 * exact::kBlockElements, .progress_limit = patience_});
    const Status status = ReduceRound(&reduce, &sums);
    for (uint32_t bucket = 0; bucket <= kFlipBuckets; ++bucket) {
      if (sums.Contribution(bucket) != Own(rank, bucket)) {
        *wrong = fmt::format("bucket {}: the contribution changed", bucket);
      }
    }
    const std::vector<uint32_t> finished = reduce.TakeFinished();
    for (const uint32_t bucket : finished) {
      std::vector<int64_t> expected = Own(0, bucket);
      const std::vector<int64_t> other = Own(1, bucket);
      for (size_t i = 0; i < other.size(); ++i) expected[i] += other[i];
      if (sums.Totals(bucket) != expected) *wrong = fmt::format("bucket {}: a wrong sum", bucket);
    }
    if (status.ok() && finished.size() != kFlipBuckets + 1) *wrong = "not every bucket finished";
    return status;
  }

  Status ReduceRound(AllReduce* reduce, Sums* sums) {
    const std::vector<exact::Block> blocks(kFlipBlocks, {0, 0, exact::kBlockElements});
    const std::vector<exact::Block> of_record(kRecordBlocks, {0, 0, exact::kBlockElements});
    reduce->Begin({.job = JobHash("job-1"), .generation = generation_});
    for (uint32_t bucket = 0; bucket < kFlipBuckets; ++bucket) {
      RING_RETURN_IF_ERROR(reduce->AddExact(bucket, blocks, {&sums->own, bucket * kFlipBlocks},
                                            {&sums->totals, bucket * kFlipBlocks}));
      reduce->Nudge();  // as if the next one were there
      RING_RETURN_IF_ERROR(reduce->Work(AllReduce::Until::kNews));
    }
    RING_RETURN_IF_ERROR(reduce->AddExact(kFlipBuckets, of_record,
                                          std::span<const int64_t>(sums->record),
                                          std::span(sums->record_total)));
    return reduce->Work(AllReduce::Until::kIdle);
  }

  PortRing* const ring_;
  const GenerationId generation_;
  const std::string address_;
  const seconds patience_;
};

// How many of a run had which effect, for people.
using Effects = std::map<std::string, int>;

// Empty: as it should be.
std::string Judge(const FlipMember& member, seconds patience) {
  if (!member.wrong.empty()) return member.wrong;
  // Connecting, and a wait for one frame; the rest is room for a machine under load.
  if (member.took > 2 * patience + seconds(30)) return "it took too long";
  if (member.status.ok()) return "";
  switch (member.status.code()) {
    case absl::StatusCode::kUnavailable:         // the connection broke: the neighbour, by name
    case absl::StatusCode::kAborted:             // the neighbour left: it has the error
    case absl::StatusCode::kInvalidArgument:     // a frame, or the hello
    case absl::StatusCode::kPermissionDenied:    // the hello, as of another process
    case absl::StatusCode::kFailedPrecondition:  // of something else
    case absl::StatusCode::kDeadlineExceeded:    // nothing came
      break;
    default:
      return "an unexpected error: " + member.status.ToString();
  }
  const std::string message = Message(member.status);
  const bool named =
      message.find("worker-") != std::string::npos || message.find("frame") != std::string::npos;
  return named ? "" : "an error that names nobody: " + message;
}

// Flips `count` bits, each in a ring of its own; the first wrong outcome.
std::string FlipBits(int count, uint64_t seed, Effects* effects) {
  PortRing ring(2, {}, Payloads::kTcp);
  std::mt19937_64 random(seed);
  uint64_t next = 0;
  const auto through = [&](Flip flip, seconds patience, std::string* told) {
    FlippingProxy proxy(ring.port(1)->port(), flip);
    FlipCase run(&ring, {1, ++next}, fmt::format("127.0.0.1:{}", proxy.port()), patience);
    const std::vector<FlipMember> members = run.Run();
    proxy.Stop();
    for (uint32_t rank = 0; rank < 2; ++rank) {
      if (const std::string bad = Judge(members[rank], patience); !bad.empty()) {
        *told = fmt::format("worker-{}, byte {} bit {} {}: {}", rank, flip.byte, flip.bit,
                            flip.way == Way::kToServer ? "to the server" : "to the client", bad);
      }
    }
    const Status& first = members[0].status.ok() ? members[1].status : members[0].status;
    ++(*effects)[!proxy.flipped() ? "not reached" : absl::StatusCodeToString(first.code())];
    return std::array<uint64_t, 2>{proxy.seen(Way::kToServer), proxy.seen(Way::kToClient)};
  };
  // Without a flip: how many bytes there are.
  std::string told;
  const auto bytes = through({Way::kToServer, UINT64_MAX, 0}, kUnflippedPatience, &told);
  if (!told.empty() || bytes[0] < 10'000 || bytes[1] < 20) return "without a flip: " + told;
  const auto draw = [&](uint64_t most) {
    return std::uniform_int_distribution<uint64_t>(0, most)(random);
  };
  for (int i = 0; i < count && told.empty(); ++i) {
    Flip flip;
    flip.way = draw(3) == 0 ? Way::kToClient : Way::kToServer;
    // Every third one near the beginning, where there are more settings than numbers.
    const uint64_t all = bytes[static_cast<size_t>(flip.way)];
    flip.byte = draw(draw(2) == 0 ? std::min<uint64_t>(all - 1, 400) : all - 1);
    flip.bit = static_cast<int>(draw(7));
    (void)through(flip, kFlipPatience, &told);
  }
  return told;
}

void PrintEffects(const Effects& effects) {
  for (const auto& [effect, count] : effects) fmt::print("flipped bits: {} {}\n", count, effect);
}

TEST_CASE("GrpcLink: of 200 bits that change on the wire none makes a wrong sum or a hang") {
  Effects effects;
  CHECK(FlipBits(200, 1, &effects) == "");
  PrintEffects(effects);
}

TEST_CASE("GrpcLink: of ten thousand bits that change on the wire none makes a wrong sum or a hang",
          "[nightly]") {
  // Rings beside each other: most of a ring's time is a wait for what a flip has kept from coming.
  constexpr size_t kBeside = 5;
  std::array<Effects, kBeside> effects;
  std::array<std::string, kBeside> told;
  {
    std::vector<std::jthread> threads;
    for (size_t i = 0; i < kBeside; ++i) {
      threads.emplace_back([&, i]() { told[i] = FlipBits(10'000 / kBeside, 2 + i, &effects[i]); });
    }
  }
  for (const std::string& each : told) CHECK(each == "");
  Effects all;
  for (const Effects& each : effects) {
    for (const auto& [effect, count] : each) all[effect] += count;
  }
  PrintEffects(all);
}

}  // namespace
}  // namespace ringmaster::ring
