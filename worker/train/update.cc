#include "worker/train/update.h"

#include <algorithm>
#include <bit>
#include <vector>

#include "common/exact/digest.h"
#include "common/exact/quantize.h"
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

// Exact reduction: the integers enter the digest and become float32.
exact::BlockSum TakeIntegers(TrainingJob* job, const Piece& piece) {
  exact::BlockSum sum;
  const exact::BlockLayout& layout = job->state->layout->blocks();
  for (size_t b = piece.first_block; b < piece.first_block + piece.block_count; ++b) {
    const exact::Block& block = layout.blocks()[b];
    const size_t at = b * exact::kBlockElements;
    const auto integers = job->totals.integers.span().subspan(at, block.count);
    sum.Add(block.tensor, block.index, integers);
    exact::Dequantize(integers, job->state->units.unit_exponent(b),
                      job->reduced.span().data() + at);
  }
  return sum;
}

// float32 reduction: the bits of the sums stand in for integers.
exact::BlockSum HashFloats(const TrainingJob& job, const Piece& piece) {
  exact::BlockSum sum;
  const exact::BlockLayout& layout = job.state->layout->blocks();
  int64_t bits[exact::kBlockElements];
  for (size_t b = piece.first_block; b < piece.first_block + piece.block_count; ++b) {
    const exact::Block& block = layout.blocks()[b];
    const auto floats = job.totals.floats.span().subspan(b * exact::kBlockElements, block.count);
    std::ranges::transform(floats, bits, [](float x) { return std::bit_cast<int32_t>(x); });
    sum.Add(block.tensor, block.index, {bits, block.count});
  }
  return sum;
}

exact::BlockSum ApplyPiece(TrainingJob* job, const Piece& piece) {
  DefaultFloatMode::Check();
  const bool exact_sums = job->reduced.size() > 0;
  const exact::BlockSum sum = exact_sums ? TakeIntegers(job, piece) : HashFloats(*job, piece);
  const std::span<const float> gradients =
      exact_sums ? job->reduced.span() : job->totals.floats.span();
  State& state = *job->state;
  std::vector<std::span<float>> slots;
  for (Arena<float>& slot : state.slots) {
    slots.push_back(slot.span().subspan(piece.offset(), piece.elements));
  }
  job->optimizer->Apply(state.updates + 1,
                        state.parameters.span().subspan(piece.offset(), piece.elements),
                        gradients.subspan(piece.offset(), piece.elements), slots);
  job->gradients->Clear(piece.first_block, piece.block_count);
  return sum;
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
  if (state->step % spec.steps_per_epoch() == 0) state->metrics = {};
  state->metrics.loss_sum += total.loss_sum();
  state->metrics.correct += total.correct();
  state->metrics.samples += total.samples();
}

}  // namespace

Status CheckFlags(const StateLayout& layout, uint64_t step, const exact::Record& total) {
  const exact::Record::Flagged flagged = total.first_flag();
  if (flagged.flag.kind == exact::FlagKind::kNone) return absl::OkStatus();
  const bool scalar = flagged.flag.tensor == exact::kRecordTensor;
  return FailedPrecondition(
      "step {}: {}{} of shard {} is {}; nothing of this step was applied. A smaller learning rate, "
      "or a look at the data, may help",
      step, scalar ? "" : "the gradient of ", layout.NameOf(flagged.flag.tensor), flagged.shard,
      flagged.flag.kind == exact::FlagKind::kNotFinite ? "not finite (NaN or infinity)"
                                                       : "too large to be summed exactly");
}

void ApplyStep(TrainingJob* job, const exact::Record& total) {
  State& state = *job->state;
  const std::vector<Piece> pieces = CutPieces(state.layout->blocks());
  std::vector<exact::BlockSum> sums(pieces.size());
  job->cores->ForEach(pieces.size(), [&](size_t i) { sums[i] = ApplyPiece(job, pieces[i]); });
  job->gradients->SetCleared();

  exact::BlockSum sum;
  for (const exact::BlockSum& part : sums) sum.Add(part);
  AddRecord(total, &sum);
  if (job->reduced.size() > 0) state.units.Advance(job->reduced.span());
  UpdateStatistics(total, &state);
  UpdateMetrics(job->spec(), total, &state);
  state.digest = exact::NextDigest(state.digest, state.step, sum);
  ++state.updates;
  ++state.step;
}

}  // namespace ringmaster::worker
