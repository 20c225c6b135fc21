#include "worker/train/weight_update.h"

#include <algorithm>
#include <array>
#include <bit>
#include <functional>
#include <span>
#include <utility>

#include "common/arithmetic.h"
#include "common/exact/arithmetic.h"
#include "common/exact/word_hash.h"
#include "common/failpoint.h"
#include "common/float_mode.h"
#include "worker/state/state_hash.h"

namespace ringmaster::worker {
namespace {

using exact::kBlockElements;

// Blocks of one thing to do for a core: 128 Ki elements. Has no influence on the result, nor has
// the next.
constexpr size_t kPieceBlocks = 512;
// Blocks that go through all of the pass before the next ones come.
constexpr size_t kStripBlocks = 1;
// Blocks after which compute copies follow: 64 KiB of parameters, still in the cache.
constexpr size_t kFollowBlocks = 64;

constexpr uint32_t kInfinity = exact::kInfinityBits;  // magnitudes from here on are not finite

// A run of blocks of one tensor.
struct Piece {
  uint32_t tensor = 0;  // canonical number
  size_t place = 0;     // of the tensor in the arena
  uint32_t index = 0;   // of its first block in the tensor
  size_t first_block = 0;
  size_t block_count = 0;
  size_t elements = 0;
  [[nodiscard]] size_t offset() const { return first_block * kBlockElements; }
  // `count` of its blocks from the `done`-th on, or as many as there are.
  [[nodiscard]] Piece Part(size_t done, size_t count) const {
    Piece part = *this;
    part.index += static_cast<uint32_t>(done);
    part.first_block += done;
    part.block_count = std::min(count, block_count - done);
    part.elements = std::min(elements - done * kBlockElements, part.block_count * kBlockElements);
    return part;
  }
};

// In whole units of what follows the update, while those are not far larger.
size_t PieceBlocks(size_t unit_elements) {
  const size_t unit = unit_elements / kBlockElements;
  if (unit <= 1 || unit_elements % kBlockElements != 0 || unit > 8 * kPieceBlocks) {
    return kPieceBlocks;
  }
  return (kPieceBlocks + unit - 1) / unit * unit;
}

std::vector<Piece> CutPieces(const exact::BlockLayout& layout, const Weights& weights) {
  std::vector<Piece> pieces;
  size_t place = 0;
  for (const exact::TensorRange& range : layout.tensors()) {
    const Piece whole = {range.tensor,      place++,           0,
                         range.first_block, range.block_count, range.elements};
    const size_t blocks = PieceBlocks(weights.FollowedUnit(range.tensor));
    for (size_t done = 0; done < whole.block_count; done += blocks) {
      pieces.push_back(whole.Part(done, blocks));
    }
  }
  return pieces;
}

// Where the sums of the step are, and their units, which the update replaces: the one place that
// reads them.
class StepSums {
 public:
  StepSums(const TrainingJob& job, SumSource source)
      : integers_(source == SumSource::kOwn ? job.gradients->integers() : job.totals.integers),
        exponents_(job.state->units.exponents().begin(), job.state->units.exponents().end()),
        precision_bits_(job.state->units.precision_bits()) {
    const exact::Bucket all{0, job.layout->blocks().block_count()};
    floats_ = source == SumSource::kOwn ? job.gradients->floats(all) : job.totals.floats.span();
  }

  // The hash of block b's. Of float32 sums the bits stand for integers.
  void Hash(const exact::Block& block, size_t b, exact::BlockSum* sum) const {
    if (!floats_.empty()) {
      const float* const floats = floats_.data() + b * kBlockElements;
      exact::AddWords(block.tensor, block.index, floats, block.count, sum);
      return;
    }
    if (const int32_t* const narrow = integers_.narrow(b); narrow != nullptr) {
      sum->Add(block.tensor, block.index, std::span(narrow, block.count));
    } else {
      std::array<int64_t, kBlockElements> wide;
      integers_.Read(b, std::span(wide).first(block.count));
      sum->Add(block.tensor, block.index, std::span<const int64_t>(wide.data(), block.count));
    }
  }

  // The reduced gradient of block b.
  void Gradient(const exact::Block& block, size_t b, float* gradient) const {
    if (!floats_.empty()) {
      std::ranges::copy(floats_.subspan(b * kBlockElements, block.count), gradient);
    } else {
      integers_.Dequantize(b, exponents_[b] - precision_bits_, {gradient, block.count});
    }
  }

