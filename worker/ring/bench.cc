#include "worker/ring/bench.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <iterator>
#include <limits>
#include <span>
#include <utility>

#include "common/check.h"
#include "common/exact/block_layout.h"

namespace ringmaster::ring {
namespace {

using Clock = std::chrono::steady_clock;

double SecondsSince(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

double Median(std::vector<double> values) {
  std::ranges::sort(values);
  const size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

// ---- a link -------------------------------------------------------------------------------------

// The frames of a link's measurement; a frame's step says which of them it is.
enum class Kind : uint64_t { kPing = 1, kProbe = 2, kFlood = 3, kLastOfFlood = 4, kAnswer = 5 };

constexpr size_t kSmallBytes = 64;
constexpr size_t kLargeBytes = size_t{1} << 20;
constexpr int kPings = 110, kWarmPings = 10;
constexpr int kProbes = 8;
constexpr double kFloodSeconds = 0.3;

class LinkMeter {
 public:
  LinkMeter(Link* link, const Context& context, Clock::time_point deadline)
      : link_(link),
        context_(context),
        deadline_(deadline),
        small_(std::vector<uint8_t>(kSmallBytes, 0x5a)),
        large_(std::vector<uint8_t>(kLargeBytes, 0xa5)) {}

  StatusOr<LinkFigures> AsFirst() {
    std::vector<double> trips;
    for (int i = 0; i < kPings; ++i) {
      const auto begin = Clock::now();
      RING_RETURN_IF_ERROR(Send(Kind::kPing, small_));
      RING_RETURN_IF_ERROR(Receive(Kind::kAnswer));
      if (i >= kWarmPings) trips.push_back(SecondsSince(begin));
    }
    const auto begin = Clock::now();
    for (int i = 0; i < kProbes; ++i) RING_RETURN_IF_ERROR(Send(Kind::kProbe, large_));
    RING_RETURN_IF_ERROR(Receive(Kind::kAnswer));
    const double one = SecondsSince(begin) / kProbes;
    const int frames = static_cast<int>(std::clamp(kFloodSeconds / one, 16.0, 4096.0));
    for (int i = 1; i < frames; ++i) RING_RETURN_IF_ERROR(Send(Kind::kFlood, large_));
    RING_RETURN_IF_ERROR(Send(Kind::kLastOfFlood, large_));
    RING_RETURN_IF_ERROR(Receive(Kind::kAnswer));  // it has them all
    return LinkFigures{.round_trip_seconds = Median(std::move(trips)), .bytes_per_second = {}};
  }

  StatusOr<LinkFigures> AsSecond() {
    for (int i = 0; i < kPings; ++i) {
      RING_RETURN_IF_ERROR(Receive(Kind::kPing));
      RING_RETURN_IF_ERROR(Send(Kind::kAnswer, small_));
    }
    for (int i = 0; i < kProbes; ++i) RING_RETURN_IF_ERROR(Receive(Kind::kProbe));
    RING_RETURN_IF_ERROR(Send(Kind::kAnswer, small_));
    // From the end of the first frame to the end of the last.
    RING_RETURN_IF_ERROR(Receive(Kind::kFlood));
    const auto begin = Clock::now();
    double bytes = 0;
    for (Kind kind = Kind::kFlood; kind != Kind::kLastOfFlood; bytes += kLargeBytes) {
      RING_ASSIGN_OR_RETURN(const Frame frame, link_->Receive(deadline_));
      kind = static_cast<Kind>(frame.header.step);
      if (kind != Kind::kLastOfFlood) RING_RETURN_IF_ERROR(Check(frame, Kind::kFlood));
    }
    const double rate = bytes / SecondsSince(begin);
    RING_RETURN_IF_ERROR(Send(Kind::kAnswer, small_));
    return LinkFigures{.round_trip_seconds = {}, .bytes_per_second = rate};
  }

 private:
  [[nodiscard]] FrameHeader HeaderOf(Kind kind) const {
    return {.job = context_.job,
            .generation = context_.generation,
            .step = static_cast<uint64_t>(kind),
            .purpose = context_.purpose};
  }
  Status Check(const Frame& frame, Kind kind) const {
    return CheckExpected(frame.header, HeaderOf(kind));
  }
  Status Send(Kind kind, const Payload& payload) {
    return link_->Send(Sealed(HeaderOf(kind), payload), payload, deadline_);
  }
  Status Receive(Kind kind) {
    RING_ASSIGN_OR_RETURN(const Frame frame, link_->Receive(deadline_));
    return Check(frame, kind);
  }

  Link* const link_;
  const Context context_;
  const Clock::time_point deadline_;
  const Payload small_, large_;
};

// ---- reductions ---------------------------------------------------------------------------------

constexpr int kUnitExponent = -20;

// SplitMix64's finalizer (Steele, Lea, Flood, "Fast splittable pseudorandom number generators",
// 2014).
uint64_t Mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

// What a member contributes, in units of 2^kUnitExponent: 12 to 20 bits and a sign, blocks of
// different widths, as gradients have them; fewer of many members, so that float32 holds their sum.
class MadeUp {
 public:
  MadeUp(uint64_t seed, Position member)
      : blocks_(Mix(seed)),
        own_(Mix(blocks_ + member.rank + 1)),
        most_(std::numeric_limits<float>::digits - std::bit_width(member.size - 1)) {}

  [[nodiscard]] int BitsOf(size_t block) const {
    return std::min(12 + static_cast<int>(Mix(blocks_ + block) % 9), most_);
  }
  // Of an element of a block with so many bits.
  [[nodiscard]] int64_t At(size_t element, int bits) const {
    const uint64_t drawn = Mix(own_ + element) >> (63 - bits);
    return static_cast<int64_t>(drawn) - (int64_t{1} << bits);
  }

 private:
  const uint64_t blocks_, own_;
  const int most_;  // bits
};

// One size on one member.
class Contribution {
 public:
  Contribution(size_t elements, Position position, uint64_t seed)
      : position_(position),
        seed_(seed),
        array_(Draw(elements, MadeUp(seed, position)), position.size) {
    array_.UseUnits(std::vector<int>(array_.blocks().size(), kUnitExponent));
  }

  Status Reduce(AllReduce* reduce, const Context& context, ArraySums sums) {
    return array_.Reduce(reduce, context, sums);
  }

  // Of the reduction that was last. Exact sums must be what they are; float32's may be off by what
  // adding in any order is off.
  [[nodiscard]] Status Check(ArraySums sums) const {
    std::vector<MadeUp> members;
    for (uint32_t rank = 0; rank < position_.size; ++rank)
      members.emplace_back(seed_, Position{rank, position_.size});
    for (size_t b = 0; b < array_.blocks().size(); ++b) {
      const int bits = members.front().BitsOf(b);
      for (size_t i = 0; i < array_.blocks()[b].count; ++i) {
        const size_t element = b * exact::kBlockElements + i;
        int64_t expected = 0, sizes = 0;
        for (const MadeUp& member : members) {
          const int64_t part = member.At(element, bits);
          expected += part;
          sizes += std::abs(part);
        }
        const double got =
            std::ldexp(static_cast<double>(array_.reduced()[element]), -kUnitExponent);
        const double allowed = sums == ArraySums::kExact
                                   ? 0
                                   : std::ldexp(static_cast<double>(sizes) * position_.size, -24);
        if (!(std::abs(got - static_cast<double>(expected)) <= allowed)) {
          return Wrong(element, got, expected);
        }
      }
    }
    return absl::OkStatus();
  }

 private:
  static std::vector<float> Draw(size_t elements, const MadeUp& made_up) {
    std::vector<float> numbers(elements);
    for (size_t i = 0; i < elements; ++i) {
      const int bits = made_up.BitsOf(i / exact::kBlockElements);
      numbers[i] = std::ldexp(static_cast<float>(made_up.At(i, bits)), kUnitExponent);
    }
    return numbers;
  }

  [[nodiscard]] Status Wrong(size_t element, double got, int64_t expected) const {
    return Error(absl::StatusCode::kDataLoss,
                 "member {} of {} has a wrong sum: element {}, expected {}, got {}, in units of "
                 "2^{}; the memory of a worker, or the network, changes bits",
                 position_.rank, position_.size, element, expected, got, kUnitExponent);
  }

  const Position position_;
  const uint64_t seed_;
  ArrayReduction array_;
};

class SumsMeter {
 public:
  SumsMeter(Link* link, Position position, const Context& context, ReduceOptions options,
            std::stop_token stop)
      : link_(link), reduce_(link, position, options), context_(context), stop_(std::move(stop)) {}

  StatusOr<SumsTimes> WarmUp(Contribution* own, size_t elements, ArraySums sums) {
    SumsTimes times{elements, sums, {}, 0};
    const uint64_t before = link_->bytes_sent();
    RING_RETURN_IF_ERROR(Reduce(own, sums));
    times.sent_bytes = link_->bytes_sent() - before;
    RING_RETURN_IF_ERROR(own->Check(sums));
    return times;
  }

  Status Time(Contribution* own, SumsTimes* times) {
    RING_RETURN_IF_ERROR(Meet());
    const auto begin = Clock::now();
    RING_RETURN_IF_ERROR(Reduce(own, times->sums));
    times->seconds.push_back(SecondsSince(begin));
    return absl::OkStatus();
  }

 private:
  Status Reduce(Contribution* own, ArraySums sums) {
    if (stop_.stop_requested()) return absl::CancelledError("the measurement was ended");
    ++context_.step;
    return own->Reduce(&reduce_, context_, sums);
  }

  // Nobody leaves before everybody came: a sum needs all of them.
  Status Meet() {
    ++context_.step;
    const std::array<exact::Block, 1> block{{{0, 0, 1}}};
    const std::array<int64_t, exact::kBlockElements> own{};
    std::array<int64_t, exact::kBlockElements> total{};
    return reduce_.Exact(context_, block, own, total);
  }

  Link* const link_;
  AllReduce reduce_;
  Context context_;
  const std::stop_token stop_;
};

}  // namespace

StatusOr<LinkFigures> MeasureLink(Link* link, Position position, const Context& context,
                                  std::chrono::steady_clock::time_point deadline) {
  RING_CHECK(position.size == 2, "a link is measured between two");
  LinkMeter meter(link, context, deadline);
  return position.rank == 0 ? meter.AsFirst() : meter.AsSecond();
}

StatusOr<std::vector<SumsTimes>> MeasureSums(Link* link, Position position, const Context& context,
                                             const SumsPlan& plan, ReduceOptions options,
                                             const std::stop_token& stop) {
  SumsMeter meter(link, position, context, options, stop);
  std::vector<SumsTimes> all;
  for (const size_t elements : plan.elements) {
    Contribution own(elements, position, plan.seed);
    std::vector<SumsTimes> these;
    for (const ArraySums sums : plan.sums) {
      RING_ASSIGN_OR_RETURN(SumsTimes times, meter.WarmUp(&own, elements, sums));
      these.push_back(std::move(times));
    }
    for (uint32_t round = 0; round < plan.rounds; ++round) {
      for (SumsTimes& times : these) RING_RETURN_IF_ERROR(meter.Time(&own, &times));
    }
    std::ranges::move(these, std::back_inserter(all));
  }
  return all;
}

}  // namespace ringmaster::ring
