#include "tests/worker/ring/reduction_case.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <numeric>
#include <random>
#include <thread>

#include "common/exact/block_sums.h"
#include "common/exact/quantize.h"
#include "common/exact/units.h"
#include "tests/common/exact/kernel_tables.h"
#include "tests/support/wide_fixed.h"
#include "worker/ring/all_reduce.h"

namespace ringmaster::ring {
namespace {

using exact::kBlockElements;
using Random = std::mt19937_64;

uint64_t Draw(Random& random, uint64_t low, uint64_t high) {
  return std::uniform_int_distribution<uint64_t>(low, high)(random);
}

// What the gradients of one tensor are like in one step.
enum class Kind { kZero, kSubnormal, kUsual, kEveryExponent, kHuge, kNotFinite, kEdge, kCount };

Kind DrawKind(Random& random) {
  // Flags end the comparison with the true sum, so that they are the exception.
  static constexpr int kWeights[] = {3, 2, 10, 3, 1, 1, 3};
  static_assert(std::size(kWeights) == static_cast<size_t>(Kind::kCount));
  std::discrete_distribution<int> kinds(std::begin(kWeights), std::end(kWeights));
  return static_cast<Kind>(kinds(random));
}

float Signed(Random& random, uint32_t exponent_bits) {
  const auto bits = static_cast<uint32_t>(random());
  return std::bit_cast<float>((bits & 0x807fffff) | exponent_bits << 23);
}

// `scale` is the usual exponent of these values, biased by 127.
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
    case Kind::kEdge:
      return Signed(random, scale);
    default:
      if (Draw(random, 0, 400) == 0) return Signed(random, 255);
      return Signed(random, scale);
  }
}

void Fill(Random& random, Kind kind, uint32_t scale, std::span<float> values) {
  for (float& value : values) value = DrawValue(random, kind, scale);
}

