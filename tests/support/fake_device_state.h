// A DeviceState in the host's memory: the sums and the update of common/exact and
// common/graph/update in arenas of its own, so that a host's state which is read too early shows.
// Thread-safe as a real one.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "common/arena.h"
#include "common/check.h"
#include "common/exact/quantize.h"
#include "common/exact/units.h"
#include "common/exact/word_hash.h"
#include "common/graph/update/optimizer.h"
#include "common/mutex.h"
#include "tests/support/whole_update.h"
#include "worker/backend/device_state.h"

namespace ringmaster {

// Called before the device does something; an error is the device's.
struct FakeDeviceHooks {
  std::function<Status(uint64_t update)> before_update;
  std::function<bool(uint64_t update)> flips;  // whether a bit of a parameter changes before it
  std::function<Status()> before_read, before_write;  // of sums, and of totals
};

class FakeDeviceState : public DeviceState {
 public:
  // Told the parameters whenever they changed.
  using OnParameters = std::function<void(const exact::BlockLayout&, std::span<const float>)>;

  FakeDeviceState(const DeviceStateOptions& options, FakeDeviceHooks hooks,
                  OnParameters on_parameters)
      : layout_(*options.layout),
        shards_(options.shards),
        hooks_(std::move(hooks)),
        on_parameters_(std::move(on_parameters)),
        optimizer_(*graph::MakeOptimizer(options.update)),
        units_(&layout_, options.precision_bits),
        parameters_(layout_.arena_elements()),
        sums_(layout_.arena_elements()),
        totals_(layout_.arena_elements()),
        reduced_(layout_.arena_elements()) {
    for (size_t i = 0; i < optimizer_->slot_names().size(); ++i) {
      slots_.emplace_back(layout_.arena_elements());
    }
  }

  // What an executable does with a gradient.
  exact::FlagKind Add(uint32_t tensor, std::span<const float> gradient) {
    MutexLock lock(mu_);
    const exact::TensorRange& range = layout_.tensor(tensor);
    auto kind = exact::FlagKind::kNone;
    for (size_t i = 0; i < range.block_count; ++i) {
      const size_t block = range.first_block + i;
      const exact::FlagKind found = exact::QuantizeAdd(
          gradient.subspan(i * exact::kBlockElements, layout_.blocks()[block].count),
          units_.unit_exponent(block), gradient_scale_, shards_,
          sums_.span().data() + block * exact::kBlockElements);
      if (kind == exact::FlagKind::kNone) kind = found;
    }
    return kind;
  }

  Status Load(std::span<const float> parameters, std::span<const std::span<const float>> slots,
              std::span<const int16_t> exponents) override {
    MutexLock lock(mu_);
    std::ranges::copy(parameters, parameters_.span().begin());
    for (size_t i = 0; i < slots.size(); ++i) std::ranges::copy(slots[i], slots_[i].span().begin());
    std::ranges::fill(sums_.span(), 0);
    on_parameters_(layout_, parameters_.span());
    return units_.Restore(exponents);
  }

  Status Store(std::span<float> parameters, std::span<const std::span<float>> slots,
               std::span<int16_t> exponents) override {
    MutexLock lock(mu_);
    std::ranges::copy(parameters_.span(), parameters.begin());
    for (size_t i = 0; i < slots.size(); ++i) std::ranges::copy(slots_[i].span(), slots[i].begin());
    std::ranges::copy(units_.exponents(), exponents.begin());
    return absl::OkStatus();
  }

  Status Clear(float gradient_scale) override {
    MutexLock lock(mu_);
    gradient_scale_ = gradient_scale;
    std::ranges::fill(sums_.span(), 0);
    // Totals that nobody wrote must not look like those of the step before.
    std::ranges::fill(totals_.span(), int64_t{0x123456789});
    return absl::OkStatus();
  }

  Status ReadSums(const exact::Bucket& bucket, std::span<int64_t> sums) override {
    if (hooks_.before_read) RING_RETURN_IF_ERROR(hooks_.before_read());
    MutexLock lock(mu_);
    std::ranges::copy(Part(sums_.span(), bucket), sums.begin());
    return absl::OkStatus();
  }