 private:
  const exact::BlockSums& integers_;
  std::span<const float> floats_;
  const std::vector<int16_t> exponents_;  // of the step
  const int precision_bits_;
};

// What became of one piece, by part: the parameters, then each slot.
struct PieceSums {
  explicit PieceSums(size_t parts) : read(parts), written(parts), largest(parts) {}
  exact::BlockSum totals;
  std::vector<exact::BlockSum> read, written;
  std::vector<uint32_t> largest;  // magnitudes, after the pass
};

// The slots of a range, without an allocation: there is a range for every strip.
class SlotSpans {
 public:
  void Add(std::span<float> slot) { spans_[count_++] = slot; }
  [[nodiscard]] std::span<const std::span<float>> spans() const { return {spans_.data(), count_}; }

 private:
  std::array<std::span<float>, graph::Rules::kMaxSlots + 1> spans_;  // one more for the average
  size_t count_ = 0;
};

// A pass over all pieces: its state, which the cores share, each piece one core's.
class Pass {
 public:
  Pass(TrainingJob* job, SumSource source)
      : job_(*job),
        state_(*job->state),
        layout_(job->layout->blocks()),
        sums_(*job, source),
        parts_(1 + state_.slots.size()),
        pieces_(CutPieces(layout_, *job->weights)),
        results_(pieces_.size(), PieceSums(parts_)) {}

  // Hashes the sums and what was written, updates where each element is updated by itself; clears.
  void UpdateAlone() {
    TakePieces([this](const Piece& piece, PieceSums* result) {
      const graph::TensorStep step = StepOf(piece, {});
      ForStrips(piece, [&](const Piece& strip) {
        const StripGradient gradient(sums_, layout_, strip);
        TakeStrip(strip, gradient.span(), result);
        Hash(strip, &result->read);
        Update(strip, step, gradient.span(), result);
        job_.gradients->Clear(strip.first_block, strip.block_count);
        Follow(piece, strip);
      });
    });
    EndUpdate();
  }

  // When what the step reads is hashed: with its gradients, or with the update, which comes to it
  // anyway.
  enum class Reads : uint8_t { kFirst, kWithUpdate };

  // Everything before an update with norms. `look(strip, gradient)` is called for each block, on
  // its core.
  template <typename Look>
  void TakeAll(Reads reads, Look look) {
    TakePieces([&](const Piece& piece, PieceSums* result) {
      ForStrips(piece, [&](const Piece& strip) {
        const StripGradient gradient(sums_, layout_, strip);
        TakeStrip(strip, gradient.span(), result);
        if (reads == Reads::kFirst) Hash(strip, &result->read);
        look(strip, gradient.span());
      });
    });
  }

  // The slots of an update that adapts by its step, behind TakeAll. Gradients are made once more of
  // the sums, here and below: that is one pass over memory, where keeping them would be two.
  void Prepare(const std::vector<graph::NormFactors>& factors) {
    ForEach([&](const Piece& piece, PieceSums*) {
      const graph::TensorStep step = StepOf(piece, factors[piece.tensor]);
      ForStrips(piece, [&](const Piece& strip) {
        const StripGradient gradient(sums_, layout_, strip);
        graph::PrepareRange(step, gradient.span(), Slots(strip).spans());
      });
    });
  }

  // The update itself, behind TakeAll.
  void UpdateWith(const std::vector<graph::NormFactors>& factors, Reads reads) {
    ForEach([&](const Piece& piece, PieceSums* result) {
      const graph::TensorStep step = StepOf(piece, factors[piece.tensor]);
      ForStrips(piece, [&](const Piece& strip) {
        if (reads == Reads::kWithUpdate) Hash(strip, &result->read);
        const StripGradient gradient(sums_, layout_, strip);
        Update(strip, step, gradient.span(), result);
        job_.gradients->Clear(strip.first_block, strip.block_count);
        Follow(piece, strip);
      });
    });
    EndUpdate();
  }

  // No update.
  void Skip() {
    TakePieces([this](const Piece& piece, PieceSums* result) {
      ForStrips(piece, [&](const Piece& strip) {
        TakeStrip(strip, {}, result);
        Hash(strip, &result->read);
        job_.gradients->Clear(strip.first_block, strip.block_count);
      });
      result->written = result->read;
    });
    job_.gradients->SetCleared();
  }

  [[nodiscard]] PassSums Finish() const {
    const size_t tensors = layout_.tensors().size();
    PassSums all;
    all.read.resize(parts_ * tensors);
    all.written.resize(parts_ * tensors);
    std::vector<uint32_t> largest(parts_ * tensors);
    for (size_t i = 0; i < pieces_.size(); ++i) {
      all.totals.Add(results_[i].totals);
      for (size_t part = 0; part < parts_; ++part) {
        const size_t at = part * tensors + pieces_[i].place;
        all.read[at].Add(results_[i].read[part]);
        all.written[at].Add(results_[i].written[part]);
        largest[at] = std::max(largest[at], results_[i].largest[part]);
      }
    }
    const auto found =
        std::ranges::find_if(largest, [](uint32_t magnitude) { return magnitude >= kInfinity; });
    if (found == largest.end()) return all;
    const auto at = static_cast<size_t>(found - largest.begin());
    all.not_finite = job_.layout->NameOf(layout_.tensors()[at % tensors].tensor);
    if (at >= tensors) all.not_finite += "/" + job_.layout->slot_names()[at / tensors - 1];
    return all;
  }