// The exponent of values of 2^27 to 2^31 units as those are at first: around what a narrow block of
// sums, a narrow packed block and a narrow quantum can be, so that some shards, some members' sums
// and some totals are of int32 and others are not.
uint32_t DrawEdge(Random& random, float gradient_scale) {
  return static_cast<uint32_t>(127 + exact::kSmallestUnitExponent - std::ilogb(gradient_scale)) +
         static_cast<uint32_t>(Draw(random, 27, 30));
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

// Quantize's definition (common/exact/quantize.h) in double arithmetic, which is exact here.
exact::FlagKind QuantizeAddInDouble(std::span<const float> gradient, int unit_exponent,
                                    float gradient_scale, uint32_t shards, int64_t* sums) {
  int bits = 0;
  while ((uint32_t{1} << bits) < shards) ++bits;
  const double value_limit = std::ldexp(1, 127 - bits), limit = std::ldexp(1, 62 - bits);
  exact::FlagKind first = exact::FlagKind::kNone;
  for (size_t i = 0; i < gradient.size(); ++i) {
    const double value = static_cast<double>(gradient[i]) * gradient_scale;
    const double q = std::nearbyint(std::ldexp(value, -unit_exponent));
    exact::FlagKind kind = exact::FlagKind::kNone;
    if (!std::isfinite(value)) {
      kind = exact::FlagKind::kNotFinite;
    } else if (std::fabs(value) >= value_limit || std::fabs(q) >= limit) {
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

// Adds one shard's arena, block by block; the shard's flag.
template <typename Add>
int64_t FoldShard(const exact::BlockLayout& layout, std::span<const float> gradient, Add add) {
  int64_t flag = 0;
  for (uint32_t tensor = 0; tensor < layout.tensors().size(); ++tensor) {
    const exact::TensorRange& range = layout.tensor(tensor);
    for (size_t b = range.first_block; b < range.first_block + range.block_count; ++b) {
      const exact::FlagKind kind =
          add(b, gradient.subspan(b * kBlockElements, layout.blocks()[b].count));
      if (flag == 0) flag = exact::EncodeFlag(kind, tensor);
    }
  }
  return flag;
}

// From the sums of a step to its end. `finish` writes a block's reduced gradients, and gives their
// exponent.
template <typename Finish>
StepResult Conclude(const exact::BlockLayout& layout, const exact::Record& record,
                    const std::vector<int64_t>& totals, exact::Units* units, Finish finish) {
  StepResult result;
  result.totals = totals;
  result.record.assign(record.integers().begin(), record.integers().end());
  result.flag = record.first_flag();
  if (result.flag.flag.kind == exact::FlagKind::kNone) {
    result.reduced.resize(layout.arena_elements());
    std::vector<int16_t> own(layout.block_count());
    for (size_t b = 0; b < own.size(); ++b) {
      own[b] =
          finish(b, units->unit_exponent(b),
                 std::span(result.reduced).subspan(b * kBlockElements, layout.blocks()[b].count));
    }
    units->Settle(own);
  } else {
    units->Reset();
  }
  result.exponents.assign(units->exponents().begin(), units->exponents().end());
  return result;
}

// The integers of one member's gradients and of everybody's, in the case's form. They stay from
// step to step, with what was in them.
class MemberSums {
 public:
  MemberSums(const ReductionCase* job, const exact::Kernels* kernels)
      : job_(*job), kernels_(*kernels) {
    if (job_.form == SumsForm::kBlocks) {
      own_blocks_ = exact::BlockSums(job_.layout.block_count(), kernels_);
      total_blocks_ = exact::BlockSums(job_.layout.block_count(), kernels_);
    } else {
      own_.resize(job_.layout.arena_elements());
      totals_.resize(job_.form == SumsForm::kIntegers ? own_.size() : 0);
    }
  }

  void Clear() {
    if (job_.form == SumsForm::kBlocks) own_blocks_.Clear(0, job_.layout.block_count());
    std::ranges::fill(own_, 0);
  }
  // A shard; its flag.
  int64_t Add(const exact::Units& units, std::span<const float> gradient) {
    return FoldShard(job_.layout, gradient, [&](size_t b, std::span<const float> part) {
      const int unit = units.unit_exponent(b);
      return job_.form == SumsForm::kBlocks
                 ? own_blocks_.QuantizeAdd(b, part, unit, job_.gradient_scale, job_.shards)
                 : exact::QuantizeAdd(kernels_, part, unit, job_.gradient_scale, job_.shards,
                                      &own_[b * kBlockElements]);
    });
  }
  Status AddTo(AllReduce* reduce, uint32_t index, const exact::Bucket& bucket) {
    const auto blocks = job_.layout.blocks().subspan(bucket.first_block, bucket.block_count);
    if (job_.form == SumsForm::kBlocks) {
      return reduce->AddExact(index, blocks, {&own_blocks_, bucket.first_block},
                              {&total_blocks_, bucket.first_block});
    }
    const auto part = [&](std::vector<int64_t>& sums) {
      return std::span(sums).subspan(bucket.first_block * kBlockElements,
                                     bucket.block_count * kBlockElements);
    };
    return reduce->AddExact(index, blocks, std::span<const int64_t>(part(own_)),
                            part(job_.form == SumsForm::kInPlace ? own_ : totals_));
  }

  [[nodiscard]] std::vector<int64_t> own() const { return Read(own_blocks_, own_); }
  [[nodiscard]] std::vector<int64_t> totals() const {
    return Read(total_blocks_, job_.form == SumsForm::kInPlace ? own_ : totals_);
  }
  void Dequantize(size_t block, int unit_exponent, std::span<float> out) const {
    if (job_.form == SumsForm::kBlocks) {
      total_blocks_.Dequantize(block, unit_exponent, out);
      return;
    }
    const std::vector<int64_t>& totals = job_.form == SumsForm::kInPlace ? own_ : totals_;
    exact::Dequantize(kernels_, std::span(totals).subspan(block * kBlockElements, out.size()),
                      unit_exponent, out.data());
  }

 private:
  // Padding is zero.
  [[nodiscard]] std::vector<int64_t> Read(const exact::BlockSums& blocks,
                                          const std::vector<int64_t>& integers) const {
    if (job_.form != SumsForm::kBlocks) return integers;
    std::vector<int64_t> read(job_.layout.arena_elements());
    for (size_t b = 0; b < job_.layout.block_count(); ++b) {
      blocks.Read(b, std::span(read).subspan(b * kBlockElements, job_.layout.blocks()[b].count));
    }
    return read;
  }

  const ReductionCase& job_;
  const exact::Kernels& kernels_;
  exact::BlockSums own_blocks_, total_blocks_;
  std::vector<int64_t> own_, totals_;
};

// One round: buckets in a random order, of which some go on their way before the next is there, and
// the record beside the last.
Status ReduceRound(const Context& context, std::span<const exact::Bucket> buckets, Random& random,
                   AllReduce* reduce, MemberSums* sums, exact::Record* record) {
  const std::vector<exact::Block> blocks = record->blocks();
  const std::vector<int64_t> mine(record->integers().begin(), record->integers().end());
  std::vector<uint32_t> order(buckets.size());
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), random);
  reduce->Begin(context);
  for (const uint32_t index : order) {
    RING_RETURN_IF_ERROR(sums->AddTo(reduce, index, buckets[index]));
    if (index == order.back() || Draw(random, 0, 1) == 0) continue;
    reduce->Nudge();  // as if the next one were there: Work comes back
    RING_RETURN_IF_ERROR(reduce->Work(AllReduce::Until::kNews));
  }
  RING_RETURN_IF_ERROR(reduce->AddExact(static_cast<uint32_t>(buckets.size()), blocks,
                                        std::span(mine), record->integers()));
  RING_RETURN_IF_ERROR(reduce->Work(AllReduce::Until::kIdle));
  const size_t finished = reduce->TakeFinished().size();
  if (finished == buckets.size() + 1) return absl::OkStatus();
  return Internal("{} buckets finished of {} and a record", finished, buckets.size());
}

// What Make and MakeLarge have in common, of a case with members and shards.
void DrawMembers(Random& random, ReductionCase* result) {
  for (uint32_t shard = 0; shard < result->shards; ++shard) {
    result->owner.push_back(static_cast<uint32_t>(Draw(random, 0, result->members - 1)));
  }
  constexpr SumsForm kForms[] = {SumsForm::kBlocks, SumsForm::kBlocks, SumsForm::kBlocks,
                                 SumsForm::kIntegers, SumsForm::kInPlace};
  result->form = kForms[Draw(random, 0, std::size(kForms) - 1)];
  const std::vector<const exact::Kernels*> tables = exact::RunnableKernels();
  for (uint32_t rank = 0; rank < result->members; ++rank) {
    // The same draws whether there are two or three.
    result->kernels.push_back(tables[Draw(random, 0, 5) % tables.size()]);
  }
  result->precision_bits = static_cast<int>(Draw(random, 8, 24));
  result->gradient_scale = Draw(random, 0, 2) == 0 ? 0x1p-16F : 1.0F;
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
  DrawMembers(random, &result);
  result.layout = MakeLayout(random);
  result.bucket_elements = size_t{1} << Draw(random, 0, 13);
  const size_t small = kBlockElements * Draw(random, 1, 3);
  result.segment_elements = Draw(random, 0, 3) == 0 ? ReduceOptions().segment_elements : small;

  const size_t steps = Draw(random, 2, 4);
  for (size_t step = 0; step < steps; ++step) {
    std::vector<std::vector<float>> shards(result.shards);
    for (auto& arena : shards) arena.resize(result.layout.arena_elements());
    for (const exact::TensorRange& range : result.layout.tensors()) {
      const Kind kind = DrawKind(random);
      // A third of the tensors grows by 2^60 against the usual size, whatever it was before.
      const uint32_t usual = 110 + (Draw(random, 0, 2) == 0 ? 60 : 0);
      const uint32_t edge = DrawEdge(random, result.gradient_scale);
      for (auto& arena : shards) {
        Fill(random, kind, kind == Kind::kEdge ? edge : usual,
             std::span(arena).subspan(range.offset(), range.elements));
      }
    }
    result.gradients.push_back(std::move(shards));
  }
  return result;
}

ReductionCase ReductionCase::MakeLarge(uint64_t seed) {
  // Blocks of a chunk of the large tensor, by the rule that cuts it (worker/ring/all_reduce.cc).
  constexpr uint64_t kChunks[][2] = {{129, 512}, {513, 1600}, {2049, 2300}};
  Random random(seed);
  ReductionCase result;
  result.seed = seed;
  result.members = seed % 3 == 2 ? 2 : static_cast<uint32_t>(Draw(random, 2, 4));
  result.shards = static_cast<uint32_t>(Draw(random, 1, 4));
  DrawMembers(random, &result);
  const uint64_t chunk = Draw(random, kChunks[seed % 3][0], kChunks[seed % 3][1]);
  const uint64_t large = chunk * result.members * kBlockElements - Draw(random, 0, 255);
  std::vector<exact::BlockLayout::Tensor> tensors = {
      {0, large}, {1, Draw(random, 1, 16'000)}, {2, Draw(random, 16'000, 50'000)}};
  std::shuffle(tensors.begin(), tensors.end(), random);
  result.layout = *exact::BlockLayout::Create(tensors);
  result.bucket_elements = 1;  // each tensor is one
  result.segment_elements = ReduceOptions().segment_elements;

  for (size_t step = 0; step < 2; ++step) {
    std::vector<std::vector<float>> shards(result.shards);
    for (auto& arena : shards) arena.resize(result.layout.arena_elements());
    for (const exact::TensorRange& range : result.layout.tensors()) {
      // Stretches of a few blocks, so that a segment has every width.
      for (size_t at = 0; at < range.elements;) {
        constexpr Kind kKinds[] = {Kind::kZero, Kind::kUsual, Kind::kEveryExponent, Kind::kEdge};
        const Kind kind = kKinds[Draw(random, 0, std::size(kKinds) - 1)];
        const uint32_t scale = kind == Kind::kEdge ? DrawEdge(random, result.gradient_scale) : 110;
        const size_t count =
            std::min<size_t>(kBlockElements * Draw(random, 1, 40), range.elements - at);
        for (auto& arena : shards) {
          Fill(random, kind, scale, std::span(arena).subspan(range.offset() + at, count));
        }
        at += count;
      }
    }
    result.gradients.push_back(std::move(shards));
  }
  return result;
}

std::string ReductionCase::Describe() const {
  constexpr const char* kForms[] = {"sums of blocks", "int64", "int64 in place"};
  std::string of;
  for (const exact::Kernels* table : kernels) of += fmt::format(" {}", table->name);
  return fmt::format(
      "seed {}: {} members of{}, {} shards, {}, {} tensors, {} blocks, buckets of {}, segments of "
      "{}, B {}, {} steps",
      seed, members, of, shards, kForms[static_cast<size_t>(form)], layout.tensors().size(),
      layout.block_count(), bucket_elements, segment_elements, precision_bits, gradients.size());
}

StatusOr<std::vector<StepResult>> ReductionCase::RunMember(uint32_t rank, Link* link,
                                                           GenerationId generation) const {
  AllReduce all_reduce(link, {rank, members},
                       {.segment_elements = segment_elements,
                        .progress_limit = std::chrono::milliseconds(60'000),
                        .kernels = kernels[rank]});
  exact::Units units(&layout, precision_bits);
  const std::vector<exact::Bucket> buckets = exact::CutBuckets(layout, bucket_elements);
  MemberSums sums(this, kernels[rank]);
  Random random(seed * 1009 + rank);
  std::vector<StepResult> results;
  for (size_t step = 0; step < gradients.size(); ++step) {
    sums.Clear();
    exact::Record record(RecordShapeOf(shards));
    for (uint32_t shard = 0; shard < shards; ++shard) {
      if (owner[shard] != rank) continue;
      AddScalars(seed, step, shard, sums.Add(units, gradients[step][shard]), &record);
    }
    const std::vector<int64_t> own = sums.own();
    RING_RETURN_IF_ERROR(
        ReduceRound({.job = JobHash("job-1"), .generation = generation, .step = step}, buckets,
                    random, &all_reduce, &sums, &record));
    if (form != SumsForm::kInPlace && sums.own() != own) {
      return Internal("step {}: the contribution changed", step);
    }
    const auto finish = [&](size_t block, int unit_exponent, std::span<float> out) {
      sums.Dequantize(block, unit_exponent, out);
      return static_cast<int16_t>(
          exact::ExponentOf(kernels[rank]->largest_magnitude(out.data(), out.size())));
    };
    results.push_back(Conclude(layout, record, sums.totals(), &units, finish));
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
          FoldShard(layout, gradients[step][shard], [&](size_t block, std::span<const float> part) {
            return QuantizeAddInDouble(part, units.unit_exponent(block), gradient_scale, shards,
                                       &totals[block * kBlockElements]);
          });
      AddScalars(seed, step, shard, flag, &record);
    }
    const auto finish = [&](size_t block, int unit_exponent, std::span<float> out) {
      exact::Dequantize({&totals[block * kBlockElements], out.size()}, unit_exponent, out.data());
      return exact::Units::OwnExponent(out);
    };
    results.push_back(Conclude(layout, record, totals, &units, finish));
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
  const size_t stride = 1 + layout.arena_elements() / 50'000;
  for (size_t b = 0; b < layout.block_count(); ++b) {
    const double unit = std::ldexp(1, exponents[b] - precision_bits);
    const size_t first = b * kBlockElements;
    for (size_t i = first + b % stride; i < first + layout.blocks()[b].count; i += stride) {
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
