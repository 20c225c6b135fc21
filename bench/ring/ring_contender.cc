// Ringmaster's own: buckets of 1 Mi elements one after the other, as the reducer has them.
#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "bench/ring/contender.h"
#include "common/exact/block_layout.h"
#include "common/exact/quantize.h"
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
    own_.assign(elements, 0);
    std::ranges::copy(own, own_.begin());
    reduced_.assign(elements, 0);
    if (sums_ == Sums::kFloat32) return absl::OkStatus();
    integers_.assign(elements, 0);
    totals_.assign(elements, 0);
    // Units come from the sums of a step before, as in a job.
    ++step_;
    RING_RETURN_IF_ERROR(
        ForBuckets([&](size_t first, size_t count) { return ReduceFloats(first, count); }));
    units_.clear();
    for (size_t b = 0; b < blocks_.size(); ++b) units_.push_back(UnitOf(b));
    for (size_t b = 0; b < blocks_.size(); ++b) Quantize(b);
    return absl::OkStatus();
  }

  Status Reduce() override {
    ++step_;
    return ForBuckets([&](size_t first, size_t count) {
      return sums_ == Sums::kFloat32 ? ReduceFloats(first, count) : ReduceIntegers(first, count);
    });
  }

  [[nodiscard]] std::span<const float> sums() const override { return reduced_; }

 private:
  static std::string NameOf(uint32_t rank) { return fmt::format("member{}", rank); }

  int UnitOf(size_t block) const {
    float largest = 1e-30F;
    for (const float value : Part(reduced_, block)) largest = std::max(largest, std::fabs(value));
    return std::clamp(std::ilogb(largest) - kPrecisionBits, -40, 119);
  }

  template <typename T>
  [[nodiscard]] std::span<T> Part(std::vector<T>& all, size_t block) const {
    return std::span(all).subspan(block * exact::kBlockElements, blocks_[block].count);
  }
  template <typename T>
  [[nodiscard]] std::span<const T> Part(const std::vector<T>& all, size_t block) const {
    return std::span(all).subspan(block * exact::kBlockElements, blocks_[block].count);
  }

  void Quantize(size_t block) {
    const std::span<int64_t> sums = Part(integers_, block);
    std::ranges::fill(sums, 0);
    (void)exact::QuantizeAdd(Part(std::as_const(own_), block), units_[block], 1, member_.size,
                             sums.data());
  }

  Status ForBuckets(const std::function<Status(size_t first, size_t count)>& work) {
    for (size_t first = 0; first < blocks_.size(); first += kBucketBlocks) {
      RING_RETURN_IF_ERROR(work(first, std::min(kBucketBlocks, blocks_.size() - first)));
    }
    return absl::OkStatus();
  }

  [[nodiscard]] ring::Context ContextOf(size_t first) const {
    return {.job = ring::JobHash("bench"),
            .generation = {1, 1},
            .step = step_,
            .bucket = static_cast<uint32_t>(first / kBucketBlocks)};
  }

  // What blocks [first, first + count) have of a vector.
  template <typename T>
  static std::span<T> Range(std::vector<T>& all, size_t first, size_t count) {
    return std::span(all).subspan(first * exact::kBlockElements, count * exact::kBlockElements);
  }

  Status ReduceFloats(size_t first, size_t count) {
    return reduce_->Float32(ContextOf(first), std::span(blocks_).subspan(first, count),
                            Range(own_, first, count), Range(reduced_, first, count));
  }

  Status ReduceIntegers(size_t first, size_t count) {
    const bool whole = sums_ == Sums::kExact;
    for (size_t b = first; whole && b < first + count; ++b) Quantize(b);
    RING_RETURN_IF_ERROR(reduce_->Exact(ContextOf(first), std::span(blocks_).subspan(first, count),
                                        Range(integers_, first, count),
                                        Range(totals_, first, count)));
    for (size_t b = first; whole && b < first + count; ++b) {
      exact::Dequantize(Part(std::as_const(totals_), b), units_[b], Part(reduced_, b).data());
    }
    return absl::OkStatus();
  }

  const Sums sums_;
  const Member member_;
  std::unique_ptr<ring::RingPort> port_;
  std::unique_ptr<ring::Link> link_;
  std::optional<ring::AllReduce> reduce_;
  uint64_t step_ = 0;
  std::vector<exact::Block> blocks_;
  std::vector<int> units_;
  std::vector<float> own_, reduced_;
  std::vector<int64_t> integers_, totals_;
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