  void ForEach(const std::function<void(const Piece&, PieceSums*)>& work) {
    job_.cores->ForEach(pieces_.size(), [&](size_t i) { work(pieces_[i], &results_[i]); });
  }
  [[nodiscard]] graph::TensorStep StepOf(const Piece& piece,
                                         const graph::NormFactors& factors) const {
    return job_.optimizer->step(state_.updates + 1, piece.tensor, factors, job_.rates);
  }
  [[nodiscard]] std::span<float> Weights(const Piece& piece) const {
    return state_.parameters.span().subspan(piece.offset(), piece.elements);
  }
  [[nodiscard]] SlotSpans Slots(const Piece& piece) const {
    SlotSpans slots;
    for (Arena<float>& slot : state_.slots) {
      slots.Add(slot.span().subspan(piece.offset(), piece.elements));
    }
    return slots;
  }
  [[nodiscard]] const exact::BlockLayout& layout() const { return layout_; }

 private:
  // A strip's reduced gradient.
  class StripGradient {
   public:
    StripGradient(const StepSums& sums, const exact::BlockLayout& layout, const Piece& strip)
        : elements_(strip.elements) {
      for (size_t i = 0; i < strip.block_count; ++i) {
        const size_t b = strip.first_block + i;
        sums.Gradient(layout.blocks()[b], b, values_.data() + i * kBlockElements);
      }
    }
    [[nodiscard]] std::span<const float> span() const { return {values_.data(), elements_}; }

   private:
    const size_t elements_;
    alignas(64) std::array<float, kStripBlocks * kBlockElements> values_;
  };

  template <typename Work>
  static void ForStrips(const Piece& piece, Work work) {
    for (size_t done = 0; done < piece.block_count; done += kStripBlocks) {
      work(piece.Part(done, kStripBlocks));
    }
  }

  void TakePieces(const std::function<void(const Piece&, PieceSums*)>& take) {
    const size_t middle = pieces_.size() / 2;
    ForEach([&](const Piece& piece, PieceSums* result) {
      if (&piece == &pieces_[middle]) HitFailpoint("apply", state_.step);
      DefaultFloatMode::Check();
      take(piece, result);
    });
  }

  // Hashes the sums; the next units come from `gradient`, where there is one.
  void TakeStrip(const Piece& strip, std::span<const float> gradient, PieceSums* result) {
    for (size_t i = 0; i < strip.block_count; ++i) {
      const size_t b = strip.first_block + i;
      const exact::Block& block = layout_.blocks()[b];
      sums_.Hash(block, b, &result->totals);
      if (gradient.empty() || !job_.exact_sums()) continue;
      state_.units.Take(b, gradient.subspan(i * kBlockElements, block.count));
    }
  }

  [[nodiscard]] std::span<const float> Trained(size_t part, const Piece& strip) const {
    const Arena<float>& arena = part == 0 ? state_.parameters : state_.slots[part - 1];
    return arena.span().subspan(strip.offset(), strip.elements);
  }

  // Adds the hashes of a strip's parameters and slots.
  void Hash(const Piece& strip, std::vector<exact::BlockSum>* sums) const {
    for (size_t part = 0; part < parts_; ++part) {
      AddTrained(part, strip.tensor, strip.index, Trained(part, strip), &(*sums)[part]);
    }
  }

  void Look(const Piece& strip, std::vector<uint32_t>* largest) const {
    for (size_t part = 0; part < parts_; ++part) {
      const uint32_t found = exact::LargestMagnitude(Trained(part, strip));
      (*largest)[part] = std::max((*largest)[part], found);
    }
  }

  void Update(const Piece& strip, const graph::TensorStep& step, std::span<const float> gradient,
              PieceSums* result) const {
    graph::UpdateRange(step, Weights(strip), gradient, Slots(strip).spans());
    Hash(strip, &result->written);
    Look(strip, &result->largest);
  }

