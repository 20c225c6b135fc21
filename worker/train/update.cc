#include "worker/train/update.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <vector>

#include "common/exact/digest.h"
#include "common/exact/quantize.h"
#include "common/failpoint.h"
#include "common/float_mode.h"
#include "common/job/shards.h"

namespace ringmaster::worker {
namespace {

// Blocks that one core updates at a time: 128 Ki elements. Has no influence on the result.
constexpr size_t kPieceBlocks = 512;

// A run of blocks of one tensor.
struct Piece {
  size_t first_block = 0;
  size_t block_count = 0;
  size_t elements = 0;
  [[nodiscard]] size_t offset() const { return first_block * exact::kBlockElements; }
};

std::vector<Piece> CutPieces(const exact::BlockLayout& layout) {
  std::vector<Piece> pieces;
  for (const exact::TensorRange& range : layout.tensors()) {
    for (size_t done = 0; done < range.block_count; done += kPieceBlocks) {
      const size_t blocks = std::min(kPieceBlocks, range.block_count - done);
      const size_t rest = range.elements - done * exact::kBlockElements;
      pieces.push_back({range.first_block + done, blocks,
                        std::min(rest, blocks * size_t{exact::kBlockElements})});
    }
  }
  return pieces;
}

// The digest's part of a piece; `each(b, integers)` is called for every block, while its integers
// are in cache. With float32 sums their bits stand in for integers.
template <typename Each>
exact::BlockSum HashPiece(const TrainingJob& job, const Piece& piece, Each each) {
  exact::BlockSum sum;
  const exact::BlockLayout& layout = job.state->layout->blocks();
  int64_t bits[exact::kBlockElements];
  for (size_t b = piece.first_block; b < piece.first_block + piece.block_count; ++b) {
    const exact::Block& block = layout.blocks()[b];
    const size_t at = b * exact::kBlockElements;
    std::span<const int64_t> integers{bits, block.count};
    if (job.exact_sums()) {
      integers = job.totals.integers.span().subspan(at, block.count);
    } else {
      std::ranges::transform(job.totals.floats.span().subspan(at, block.count), bits,
                             [](float x) { return std::bit_cast<int32_t>(x); });
    }
    sum.Add(block.tensor, block.index, integers);
    each(b, integers);
  }
  return sum;
}

// The reduced gradients of a piece, in job->reduced where the sums are integers.
exact::BlockSum TakeSums(TrainingJob* job, const Piece& piece) {
  return HashPiece(*job, piece, [job](size_t b, std::span<const int64_t> integers) {
    if (!job->exact_sums()) return;
    exact::Dequantize(integers, job->state->units.unit_exponent(b),
                      job->reduced.span().data() + b * exact::kBlockElements);
  });
}

exact::BlockSum ApplyPiece(TrainingJob* job, const Piece& piece) {
  DefaultFloatMode::Check();
  const exact::BlockSum sum = TakeSums(job, piece);
  const std::span<const float> gradients =
      job->exact_sums() ? job->reduced.span() : job->totals.floats.span();
  State& state = *job->state;
  std::vector<std::span<float>> slots;
  for (Arena<float>& slot : state.slots) {
    slots.push_back(slot.span().subspan(piece.offset(), piece.elements));
  }
  job->optimizer->Apply(state.updates + 1,
                        state.parameters.span().subspan(piece.offset(), piece.elements),
                        gradients.subspan(piece.offset(), piece.elements), slots);
  return sum;
}

exact::BlockSum SkipPiece(const TrainingJob& job, const Piece& piece) {
  return HashPiece(job, piece, [](size_t, std::span<const int64_t>) {});
}

void AddRecord(const exact::Record& total, exact::BlockSum* sum) {
  for (const exact::Block& block : total.blocks()) {
    const size_t at = size_t{block.index} * exact::kBlockElements;
    sum->Add(block.tensor, block.index, total.integers().subspan(at, block.count));
  }
}

void UpdateStatistics(const exact::Record& total, State* state) {
  std::vector<float> means(state->layout->channels());
  std::vector<float> variances(state->layout->channels());
  for (size_t i = 0; i < means.size(); ++i) {
    means[i] = static_cast<float>(total.mean(i));
    variances[i] = static_cast<float>(total.variance(i));
  }
  for (const StateLayout::Normalization& norm : state->layout->normalizations()) {
    const auto update = [&](const std::vector<float>& batch, Arena<float>* moving) {
      graph::UpdateMovingStatistic(norm.momentum,
                                   std::span(batch).subspan(norm.first_channel, norm.channels),
                                   moving->span().subspan(norm.first_channel, norm.channels));
    };
    update(means, &state->moving_means);
    update(variances, &state->moving_variances);
  }
}

void UpdateMetrics(const v1::ResultSpec& spec, const exact::Record& total, State* state) {
  const uint64_t epoch = state->step / spec.steps_per_epoch();
  EpochMetrics& metrics = state->metrics;
  const std::vector<double> sums = total.scalars();
  if (metrics.epoch != epoch) metrics = {.epoch = epoch};
  metrics.sums.resize(sums.size());
  std::ranges::transform(metrics.sums, sums, metrics.sums.begin(), std::plus<>());
  metrics.samples += total.samples();
}

// Calls `work` for every piece of the arena on the cores and clears the gradients behind it; the
// hash of the step's sums.
exact::BlockSum ForEachPiece(TrainingJob* job,
                             const std::function<exact::BlockSum(const Piece&)>& work) {
  const std::vector<Piece> pieces = CutPieces(job->state->layout->blocks());
  std::vector<exact::BlockSum> sums(pieces.size());
  const uint64_t step = job->state->step;
  job->cores->ForEach(pieces.size(), [&](size_t i) {
    if (i == pieces.size() / 2) HitFailpoint("apply", step);
    sums[i] = work(pieces[i]);
    job->gradients->Clear(pieces[i].first_block, pieces[i].block_count);
  });
  job->gradients->SetCleared();
  exact::BlockSum sum;
  for (const exact::BlockSum& part : sums) sum.Add(part);
  return sum;
}

// `sum`: of the gradients.
void EndStep(const exact::Record& total, exact::BlockSum sum, TrainingJob* job) {
  job->step_work.End();
  AddRecord(total, &sum);
  State& state = *job->state;
  state.digest = exact::NextDigest(state.digest, state.step, sum);
  ++state.step;
}

}  // namespace

std::string DescribeFlag(const StateLayout& layout, const exact::Record& total) {
  const exact::Record::Flagged flagged = total.first_flag();
  const bool scalar = flagged.flag.tensor == exact::kRecordTensor;
  return fmt::format("{}{} of shard {} is {}", scalar ? "" : "the gradient of ",
                     layout.NameOf(flagged.flag.tensor), flagged.shard,
                     flagged.flag.kind == exact::FlagKind::kNotFinite
                         ? "not finite (NaN or infinity)"
                         : "too large to be summed exactly");
}

StatusOr<Verdict> Judge(const TrainingJob& job, const exact::Record& total) {
  if (total.first_flag().flag.kind == exact::FlagKind::kNone) return Verdict::kApply;
  const State& state = *job.state;
  const std::string what = DescribeFlag(*state.layout, total);
  if (!job.scaled()) {
    return FailedPrecondition(
        "step {}: {}; nothing of this step was applied. A smaller learning rate, or a look at the "
        "data, may help",
        state.step, what);
  }
  if (state.loss_scale.value > 1) return Verdict::kSkip;
  return FailedPrecondition(
      "step {}: {} although the loss scale is 1, which cannot be halved: the values themselves "
      "overflow. A smaller learning rate, policy mixed_bfloat16, or a look at the data, may help",
      state.step, what);
}

Status ApplyStep(TrainingJob* job, const exact::Record& total, SumSource source) {
  MutexLock lock(job->state_mu);
  State& state = *job->state;
  exact::BlockSum sum;
  if (job->device != nullptr) {
    HitFailpoint("apply", state.step);
    RING_ASSIGN_OR_RETURN(sum, job->device->Apply(source, state.updates + 1));
  } else {
    sum = ForEachPiece(job, [job](const Piece& piece) { return ApplyPiece(job, piece); });
    if (job->exact_sums()) state.units.Advance(job->reduced.span());
  }
  if (job->scaled()) {
    state.loss_scale = AfterGoodStep(state.loss_scale, job->spec().growth_steps());
  }
  UpdateStatistics(total, &state);
  UpdateMetrics(job->spec(), total, &state);
  ++state.updates;
  EndStep(total, sum, job);
  return absl::OkStatus();
}

Status SkipStep(TrainingJob* job, const exact::Record& total, SumSource source) {
  MutexLock lock(job->state_mu);
  State& state = *job->state;
  exact::BlockSum sum;
  if (job->device != nullptr) {
    RING_ASSIGN_OR_RETURN(sum, job->device->Skip(source));
  } else {
    sum = ForEachPiece(job, [job](const Piece& piece) { return SkipPiece(*job, piece); });
    state.units.Reset();
  }
  state.loss_scale = AfterSkippedStep(state.loss_scale);
  EndStep(total, sum, job);
  return absl::OkStatus();
}

}  // namespace ringmaster::worker
