// A random job of a few steps whose gradients are made of every kind of trouble, run by a ring of
// members and by a plain loop over its shards. Used over the memory link and over gRPC.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/exact/block_layout.h"
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
  exact::BlockLayout layout;
  size_t bucket_elements = 0;
  size_t segment_elements = 0;
  int precision_bits = 21;
  float gradient_scale = 1;
  // [step][shard]: the whole arena, padding zero.
  std::vector<std::vector<std::vector<float>>> gradients;

  // Everything is a function of `seed`; `members` 0 draws 1 to 8.
  static ReductionCase Make(uint64_t seed, uint32_t members = 0);
  [[nodiscard]] std::string Describe() const;

  // Runs every member on a thread of its own; links[rank] is nullptr in a ring of one. The results
  // of every member, [rank][step].
  [[nodiscard]] StatusOr<std::vector<std::vector<StepResult>>> Run(const std::vector<Link*>& links,
                                                                   GenerationId generation) const;
  // The steps as one process computes them, shard by shard, with quantization of its own.
  [[nodiscard]] std::vector<StepResult> Reference() const;
  // An error names the first difference between members and reference, or the first element that
  // is further from the true sum than V u / 2 + 1/2 ulp.
  [[nodiscard]] Status Check(const std::vector<std::vector<StepResult>>& results) const;

 private:
  [[nodiscard]] StatusOr<std::vector<StepResult>> RunMember(uint32_t rank, Link* link,
                                                            GenerationId generation) const;
  [[nodiscard]] Status CheckBound(size_t step, const StepResult& result,
                                  const std::vector<int16_t>& exponents) const;
};

}  // namespace ringmaster::ring