  // `strip` of the piece was updated, after all before it.
  void Follow(const Piece& piece, const Piece& strip) const {
    const size_t done = strip.index - piece.index + strip.block_count;
    if (done % kFollowBlocks != 0 && done != piece.block_count) return;
    const size_t before = (done - 1) / kFollowBlocks * kFollowBlocks;
    const size_t begin = piece.index * kBlockElements;
    job_.weights->Follow(piece.tensor,
                         state_.parameters.span().data() + layout_.tensor(piece.tensor).offset(),
                         {.begin = begin,
                          .from = begin + before * kBlockElements,
                          .to = strip.index * kBlockElements + strip.elements});
  }

  void EndUpdate() {
    job_.gradients->SetCleared();
    if (job_.exact_sums()) state_.units.Settle();
  }

  TrainingJob& job_;
  State& state_;
  const exact::BlockLayout& layout_;
  const StepSums sums_;
  const size_t parts_;
  const std::vector<Piece> pieces_;
  std::vector<PieceSums> results_;
};

// What an update with norms is made of: squares of blocks, on the cores in any order, then a
// tensor's and the factors in theirs. Between two of its passes over the pieces all cores wait.
class NormedUpdate {
 public:
  NormedUpdate(TrainingJob* job, Pass* pass)
      : optimizer_(*job->optimizer),
        pass_(*pass),
        blocks_(pass->layout().block_count()),
        squares_(pass->layout().tensors().size()),
        factors_(squares_.size()) {}

  void Run() {
    const graph::Adapts adapts = optimizer_.adapts();
    // What is prepared by step are slots: they are hashed before.
    const auto reads =
        adapts == graph::Adapts::kByStep ? Pass::Reads::kFirst : Pass::Reads::kWithUpdate;
    TakeGradients(reads, optimizer_.clips_norms() || adapts == graph::Adapts::kByGradient);
    if (adapts != graph::Adapts::kNot) SumWeights();
    factors_ = optimizer_.FactorsOf(squares_);
    if (adapts == graph::Adapts::kByStep) {
      pass_.Prepare(factors_);
      SumSteps();
      factors_ = optimizer_.FactorsOf(squares_);
    }
    pass_.UpdateWith(factors_, reads);
  }

 private:
  using Squares = std::function<double(const Piece& block)>;

  [[nodiscard]] graph::TensorStep StepOf(const Piece& piece) const {
    return pass_.StepOf(piece, factors_[piece.tensor]);
  }

  void TakeGradients(Pass::Reads reads, bool squares) {
    const graph::Around around = optimizer_.step(1, 0).around;  // the limit is everywhere one
    static_assert(kStripBlocks == 1);
    pass_.TakeAll(reads, [&](const Piece& block, std::span<const float> gradient) {
      if (squares) blocks_[block.first_block] = graph::SquaresOf(gradient, around);
    });
    if (squares) AddBlocks(&graph::TensorSquares::gradient);
  }
  void SumWeights() {
    Sum(&graph::TensorSquares::weight, [this](const Piece&) -> Squares {
      return [this](const Piece& block) { return graph::SquaresOf(pass_.Weights(block)); };
    });
  }
  void SumSteps() {
    Sum(&graph::TensorSquares::step, [this](const Piece& piece) -> Squares {
      return [this, step = StepOf(piece)](const Piece& block) {
        return graph::StepSquaresOf(step, pass_.Weights(block), pass_.Slots(block).spans());
      };
    });
  }

  // `of`: what the squares of a piece's blocks are.
  void Sum(double graph::TensorSquares::*member, const std::function<Squares(const Piece&)>& of) {
    pass_.ForEach([&](const Piece& piece, PieceSums*) {
      const Squares squares = of(piece);
      for (size_t i = 0; i < piece.block_count; ++i) {
        const Piece block = piece.Part(i, 1);
        blocks_[block.first_block] = squares(block);
      }
    });
    AddBlocks(member);
  }
  void AddBlocks(double graph::TensorSquares::*member) {
    for (const exact::TensorRange& range : pass_.layout().tensors()) {
      squares_[range.tensor].*member =
          PairwiseSum(range.first_block, range.block_count, [&](size_t b) { return blocks_[b]; });
    }
  }

  const graph::Optimizer& optimizer_;
  Pass& pass_;
  std::vector<double> blocks_;                 // by block
  std::vector<graph::TensorSquares> squares_;  // by canonical number
  std::vector<graph::NormFactors> factors_;
};

}  // namespace

PassSums UpdateWeights(TrainingJob* job, SumSource source) {
  job->weights->BeginUpdate();
  Pass pass(job, source);
  if (job->optimizer->needs_norms()) {
    NormedUpdate(job, &pass).Run();
  } else {
    pass.UpdateAlone();
  }
  return pass.Finish();
}

PassSums PassOver(TrainingJob* job, SumSource source) {
  Pass pass(job, source);
  pass.Skip();
  return pass.Finish();
}

}  // namespace ringmaster::worker
