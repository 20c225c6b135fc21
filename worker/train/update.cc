#include "worker/train/update.h"

#include <algorithm>
#include <array>
#include <bit>
#include <functional>
#include <utility>
#include <vector>

#include "common/arithmetic.h"
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
  uint32_t tensor = 0;  // canonical number
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
      pieces.push_back({range.tensor, range.first_block + done, blocks,
                        std::min(rest, blocks * size_t{exact::kBlockElements})});
    }
  }
  return pieces;
}

// The digest's part of a piece; `each(b, elements)` is called for every block, while its integers
// are in cache. With float32 sums their bits stand in for integers.
template <typename Each>
exact::BlockSum HashPiece(const TrainingJob& job, const Piece& piece, Each each) {
  exact::BlockSum sum;
  const exact::BlockLayout& layout = job.state->layout->blocks();
  int64_t bits[exact::kBlockElements];
  for (size_t b = piece.first_block; b < piece.first_block + piece.block_count; ++b) {
    const exact::Block& block = layout.blocks()[b];
    const size_t at = b * exact::kBlockElements;
    const std::span<const int64_t> integers{bits, block.count};
    if (job.exact_sums()) {
      job.totals.integers.Read(b, std::span(bits, block.count));
    } else {
      std::ranges::transform(job.totals.floats.span().subspan(at, block.count), bits,
                             [](float x) { return std::bit_cast<int32_t>(x); });
    }
    sum.Add(block.tensor, block.index, integers);
    each(b, block.count);
  }
  return sum;
}

// The reduced gradients of a piece, in job->reduced where the sums are integers.
exact::BlockSum TakeSums(TrainingJob* job, const Piece& piece) {
  return HashPiece(*job, piece, [job](size_t b, uint32_t count) {
    if (!job->exact_sums()) return;
    job->totals.integers.Dequantize(b, job->state->units.unit_exponent(b),
                                    job->reduced.span().subspan(b * exact::kBlockElements, count));
  });
}

// The parts of a piece, as the update reads and changes them.
std::span<const float> GradientsOf(const TrainingJob& job, const Piece& piece) {
  return (job.exact_sums() ? job.reduced.span() : job.totals.floats.span())
      .subspan(piece.offset(), piece.elements);
}

std::vector<std::span<float>> SlotsOf(const Piece& piece, State* state) {
  std::vector<std::span<float>> slots;
  for (Arena<float>& slot : state->slots) {
    slots.push_back(slot.span().subspan(piece.offset(), piece.elements));
  }
  return slots;
}

void UpdatePiece(TrainingJob* job, const Piece& piece, const graph::NormFactors& factors) {
  DefaultFloatMode::Check();
  State& state = *job->state;
  graph::UpdateRange(job->optimizer->step(state.updates + 1, piece.tensor, factors),
                     state.parameters.span().subspan(piece.offset(), piece.elements),
                     GradientsOf(*job, piece), SlotsOf(piece, &state));
}