  Status WriteTotals(const exact::Bucket& bucket, std::span<const int64_t> totals) override {
    if (hooks_.before_write) RING_RETURN_IF_ERROR(hooks_.before_write());
    MutexLock lock(mu_);
    std::ranges::copy(totals, Part(totals_.span(), bucket).begin());
    return absl::OkStatus();
  }

  StatusOr<StepHashes> Apply(SumSource source, uint64_t update) override {
    if (hooks_.before_update) RING_RETURN_IF_ERROR(hooks_.before_update(update));
    MutexLock lock(mu_);
    if (hooks_.flips && hooks_.flips(update)) {
      float& parameter = parameters_.span().front();
      parameter = std::bit_cast<float>(std::bit_cast<uint32_t>(parameter) ^ 0x00800000);
    }
    StepHashes hashes{.totals = Digest(source), .read = Hash(), .written = {}};
    for (size_t b = 0; b < layout_.block_count(); ++b) {
      exact::Dequantize(BlockOf(source, b), units_.unit_exponent(b),
                        reduced_.span().data() + b * exact::kBlockElements);
    }
    testing::WholeModel model{layout_, parameters_.span(), {}, reduced_.span()};
    for (Arena<float>& slot : slots_) model.slots.push_back(slot.span());
    testing::UpdateWhole(*optimizer_, update, model);
    units_.Advance(reduced_.span());
    on_parameters_(layout_, parameters_.span());
    hashes.written = Hash();
    return hashes;
  }

  StatusOr<StepHashes> Skip(SumSource source) override {
    MutexLock lock(mu_);
    StepHashes hashes{.totals = Digest(source), .read = Hash(), .written = {}};
    units_.Reset();
    hashes.written = Hash();
    return hashes;
  }

 private:
  DeviceHashes Hash() {
    DeviceHashes hashes;
    uint32_t largest = 0;
    const auto hash = [&](const Arena<float>& arena) {
      const exact::StatePart part = exact::TrainedPart(hashes.trained.size());
      exact::BlockSum& sum = hashes.trained.emplace_back();
      for (size_t b = 0; b < layout_.block_count(); ++b) {
        const exact::Block& block = layout_.blocks()[b];
        const float* const values = arena.span().data() + b * exact::kBlockElements;
        exact::AddWords(exact::NameOfPart(part, block.tensor), block.index, values, block.count,
                        &sum);
        largest = std::max(largest, exact::LargestMagnitude({values, block.count}));
      }
    };
    hash(parameters_);
    for (const Arena<float>& slot : slots_) hash(slot);
    hashes.exponents = units_.Hash();
    hashes.finite = largest < exact::kInfinityBits;
    return hashes;
  }

  static std::span<int64_t> Part(std::span<int64_t> arena, const exact::Bucket& bucket) {
    return arena.subspan(bucket.first_block * exact::kBlockElements,
                         bucket.block_count * exact::kBlockElements);
  }
  std::span<const int64_t> BlockOf(SumSource source, size_t b) const {
    const Arena<int64_t>& arena = source == SumSource::kOwn ? sums_ : totals_;
    return arena.span().subspan(b * exact::kBlockElements, layout_.blocks()[b].count);
  }
  exact::BlockSum Digest(SumSource source) const {
    exact::BlockSum sum;
    for (size_t b = 0; b < layout_.block_count(); ++b) {
      sum.Add(layout_.blocks()[b].tensor, layout_.blocks()[b].index, BlockOf(source, b));
    }
    return sum;
  }

  const exact::BlockLayout& layout_;
  const uint32_t shards_;
  const FakeDeviceHooks hooks_;
  const OnParameters on_parameters_;
  const std::unique_ptr<graph::Optimizer> optimizer_;
  Mutex mu_;
  exact::Units units_;
  float gradient_scale_ = 1;
  Arena<float> parameters_;
  std::vector<Arena<float>> slots_;
  Arena<int64_t> sums_, totals_;
  Arena<float> reduced_;
};

}  // namespace ringmaster
