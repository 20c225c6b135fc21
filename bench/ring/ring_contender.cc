// Ringmaster's own: a round of buckets of 1 Mi elements, as the reducer has them.
#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "bench/ring/contender.h"
#include "common/arena.h"
#include "common/exact/block_layout.h"
#include "common/exact/block_sums.h"
#include "worker/ring/all_reduce.h"
#include "worker/ring/grpc/ring_port.h"

namespace ringmaster::bench {
namespace {

constexpr size_t kBucketBlocks = (size_t{1} << 20) / exact::kBlockElements;
constexpr int kPrecisionBits = 21;

enum class Sums : uint8_t { kExact, kIntegers, kFloat32 };

class RingContender : public Contender {
 public:
  RingContender(Sums sums, const Member& member) : sums_(sums), member_(member) {}
  ~RingContender() override {
    reduce_.reset();
    link_.reset();
    if (port_ != nullptr) port_->Stop();
  }

  Status Connect() {
    RING_ASSIGN_OR_RETURN(port_, ring::RingPort::Create({member_.host, 0}));
    Publish(member_, fmt::format("{}:{}", member_.host, port_->port()));
    const uint32_t next = (member_.rank + 1) % member_.size;
    const uint32_t before = (member_.rank + member_.size - 1) % member_.size;
    ring::LinkOptions options;
    options.job_id = "bench";
    options.generation = {1, 1};
    RING_ASSIGN_OR_RETURN(options.successor_address, ReadPublished(member_, next));
    options.self_name = NameOf(member_.rank);
    options.self_incarnation = options.self_name;
    options.predecessor_name = NameOf(before);
    options.predecessor_incarnation = NameOf(before);
    options.largest_payload = ring::AllReduce::LargestPayload({});
    RING_ASSIGN_OR_RETURN(link_,
                          port_->Connect(options, std::chrono::steady_clock::now() + kPatience));
    reduce_.emplace(link_.get(), ring::Position{member_.rank, member_.size}, ring::ReduceOptions{});
    return absl::OkStatus();
  }

  Status Load(std::span<const float> own) override {
    blocks_.clear();
    for (size_t at = 0; at < own.size(); at += exact::kBlockElements) {
      const size_t count = std::min<size_t>(exact::kBlockElements, own.size() - at);
      blocks_.push_back({0, static_cast<uint32_t>(blocks_.size()), static_cast<uint32_t>(count)});
    }
    const size_t elements = blocks_.size() * exact::kBlockElements;
    own_ = Arena<float>(elements);
    std::ranges::copy(own, own_.span().begin());
    reduced_ = Arena<float>(elements);
    if (sums_ == Sums::kFloat32) return absl::OkStatus();
    integers_ = exact::BlockSums(blocks_.size());
    totals_ = exact::BlockSums(blocks_.size());
    // Units come from the sums of a step before, as in a job.
    RING_RETURN_IF_ERROR(
        Round([&](const Part& part) { return AddFloats(part); }, [](const Part&) {}));
    units_.clear();
    for (size_t b = 0; b < blocks_.size(); ++b) units_.push_back(UnitOf(b));
    Quantize({0, blocks_.size()});
    return absl::OkStatus();
  }

  void UseUnits(std::span<const int16_t> exponents) override {
    if (sums_ == Sums::kFloat32) return;
    units_.assign(exponents.begin(), exponents.end());
    Quantize({0, blocks_.size()});
  }

  Status Reduce() override {
    switch (sums_) {
      case Sums::kFloat32:
        return Round([&](const Part& part) { return AddFloats(part); }, [](const Part&) {});
      case Sums::kIntegers:
        return Round([&](const Part& part) { return AddIntegers(part); }, [](const Part&) {});
      default:
        return Round(
            [&](const Part& part) {
              Quantize(part);
              return AddIntegers(part);
            },
            [&](const Part& part) { Dequantize(part); });
    }
  }

  [[nodiscard]] std::span<const float> sums() const override { return reduced_.span(); }

 private:
  // The blocks of a bucket.
  struct Part {
    size_t first, count;
    [[nodiscard]] size_t end() const { return first + count; }
  };