exact::BlockSum SkipPiece(const TrainingJob& job, const Piece& piece) {
  return HashPiece(job, piece, [](size_t, uint32_t) {});
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

// Calls `take` for every piece of the arena on the cores and clears the gradients behind it; the
// hash of the step's sums.
exact::BlockSum TakePieces(TrainingJob* job, const std::vector<Piece>& pieces,
                           const std::function<exact::BlockSum(const Piece&)>& take) {
  std::vector<exact::BlockSum> sums(pieces.size());
  const uint64_t step = job->state->step;
  job->cores->ForEach(pieces.size(), [&](size_t i) {
    if (i == pieces.size() / 2) HitFailpoint("apply", step);
    sums[i] = take(pieces[i]);
    job->gradients->Clear(pieces[i].first_block, pieces[i].block_count);
  });
  job->gradients->SetCleared();
  exact::BlockSum sum;
  for (const exact::BlockSum& part : sums) sum.Add(part);
  return sum;
}

// What an update with norms is made of: squares of blocks, on the cores in any order, then a
// tensor's and the factors in theirs. Between two of its passes over the pieces all cores wait.
class NormedUpdate {
 public:
  NormedUpdate(TrainingJob* job, const std::vector<Piece>& pieces)
      : job_(job),
        pieces_(pieces),
        layout_(job->layout->blocks()),
        blocks_(layout_.block_count()),
        squares_(layout_.tensors().size()),
        factors_(squares_.size()) {}

  // Behind TakeSums.
  void Run() {
    const graph::Adapts adapts = job_->optimizer->adapts();
    if (job_->optimizer->clips_norms() || adapts == graph::Adapts::kByGradient) SumGradients();
    if (adapts != graph::Adapts::kNot) SumWeights();
    factors_ = job_->optimizer->FactorsOf(squares_);
    if (adapts == graph::Adapts::kByStep) {
      ForEach([this](const Piece& piece) {
        graph::PrepareRange(StepOf(piece), GradientsOf(*job_, piece), Slots(piece));
      });
      SumSteps();
      factors_ = job_->optimizer->FactorsOf(squares_);
    }
    ForEach([this](const Piece& piece) { UpdatePiece(job_, piece, factors_[piece.tensor]); });
  }

 private:
  using Squares = std::function<double(const Piece& block)>;

  [[nodiscard]] graph::TensorStep StepOf(const Piece& piece) const {
    return job_->optimizer->step(job_->state->updates + 1, piece.tensor, factors_[piece.tensor]);
  }
  [[nodiscard]] std::vector<std::span<float>> Slots(const Piece& piece) const {
    return SlotsOf(piece, job_->state.get());
  }
  [[nodiscard]] std::span<const float> Weights(const Piece& piece) const {
    return std::as_const(job_->state->parameters).span().subspan(piece.offset(), piece.elements);
  }

  void SumGradients() {
    const graph::Around around = job_->optimizer->step(1, 0).around;  // the limit is everywhere one
    Sum(&graph::TensorSquares::gradient, [this, around](const Piece&) -> Squares {
      return [this, around](const Piece& block) {
        return graph::SquaresOf(GradientsOf(*job_, block), around);
      };
    });
  }
  void SumWeights() {
    Sum(&graph::TensorSquares::weight, [this](const Piece&) -> Squares {
      return [this](const Piece& block) { return graph::SquaresOf(Weights(block)); };
    });
  }
  void SumSteps() {
    Sum(&graph::TensorSquares::step, [this](const Piece& piece) -> Squares {
      return [this, step = StepOf(piece)](const Piece& block) {
        return graph::StepSquaresOf(step, Weights(block), Slots(block));
      };
    });
  }

  void ForEach(const std::function<void(const Piece&)>& work) {
    job_->cores->ForEach(pieces_.size(), [&](size_t i) { work(pieces_[i]); });
  }

  // `of`: what the squares of a piece's blocks are.
  void Sum(double graph::TensorSquares::*member, const std::function<Squares(const Piece&)>& of) {
    ForEach([&](const Piece& piece) {
      const Squares squares = of(piece);
      for (size_t b = piece.first_block; b < piece.first_block + piece.block_count; ++b) {
        blocks_[b] = squares({piece.tensor, b, 1, layout_.blocks()[b].count});
      }
    });
    for (const exact::TensorRange& range : layout_.tensors()) {
      squares_[range.tensor].*member =
          PairwiseSum(range.first_block, range.block_count, [&](size_t b) { return blocks_[b]; });
    }
  }

  TrainingJob* const job_;
  const std::vector<Piece>& pieces_;
  const exact::BlockLayout& layout_;
  std::vector<double> blocks_;                 // by block
  std::vector<graph::TensorSquares> squares_;  // by canonical number
  std::vector<graph::NormFactors> factors_;
};

// Sums, parameters, slots and averages; the digest's sum. One pass over the pieces where each
// element is updated by itself.
exact::BlockSum UpdateHere(TrainingJob* job) {
  const std::vector<Piece> pieces = CutPieces(job->layout->blocks());
  const bool normed = job->optimizer->needs_norms();
  const exact::BlockSum sum = TakePieces(job, pieces, [&](const Piece& piece) {
    const exact::BlockSum part = TakeSums(job, piece);
    if (!normed) UpdatePiece(job, piece, {});
    return part;
  });
  if (normed) NormedUpdate(job, pieces).Run();
  if (job->exact_sums()) job->state->units.Advance(job->reduced.span());
  return sum;
}

// What the evaluation of S(k) set, as blocks behind those of the record.
void AddWatched(const State& state, uint32_t first_index, exact::BlockSum* sum) {
  for (const Watched& each : state.watched) {
    const std::array<int64_t, 5> integers = {
        static_cast<int64_t>(each.looked), static_cast<int64_t>(each.best_step),
        static_cast<int64_t>(each.stale), std::bit_cast<int64_t>(each.best),
        std::bit_cast<int64_t>(each.reference)};
    sum->Add(exact::kRecordTensor, first_index++, integers);
  }
}

// `sum`: of the gradients.
void EndStep(const exact::Record& total, exact::BlockSum sum, TrainingJob* job) {
  job->step_work.End();
  AddRecord(total, &sum);
  State& state = *job->state;
  AddWatched(state, static_cast<uint32_t>(total.blocks().size()), &sum);
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
    sum = UpdateHere(job);
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
    sum = TakePieces(job, CutPieces(job->layout->blocks()),
                     [job](const Piece& piece) { return SkipPiece(*job, piece); });
    state.units.Reset();
  }
  state.loss_scale = AfterSkippedStep(state.loss_scale);
  EndStep(total, sum, job);
  return absl::OkStatus();
}

