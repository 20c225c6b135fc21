#include "tests/worker/ring/reduction_case.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <numeric>
#include <random>
#include <thread>

#include "common/exact/quantize.h"
#include "common/exact/units.h"
#include "tests/support/wide_fixed.h"
#include "worker/ring/all_reduce.h"

namespace ringmaster::ring {
namespace {

using exact::Block;
using exact::kBlockElements;
using Random = std::mt19937_64;

uint64_t Draw(Random& random, uint64_t low, uint64_t high) {
  return std::uniform_int_distribution<uint64_t>(low, high)(random);
}

// What the gradients of one tensor are like in one step.
enum class Kind { kZero, kSubnormal, kUsual, kEveryExponent, kHuge, kNotFinite, kCount };

Kind DrawKind(Random& random) {
  // Flags end the comparison with the true sum, so that they are the exception.
  static constexpr int kWeights[] = {3, 2, 10, 3, 1, 1};
  static_assert(std::size(kWeights) == static_cast<size_t>(Kind::kCount));
  std::discrete_distribution<int> kinds(std::begin(kWeights), std::end(kWeights));
  return static_cast<Kind>(kinds(random));
}

float Signed(Random& random, uint32_t exponent_bits) {
  const auto bits = static_cast<uint32_t>(random());
  return std::bit_cast<float>((bits & 0x807fffff) | exponent_bits << 23);
}

// `scale` is the usual exponent of this tensor, biased by 127.
float DrawValue(Random& random, Kind kind, uint32_t scale) {
  switch (kind) {
    case Kind::kZero:
      return Draw(random, 0, 1) != 0 ? -0.0F : 0.0F;
    case Kind::kSubnormal:
      return Signed(random, 0);
    case Kind::kUsual:
      return Signed(random, scale - static_cast<uint32_t>(Draw(random, 0, 8)));
    case Kind::kEveryExponent:
      return Signed(random, static_cast<uint32_t>(Draw(random, 0, 140)));
    case Kind::kHuge:
      return Signed(random, static_cast<uint32_t>(Draw(random, 180, 254)));
    default:
      if (Draw(random, 0, 400) == 0) return Signed(random, 255);
      return Signed(random, scale);
  }
}

void FillTensor(Random& random, Kind kind, uint32_t scale, const exact::TensorRange& range,
                std::vector<float>* arena) {
  for (uint64_t i = 0; i < range.elements; ++i) {
    (*arena)[range.offset() + i] = DrawValue(random, kind, scale);
  }
}

exact::BlockLayout MakeLayout(Random& random) {
  const auto count = static_cast<uint32_t>(Draw(random, 1, 5));
  std::vector<exact::BlockLayout::Tensor> tensors;
  for (uint32_t tensor = 0; tensor < count; ++tensor) {
    // One element, less than a block, whole blocks, many blocks with a short last one.
    const uint64_t limit = std::vector<uint64_t>{1, 255, 256, 600, 2600}[Draw(random, 0, 4)];
    tensors.push_back({tensor, Draw(random, (limit + 1) / 2, limit)});
  }
  std::shuffle(tensors.begin(), tensors.end(), random);
  return *exact::BlockLayout::Create(tensors);
}

std::vector<Block> RecordBlocks(size_t integers) {
  std::vector<Block> blocks;
  for (size_t first = 0; first < integers; first += kBlockElements) {
    blocks.push_back({exact::kRecordTensor, static_cast<uint32_t>(first / kBlockElements),
                      static_cast<uint32_t>(std::min<size_t>(kBlockElements, integers - first))});
  }
  return blocks;
}

// Scalars of a shard: functions of (seed, step, shard), some of them refused.
struct Scalars {
  double loss;
  double correct;
  uint64_t samples;
  std::vector<double> means, variances;
};

Scalars MakeScalars(uint64_t seed, size_t step, uint32_t shard) {
  Random random(seed * 1000003 + step * 1009 + shard);
  std::normal_distribution<double> normal(0, 100);
  Scalars scalars{normal(random), static_cast<double>(Draw(random, 0, 64)), 64, {}, {}};
  for (size_t i = 0; i < kStatistics; ++i) {
    scalars.means.push_back(normal(random));
    scalars.variances.push_back(std::fabs(normal(random)));
  }
  if (Draw(random, 0, 150) == 0) scalars.loss = std::nan("");
  return scalars;
}

void AddScalars(uint64_t seed, size_t step, uint32_t shard, int64_t flag, exact::Record* record) {
  const Scalars scalars = MakeScalars(seed, step, shard);
  const double sums[] = {scalars.loss, scalars.correct};
  record->AddShard(shard, scalars.samples, sums, scalars.means, scalars.variances, flag);
}

using Quantizer = exact::FlagKind (*)(std::span<const float>, int, float, uint32_t, int64_t*);

// Quantize's definition (common/exact/quantize.h) in double arithmetic, which is exact here.
exact::FlagKind QuantizeAddInDouble(std::span<const float> gradient, int unit_exponent,
                                    float gradient_scale, uint32_t shards, int64_t* sums) {
  int bits = 0;
  while ((uint32_t{1} << bits) < shards) ++bits;
  exact::FlagKind first = exact::FlagKind::kNone;
  for (size_t i = 0; i < gradient.size(); ++i) {
    const double value = static_cast<double>(gradient[i]) * gradient_scale;
    const double q = std::nearbyint(std::ldexp(value, -unit_exponent));
    exact::FlagKind kind = exact::FlagKind::kNone;
    if (!std::isfinite(value)) {
      kind = exact::FlagKind::kNotFinite;
    } else if (std::fabs(value) >= std::ldexp(1, 127 - bits) ||
               std::fabs(q) >= std::ldexp(1, 62 - bits)) {
      kind = exact::FlagKind::kTooLarge;
    }
    if (kind == exact::FlagKind::kNone) {
      sums[i] += static_cast<int64_t>(q);
    } else if (first == exact::FlagKind::kNone) {
      first = kind;
    }
  }
  return first;
}

// Adds one shard's arena to `sums`; the shard's flag.
int64_t FoldShard(const exact::BlockLayout& layout, const exact::Units& units,
                  const ReductionCase& job, const std::vector<float>& gradient, Quantizer quantize,
                  std::vector<int64_t>* sums) {
  int64_t flag = 0;
  for (uint32_t tensor = 0; tensor < layout.tensors().size(); ++tensor) {
    const exact::TensorRange& range = layout.tensor(tensor);
    for (size_t b = range.first_block; b < range.first_block + range.block_count; ++b) {
      const size_t offset = b * kBlockElements;
      const std::span<const float> block(gradient.data() + offset, layout.blocks()[b].count);
      const exact::FlagKind kind = quantize(block, units.unit_exponent(b), job.gradient_scale,
                                            job.shards, sums->data() + offset);
      if (flag == 0) flag = exact::EncodeFlag(kind, tensor);
    }
  }
  return flag;
}

// From the sums of a step to its end.
StepResult Conclude(const exact::BlockLayout& layout, const exact::Record& record,
                    std::vector<int64_t> totals, exact::Units* units) {
  StepResult result;
  result.totals = std::move(totals);
  result.record.assign(record.integers().begin(), record.integers().end());
  result.flag = record.first_flag();
  if (result.flag.flag.kind == exact::FlagKind::kNone) {
    result.reduced.resize(layout.arena_elements());
    for (size_t b = 0; b < layout.block_count(); ++b) {
      const size_t offset = b * kBlockElements;
      exact::Dequantize({result.totals.data() + offset, layout.blocks()[b].count},
                        units->unit_exponent(b), result.reduced.data() + offset);
    }
    units->Advance(result.reduced);
  } else {
    units->Reset();
  }
  result.exponents.assign(units->exponents().begin(), units->exponents().end());
  return result;
}

}  // namespace

bool StepResult::operator==(const StepResult& other) const {
  return totals == other.totals && record == other.record && exponents == other.exponents &&
         flag.shard == other.flag.shard && flag.flag.kind == other.flag.flag.kind &&
         flag.flag.tensor == other.flag.flag.tensor && reduced.size() == other.reduced.size() &&
         (reduced.empty() ||
          std::memcmp(reduced.data(), other.reduced.data(), reduced.size() * sizeof(float)) == 0);
}

ReductionCase ReductionCase::Make(uint64_t seed, uint32_t members) {
  Random random(seed);
  ReductionCase result;
  result.seed = seed;
  result.members = members != 0 ? members : static_cast<uint32_t>(Draw(random, 1, 8));
  result.shards = static_cast<uint32_t>(Draw(random, 1, 10));
  for (uint32_t shard = 0; shard < result.shards; ++shard) {
    result.owner.push_back(static_cast<uint32_t>(Draw(random, 0, result.members - 1)));
  }
  result.layout = MakeLayout(random);
  result.bucket_elements = size_t{1} << Draw(random, 0, 13);
  result.segment_elements = kBlockElements * Draw(random, 1, 3);
  result.precision_bits = static_cast<int>(Draw(random, 8, 24));
  result.gradient_scale = Draw(random, 0, 2) == 0 ? 0x1p-16F : 1.0F;

  const size_t steps = Draw(random, 2, 4);
  for (size_t step = 0; step < steps; ++step) {
    std::vector<std::vector<float>> shards(result.shards);
    for (auto& arena : shards) arena.resize(result.layout.arena_elements());
    for (const exact::TensorRange& range : result.layout.tensors()) {
      const Kind kind = DrawKind(random);
      // A third of the tensors grows by 2^60 against the usual size, whatever it was before.
      const uint32_t scale = 110 + (Draw(random, 0, 2) == 0 ? 60 : 0);
      for (auto& arena : shards) FillTensor(random, kind, scale, range, &arena);
    }
    result.gradients.push_back(std::move(shards));
  }
  return result;
}

std::string ReductionCase::Describe() const {
  return fmt::format(
      "seed {}: {} members, {} shards, {} tensors, {} blocks, buckets of {}, segments of {}, B {}, "
      "{} steps",
      seed, members, shards, layout.tensors().size(), layout.block_count(), bucket_elements,
      segment_elements, precision_bits, gradients.size());
}

StatusOr<std::vector<StepResult>> ReductionCase::RunMember(uint32_t rank, Link* link,
                                                           GenerationId generation) const {
  AllReduce all_reduce(
      link, {rank, members},
      {.segment_elements = segment_elements, .progress_limit = std::chrono::milliseconds(60'000)});
  exact::Units units(&layout, precision_bits);
  const std::vector<exact::Bucket> buckets = exact::CutBuckets(layout, bucket_elements);
  std::vector<StepResult> results;
  for (size_t step = 0; step < gradients.size(); ++step) {
    std::vector<int64_t> own(layout.arena_elements());
    exact::Record record(RecordShapeOf(shards));
    for (uint32_t shard = 0; shard < shards; ++shard) {
      if (owner[shard] != rank) continue;
      const int64_t flag =
          FoldShard(layout, units, *this, gradients[step][shard], exact::QuantizeAdd, &own);
      AddScalars(seed, step, shard, flag, &record);
    }
    Context context{.job = JobHash("job-1"), .generation = generation, .step = step};
    std::vector<int64_t> totals(own.size());
    for (const exact::Bucket& bucket : buckets) {
      const size_t first = bucket.first_block * kBlockElements;
      const size_t count = bucket.block_count * kBlockElements;
      RING_RETURN_IF_ERROR(all_reduce.Exact(
          context, layout.blocks().subspan(bucket.first_block, bucket.block_count),
          std::span(own).subspan(first, count), std::span(totals).subspan(first, count)));
      ++context.bucket;
    }
    const std::vector<Block> blocks = RecordBlocks(record.integers().size());
    std::vector<int64_t> mine(record.integers().begin(), record.integers().end());
    mine.resize(blocks.size() * kBlockElements);
    std::vector<int64_t> sum(mine.size());
    RING_RETURN_IF_ERROR(all_reduce.Exact(context, blocks, mine, sum));
    std::copy_n(sum.begin(), record.integers().size(), record.integers().begin());
    results.push_back(Conclude(layout, record, std::move(totals), &units));
  }
  return results;
}

StatusOr<std::vector<std::vector<StepResult>>> ReductionCase::Run(const std::vector<Link*>& links,
                                                                  GenerationId generation) const {
  std::vector<StatusOr<std::vector<StepResult>>> outcomes(members);
  {
    std::vector<std::jthread> threads;
    for (uint32_t rank = 0; rank < members; ++rank) {
      threads.emplace_back(
          [&, rank]() { outcomes[rank] = RunMember(rank, links[rank], generation); });
    }
  }
  std::vector<std::vector<StepResult>> results;
  for (uint32_t rank = 0; rank < members; ++rank) {
    if (!outcomes[rank].ok()) {
      return Annotate(outcomes[rank].status(), fmt::format("{}: member {}", Describe(), rank));
    }
    results.push_back(*std::move(outcomes[rank]));
  }
  return results;
}

std::vector<StepResult> ReductionCase::Reference() const {
  exact::Units units(&layout, precision_bits);
  std::vector<StepResult> results;
  for (size_t step = 0; step < gradients.size(); ++step) {
    std::vector<int64_t> totals(layout.arena_elements());
    exact::Record record(RecordShapeOf(shards));
    for (uint32_t shard = 0; shard < shards; ++shard) {
      const int64_t flag =
          FoldShard(layout, units, *this, gradients[step][shard], QuantizeAddInDouble, &totals);
      AddScalars(seed, step, shard, flag, &record);
    }
    results.push_back(Conclude(layout, record, std::move(totals), &units));
  }
  return results;
}

Status ReductionCase::Check(const std::vector<std::vector<StepResult>>& results) const {
  const std::vector<StepResult> reference = Reference();
  std::vector<int16_t> exponents(layout.block_count(), static_cast<int16_t>(precision_bits - 40));
  for (size_t step = 0; step < reference.size(); ++step) {
    for (uint32_t rank = 0; rank < members; ++rank) {
      if (results[rank].size() != reference.size() || results[rank][step] != reference[step]) {
        return Internal("{}: step {}: member {} differs from the sum over shards", Describe(), step,
                        rank);
      }
    }
    RING_RETURN_IF_ERROR(CheckBound(step, reference[step], exponents));
    exponents = reference[step].exponents;
  }
  return absl::OkStatus();
}

Status ReductionCase::CheckBound(size_t step, const StepResult& result,
                                 const std::vector<int16_t>& exponents) const {
  if (result.reduced.empty()) return absl::OkStatus();
  for (size_t b = 0; b < layout.block_count(); ++b) {
    const double unit = std::ldexp(1, exponents[b] - precision_bits);
    for (size_t i = b * kBlockElements; i < b * kBlockElements + layout.blocks()[b].count; ++i) {
      WideFixed sum;
      for (const auto& arena : gradients[step]) {
        sum += WideFixed(static_cast<double>(arena[i]) * gradient_scale);
      }
      const float reduced = result.reduced[i];
      const int exponent = reduced == 0 ? -126 : std::max(std::ilogb(reduced), -126);
      const WideFixed bound =
          WideFixed(shards * unit / 2) + WideFixed(std::ldexp(1, exponent - 23 - 1));
      if (!((WideFixed(reduced) - sum).Abs() <= bound)) {
        return Internal("{}: step {}: element {} is {}, further from the true sum than the bound",
                        Describe(), step, i, reduced);
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace ringmaster::ring