  static std::string NameOf(uint32_t rank) { return fmt::format("member{}", rank); }

  int UnitOf(size_t block) const {
    float largest = 1e-30F;
    for (const float value : BlockOf(reduced_.span(), block)) {
      largest = std::max(largest, std::fabs(value));
    }
    return std::clamp(std::ilogb(largest) - kPrecisionBits, -40, 119);
  }

  template <typename T>
  [[nodiscard]] std::span<T> BlockOf(std::span<T> all, size_t block) const {
    return all.subspan(block * exact::kBlockElements, blocks_[block].count);
  }

  void Quantize(const Part& part) {
    integers_.Clear(part.first, part.count);
    for (size_t b = part.first; b < part.end(); ++b) {
      (void)integers_.QuantizeAdd(b, BlockOf(std::as_const(own_).span(), b), units_[b], 1,
                                  member_.size);
    }
  }

  void Dequantize(const Part& part) {
    for (size_t b = part.first; b < part.end(); ++b) {
      totals_.Dequantize(b, units_[b], BlockOf(reduced_.span(), b));
    }
  }

  // A round of all buckets, each added when the one before it is under way, as backward adds them;
  // `finished` has each that is finished, at once.
  Status Round(const std::function<Status(const Part&)>& add,
               const std::function<void(const Part&)>& finished) {
    reduce_->Begin({.job = ring::JobHash("bench"), .generation = {1, 1}, .step = ++step_});
    const auto part_of = [&](size_t bucket) {
      const size_t first = bucket * kBucketBlocks;
      return Part{first, std::min(kBucketBlocks, blocks_.size() - first)};
    };
    const size_t buckets = (blocks_.size() + kBucketBlocks - 1) / kBucketBlocks;
    for (size_t done = 0, added = 0; done < buckets;) {
      const bool more = added < buckets;
      if (more) {
        RING_RETURN_IF_ERROR(add(part_of(added++)));
        reduce_->Nudge();  // there is more to add, or to finish
      }
      RING_RETURN_IF_ERROR(
          reduce_->Work(more ? ring::AllReduce::Until::kNews : ring::AllReduce::Until::kIdle));
      for (const uint32_t bucket : reduce_->TakeFinished()) {
        finished(part_of(bucket));
        ++done;
      }
    }
    return absl::OkStatus();
  }

  // What the blocks have of a vector.
  static std::span<float> Range(Arena<float>& all, const Part& part) {
    return all.span().subspan(part.first * exact::kBlockElements,
                              part.count * exact::kBlockElements);
  }
  [[nodiscard]] std::span<const exact::Block> Blocks(const Part& part) const {
    return std::span(blocks_).subspan(part.first, part.count);
  }
  static uint32_t BucketOf(const Part& part) {
    return static_cast<uint32_t>(part.first / kBucketBlocks);
  }

  Status AddFloats(const Part& part) {
    return reduce_->AddFloat32(BucketOf(part), Blocks(part), Range(own_, part),
                               Range(reduced_, part));
  }

  Status AddIntegers(const Part& part) {
    return reduce_->AddExact(BucketOf(part), Blocks(part), {&integers_, part.first},
                             {&totals_, part.first});
  }

  const Sums sums_;
  const Member member_;
  std::unique_ptr<ring::RingPort> port_;
  std::unique_ptr<ring::Link> link_;
  std::optional<ring::AllReduce> reduce_;
  uint64_t step_ = 0;
  std::vector<exact::Block> blocks_;
  std::vector<int> units_;
  Arena<float> own_, reduced_;
  exact::BlockSums integers_, totals_;
};

}  // namespace

StatusOr<std::unique_ptr<Contender>> MakeRing(const std::string& name, const Member& member) {
  const Sums sums = name == "exact"      ? Sums::kExact
                    : name == "integers" ? Sums::kIntegers
                                         : Sums::kFloat32;
  auto contender = std::make_unique<RingContender>(sums, member);
  RING_RETURN_IF_ERROR(contender->Connect());
  return contender;
}

}  // namespace ringmaster::bench