namespace {

// Where the rows of a step's batch lie among its elements: of each output all samples, one output
// behind the other.
struct BatchRows {
  explicit BatchRows(const TrainingJob& job)
      : first(job.state->predicted.before(job.state->step)),
        samples(job.state->predicted.before(job.state->step + 1) - first),
        elements(samples * job.layout->row_elements()) {}
  uint64_t first;  // sample
  uint64_t samples;
  uint64_t elements;
};

}  // namespace

RowBits OwnRows(const TrainingJob& job) {
  const BatchRows batch(job);
  RowBits own;
  for (uint64_t at = 0; at < batch.elements; at += exact::kBlockElements) {
    const auto count =
        static_cast<uint32_t>(std::min<uint64_t>(exact::kBlockElements, batch.elements - at));
    own.blocks.push_back({exact::kRecordTensor, static_cast<uint32_t>(own.blocks.size()), count});
  }
  own.bits.resize(own.blocks.size() * exact::kBlockElements);
  for (const ShardResult& result : job.step_work.results()) {
    const job::Range places = job::ShardOf(result.shard, job.spec().shards(), batch.samples);
    uint64_t at = 0;
    for (size_t i = 0; i < job.layout->rows().size(); ++i) {
      const uint64_t elements = job.layout->rows()[i].elements;
      std::ranges::transform(
          result.output.rows[i],
          own.bits.begin() + static_cast<ptrdiff_t>(at + places.begin * elements),
          [](float x) { return int64_t{std::bit_cast<uint32_t>(x)}; });
      at += batch.samples * elements;
    }
  }
  return own;
}

void TakeRows(TrainingJob* job, const exact::Record& total, const RowBits& rows) {
  MutexLock lock(job->state_mu);
  const BatchRows batch(*job);
  State& state = *job->state;
  const int64_t* bits = rows.bits.data();
  for (size_t i = 0; i < state.rows.size(); ++i) {
    const uint64_t elements = job->layout->rows()[i].elements;
    const uint64_t count = batch.samples * elements;
    std::transform(bits, bits + count, state.rows[i].span().data() + batch.first * elements,
                   [](int64_t x) { return std::bit_cast<float>(static_cast<uint32_t>(x)); });
    bits += count;
  }
  exact::BlockSum sum;
  const auto behind = static_cast<uint32_t>(total.blocks().size());
  for (size_t b = 0; b < rows.blocks.size(); ++b) {
    sum.Add(exact::kRecordTensor, behind + rows.blocks[b].index,
            std::span(rows.bits).subspan(b * exact::kBlockElements, rows.blocks[b].count));
  }
  UpdateMetrics(job->spec(), total, &state);
  EndStep(total, sum, job);
}

}  // namespace ringmaster::worker
