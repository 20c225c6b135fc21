// A random job of a few steps whose gradients are made of every kind of trouble, run by a ring of
// members and by a plain loop over its shards. Used over the memory link and over gRPC. A member
// does what a worker does in a step: several shards into one sum, all buckets in one round, in an
// order of its own, and the record beside the last of them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/exact/block_layout.h"
#include "common/exact/kernels.h"
#include "common/exact/record.h"
#include "common/status.h"
#include "worker/ring/link.h"

namespace ringmaster::ring {

// Of each case's record: so many that it has more than one block.
inline constexpr size_t kStatistics = 300;
// A loss, a count and so many statistics.
[[nodiscard]] inline exact::RecordShape RecordShapeOf(uint32_t shards) {
  return {.shards = shards, .counts = {false, true}, .statistics = kStatistics};
}

// In which form members have the integers of their gradients.
enum class SumsForm : uint8_t {
  kBlocks,    // a BlockSums, as a host has them
  kIntegers,  // int64
  kInPlace,   // int64, and the totals come where they are: as with a device
};

// What one step gave: equal on every member, whoever computed what.
struct StepResult {
  std::vector<int64_t> totals;  // of the arena
  std::vector<int64_t> record;
  exact::Record::Flagged flag;
  std::vector<float> reduced;      // empty when a flag is set
  std::vector<int16_t> exponents;  // after the step
  bool operator==(const StepResult& other) const;
};

struct ReductionCase {
  uint64_t seed = 0;
  uint32_t members = 1;
  uint32_t shards = 1;
  std::vector<uint32_t> owner;  // of each shard: a rank; some ranks may own none
  SumsForm form = SumsForm::kBlocks;
  std::vector<const exact::Kernels*> kernels;  // of each member
  exact::BlockLayout layout;
  size_t bucket_elements = 0;
  size_t segment_elements = 0;
  int precision_bits = 21;
  float gradient_scale = 1;
  // [step][shard]: the whole arena, padding zero.
  std::vector<std::vector<std::vector<float>>> gradients;

  // Everything is a function of `seed` and, of the kernels, of the processor; `members` 0 draws 1
  // to 8. Tensors are small; segments, too, or as a worker has them.
  static ReductionCase Make(uint64_t seed, uint32_t members = 0);
  // Two to four members whose chunks of one tensor are several segments as a worker cuts them. By
  // seed % 3: of 128 blocks; a quarter of the chunk; of 2^17 elements.
  static ReductionCase MakeLarge(uint64_t seed);
  [[nodiscard]] std::string Describe() const;

  // Runs every member on a thread of its own; links[rank] is nullptr in a ring of one. The results
  // of every member, [rank][step].
  [[nodiscard]] StatusOr<std::vector<std::vector<StepResult>>> Run(const std::vector<Link*>& links,
                                                                   GenerationId generation) const;
  // The steps as one process computes them, shard by shard, with quantization of its own.
  [[nodiscard]] std::vector<StepResult> Reference() const;
  // An error names the first difference between members and reference, or the first element that
  // is further from the true sum than V u / 2 + 1/2 ulp (of a large case, of some elements).
  [[nodiscard]] Status Check(const std::vector<std::vector<StepResult>>& results) const;

 private:
  [[nodiscard]] StatusOr<std::vector<StepResult>> RunMember(uint32_t rank, Link* link,
                                                            GenerationId generation) const;
  [[nodiscard]] Status CheckBound(size_t step, const StepResult& result,
                                  const std::vector<int16_t>& exponents) const;
};

}  // namespace ringmaster::ring
