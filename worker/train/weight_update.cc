#include "worker/train/weight_update.h"

#include <algorithm>
#include <array>
#include <functional>
#include <span>
#include <utility>

#include "common/exact/arithmetic.h"
#include "common/failpoint.h"
#include "common/numeric/arithmetic.h"
#include "common/numeric/float_mode.h"
#include "worker/state/state_hash.h"
#include "worker/train/update_pieces.h"

namespace ringmaster::worker {
using passes::kBlockElements;
using passes::kFollowBlocks;
using passes::kStripBlocks;
using passes::Piece;
using passes::PieceSums;
using passes::SlotSpans;

// The passes of a step over all pieces: their state, which the cores share, each piece one core's.
class WeightUpdate::Passes {
 public:
  Passes(TrainingJob* job, SumSource source)
      : job_(*job),
        state_(*job->state),
        layout_(job->layout->blocks()),
        sums_(*job, source),
        parts_(1 + state_.slots.size()),
        pieces_(passes::CutPieces(layout_, *job->weights)),
        results_(pieces_.size(), PieceSums(parts_)),
        taken_(pieces_.size()),
        exponents_(job->exact_sums() ? layout_.block_count() : 0) {}

  // Hashes the sums and what was written, updates where each element is updated by itself; clears.
  void UpdateAlone() {
    job_.weights->BeginUpdate();
    ChangeAll([this](const Piece& piece, PieceSums* result) {
      const graph::TensorStep step = StepOf(piece, {});
      ForStrips(piece, [&](const Piece& strip) {
        const StripGradient gradient(sums_, layout_, strip);
        HashSums(strip, result);
        TakeExponents(strip, gradient.span());
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

  using Visit = std::function<void(const Piece& strip, std::span<const float> gradient)>;

  // Everything before an update with norms, of a bucket's pieces, or of those for which it was not
  // done yet. `visit` is called for each strip, on its core.
  void TakeBuckets(std::span<const uint32_t> buckets, const std::function<bool()>& abandoned,
                   Reads reads, const Visit& visit) {
    std::vector<size_t> wanted;
    for (const uint32_t number : buckets) {
      const exact::Bucket& bucket = job_.gradients->buckets()[number];
      for (size_t i = FirstPieceFrom(bucket.first_block);
           i < FirstPieceFrom(bucket.first_block + bucket.block_count); ++i) {
        wanted.push_back(i);
      }
    }
    Take(wanted, abandoned, reads, visit);
  }
  void TakeRest(Reads reads, const Visit& visit) {
    std::vector<size_t> wanted;
    for (size_t i = 0; i < pieces_.size(); ++i) {
      if (taken_[i] == 0) wanted.push_back(i);
    }
    const auto abandoned = [] { return false; };
    Take(wanted, abandoned, reads, visit);
  }

  // The slots of an update that adapts by its step, behind TakeRest. Gradients are made once more
  // of the sums, here and below: that is one pass over memory, where keeping them would be two.
  void Prepare(const std::vector<graph::NormFactors>& factors) {
    ForEach([&](const Piece& piece, PieceSums*) {
      const graph::TensorStep step = StepOf(piece, factors[piece.tensor]);
      ForStrips(piece, [&](const Piece& strip) {
        const StripGradient gradient(sums_, layout_, strip);
        graph::PrepareRange(step, gradient.span(), Slots(strip).spans());
      });
    });
  }

  // The update itself, behind TakeRest.
  void UpdateWith(const std::vector<graph::NormFactors>& factors, Reads reads) {
    job_.weights->BeginUpdate();
    ChangeAll([&](const Piece& piece, PieceSums* result) {
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

  // No update, whatever was taken.
  void Skip() {
    ChangeAll([this](const Piece& piece, PieceSums* result) {
      *result = PieceSums(parts_);
      ForStrips(piece, [&](const Piece& strip) {
        HashSums(strip, result);
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
    const auto found = std::ranges::find_if(
        largest, [](uint32_t magnitude) { return magnitude >= passes::kInfinity; });
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
    StripGradient(const passes::StepSums& sums, const exact::BlockLayout& layout,
                  const Piece& strip)
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

  // The pass that ends a step.
  void ChangeAll(const std::function<void(const Piece&, PieceSums*)>& change) {
    const size_t middle = pieces_.size() / 2;
    ForEach([&](const Piece& piece, PieceSums* result) {
      if (&piece == &pieces_[middle]) HitFailpoint("apply", state_.step);
      DefaultFloatMode::Check();
      change(piece, result);
    });
  }

  [[nodiscard]] size_t FirstPieceFrom(size_t block) const {
    const auto found = std::ranges::lower_bound(pieces_, block, {}, &Piece::first_block);
    return static_cast<size_t>(found - pieces_.begin());
  }

  void Take(const std::vector<size_t>& wanted, const std::function<bool()>& abandoned, Reads reads,
            const Visit& visit) {
    job_.cores->ForEach(wanted.size(), [&](size_t number) {
      if (abandoned()) return;
      DefaultFloatMode::Check();
      const size_t i = wanted[number];
      PieceSums* const result = &results_[i];
      ForStrips(pieces_[i], [&](const Piece& strip) {
        const StripGradient gradient(sums_, layout_, strip);
        HashSums(strip, result);
        TakeExponents(strip, gradient.span());
        if (reads == Reads::kFirst) Hash(strip, &result->read);
        visit(strip, gradient.span());
      });
      taken_[i] = 1;
    });
  }

  void HashSums(const Piece& strip, PieceSums* result) const {
    for (size_t b = strip.first_block; b < strip.first_block + strip.block_count; ++b) {
      sums_.Hash(layout_.blocks()[b], b, &result->totals);
    }
  }

  // For the next units.
  void TakeExponents(const Piece& strip, std::span<const float> gradient) {
    if (exponents_.empty()) return;
    for (size_t i = 0; i < strip.block_count; ++i) {
      const size_t b = strip.first_block + i;
      exponents_[b] = exact::Units::OwnExponent(
          gradient.subspan(i * kBlockElements, layout_.blocks()[b].count));
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
    const size_t begin = size_t{piece.index} * kBlockElements;
    job_.weights->Follow(piece.tensor,
                         state_.parameters.span().data() + layout_.tensor(piece.tensor).offset(),
                         {.begin = begin,
                          .from = begin + before * kBlockElements,
                          .to = size_t{strip.index} * kBlockElements + strip.elements});
  }

  void EndUpdate() {
    job_.gradients->SetCleared();
    if (job_.exact_sums()) state_.units.Settle(exponents_);
  }

  TrainingJob& job_;
  State& state_;
  const exact::BlockLayout& layout_;
  const passes::StepSums sums_;
  const size_t parts_;
  const std::vector<Piece> pieces_;  // ascending
  std::vector<PieceSums> results_;
  std::vector<uint8_t> taken_;      // of each piece
  std::vector<int16_t> exponents_;  // of each block's own sums; none of float32 sums
};

// What an update with norms is made of: squares of blocks, on the cores in any order, then a
// tensor's and the factors in theirs. Between two passes over the pieces all cores wait.
class WeightUpdate::Norms {
 public:
  Norms(const graph::Optimizer& optimizer, Passes* passes)
      : optimizer_(optimizer),
        reads_(optimizer.norms().needs_steps() ? Passes::Reads::kFirst
                                               : Passes::Reads::kWithUpdate),
        limited_{.limit = optimizer.norms().limit},
        passes_(*passes),
        blocks_(passes_.layout().block_count()),
        squares_(passes_.layout().tensors().size()),
        factors_(squares_.size()) {}

  void ReadAhead(std::span<const uint32_t> buckets, const std::function<bool()>& abandoned) {
    passes_.TakeBuckets(buckets, abandoned, reads_, add_squares_);
  }

  void Update() {
    const graph::NormRule& norms = optimizer_.norms();
    passes_.TakeRest(reads_, add_squares_);
    if (norms.needs_gradients()) AddBlocks(&graph::TensorSquares::gradient);
    if (norms.needs_weights()) SumWeights();
    factors_ = optimizer_.FactorsOf(squares_);
    if (norms.needs_steps()) {
      passes_.Prepare(factors_);
      SumSteps();
      factors_ = optimizer_.FactorsOf(squares_);
    }
    passes_.UpdateWith(factors_, reads_);
  }

 private:
  using Squares = std::function<double(const Piece& block)>;

  [[nodiscard]] graph::TensorStep StepOf(const Piece& piece) const {
    return passes_.StepOf(piece, factors_[piece.tensor]);
  }

  void SumWeights() {
    Sum(&graph::TensorSquares::weight, [this](const Piece&) -> Squares {
      return [this](const Piece& block) { return graph::SquaresOf(passes_.Weights(block)); };
    });
  }
  void SumSteps() {
    Sum(&graph::TensorSquares::step, [this](const Piece& piece) -> Squares {
      return [this, step = StepOf(piece)](const Piece& block) {
        return graph::StepSquaresOf(step, passes_.Weights(block), passes_.Slots(block).spans());
      };
    });
  }

  // `of`: what the squares of a piece's blocks are.
  void Sum(double graph::TensorSquares::*member, const std::function<Squares(const Piece&)>& of) {
    passes_.ForEach([&](const Piece& piece, PieceSums*) {
      const Squares squares = of(piece);
      for (size_t i = 0; i < piece.block_count; ++i) {
        const Piece block = piece.Part(i, 1);
        blocks_[block.first_block] = squares(block);
      }
    });
    AddBlocks(member);
  }
  void AddBlocks(double graph::TensorSquares::*member) {
    for (const exact::TensorRange& range : passes_.layout().tensors()) {
      squares_[range.tensor].*member =
          PairwiseSum(range.first_block, range.block_count, [&](size_t b) { return blocks_[b]; });
    }
  }

  const graph::Optimizer& optimizer_;
  const Passes::Reads reads_;    // slots that are prepared by the step are hashed before
  const graph::Around limited_;  // what comes before the squares of gradients
  Passes& passes_;
  std::vector<double> blocks_;                 // by block
  std::vector<graph::TensorSquares> squares_;  // by canonical number
  std::vector<graph::NormFactors> factors_;
  const Passes::Visit add_squares_ = [this](const Piece& block, std::span<const float> gradient) {
    static_assert(kStripBlocks == 1);
    if (!optimizer_.norms().needs_gradients()) return;
    blocks_[block.first_block] = graph::SquaresOf(gradient, limited_);
  };
};

WeightUpdate::WeightUpdate(TrainingJob* job, SumSource source)
    : passes_(std::make_unique<Passes>(job, source)) {
  const graph::Optimizer& optimizer = *job->optimizer;
  if (optimizer.needs_norms()) norms_ = std::make_unique<Norms>(optimizer, passes_.get());
}

WeightUpdate::~WeightUpdate() = default;

bool WeightUpdate::ReadsAhead(const TrainingJob& job) {
  return job.device == nullptr && job.optimizer != nullptr && job.optimizer->needs_norms();
}

void WeightUpdate::ReadAhead(std::span<const uint32_t> buckets,
                             const std::function<bool()>& abandoned) {
  if (norms_ != nullptr) norms_->ReadAhead(buckets, abandoned);
}

PassSums WeightUpdate::Apply() {
  if (norms_ != nullptr) {
    norms_->Update();
  } else {
    passes_->UpdateAlone();
  }
  return passes_->Finish();
}

PassSums WeightUpdate::Skip() {
  passes_->Skip();
  return passes_->Finish();
}

}  // namespace ringmaster::worker
