// The part of S(k) that one update reads and changes for each element, and the sums of a step,
// where the gradients are: a backend that has one quantizes, adds up and updates there, with the
// bits of common/exact and common/graph/update, and only buckets that go round a ring pass through
// the host. Made by Weights::MakeState, whose parameters it updates in place; must not outlive
// them.
//
// Thread-safe in this sense: ReadSums and WriteTotals (of different buckets) may run beside
// executables that add to other buckets; nothing else may run beside anything.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "common/exact/block_layout.h"
#include "common/exact/digest.h"
#include "common/graph/update/optimizer.h"
#include "common/status.h"

namespace ringmaster {

struct DeviceStateOptions {
  const exact::BlockLayout* layout = nullptr;  // outlives the state
  graph::UpdateOptions update;
  uint32_t shards = 1;     // V
  int precision_bits = 0;  // B
  // Of the buckets that go round a ring (exact::CutBuckets): executables tell of each of them.
  size_t bucket_elements = 0;
};

// What the state is made of: the hash of words (common/exact/word_hash.h) over all blocks of the
// parameters, then of each slot; of the exponents. `finite`: all of the former are numbers.
struct DeviceHashes {
  std::vector<exact::BlockSum> trained;
  exact::BlockSum exponents;
  bool finite = true;
  bool operator==(const DeviceHashes&) const = default;
};

// What the end of a step hashes on its way.
struct StepHashes {
  exact::BlockSum totals;      // the digest's sum over all blocks
  DeviceHashes read, written;  // as it lay there directly before the update or none, and behind it
};

// What an update is made from.
enum class SumSource : uint8_t {
  kOwn,   // what was added here: this worker is alone
  kRing,  // what WriteTotals wrote, of every bucket
};

class DeviceState {
 public:
  virtual ~DeviceState() = default;

  // In arena layout; a slot for each of the optimizer's slot_names(); `exponents` E of each block.
  // The weights' parameters are refreshed with it, in every type. The sums become zero.
  virtual Status Load(std::span<const float> parameters,
                      std::span<const std::span<const float>> slots,
                      std::span<const int16_t> exponents) = 0;
  // What Load takes, as it is after the updates so far.
  virtual Status Store(std::span<float> parameters, std::span<const std::span<float>> slots,
                       std::span<int16_t> exponents) = 0;

  // A step begins: the sums are zero for whoever adds to them or reads them from now on, which may
  // be before the device has come so far: its error then meets them. Executables multiply gradients
  // by `gradient_scale`, 1/S.
  virtual Status Clear(float gradient_scale) = 0;
  // The sums of a bucket's blocks, 256 integers a block, padding zero. Every executable that adds
  // to them has said so (GradientSink::summed). They stay as they are until Clear.
  virtual Status ReadSums(const exact::Bucket& bucket, std::span<int64_t> sums) = 0;
  // What every worker's sums of the bucket add up to.
  virtual Status WriteTotals(const exact::Bucket& bucket, std::span<const int64_t> totals) = 0;

  // Update number `update` (from 1) and the units of the next step; the weights have the new
  // parameters in every type when it returns. Whoever calls compares what was read with what was
  // written last; a difference is found only when the update is done.
  virtual StatusOr<StepHashes> Apply(SumSource source, uint64_t update) = 0;
  // A skipped step: no update, units as at step 0.
  virtual StatusOr<StepHashes> Skip(SumSource source) = 0;
};

}  // namespace ringmaster
