// S(k): everything that step k reads and changes, and nothing else; how it lies in memory, and what
// its parts are called.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/arena.h"
#include "common/exact/block_layout.h"
#include "common/exact/digest.h"
#include "common/exact/record.h"
#include "common/exact/units.h"
#include "common/graph/program.h"
#include "common/sha256.h"
#include "common/status.h"
#include "ringmaster/v1/job.pb.h"
#include "worker/state/state_hash.h"

namespace ringmaster::worker {

// How the state of a job lies in memory and what its parts are called: one arena for parameters and
// one for each optimizer slot, in the order of backward, cut into blocks; one for what is frozen;
// all normalizations' channels one after the other. Immutable, shared, thread-safe. Made from a
// program, the same for every shard shape; of a job that trains from one that does.
class StateLayout {
 public:
  struct Tensor {
    std::string name;
    graph::Shape shape;
    graph::Initializer initializer;
    uint32_t index = 0;  // see graph::Parameter
  };
  struct Normalization {
    std::string name;
    double momentum = 0;
    size_t first_channel = 0;  // in the statistics of all normalizations
    size_t channels = 0;
  };

  struct Scalar {
    std::string name;     // of the output that it is for
    bool counts = false;  // see graph::Scalar
  };

  // What the job predicts: float32, a row a sample, one after the other.
  struct Rows {
    std::string name;
    graph::Shape shape;     // of a sample
    uint64_t elements = 0;  // likewise
  };

  // INTERNAL when the program's gradient order does not name each parameter once.
  [[nodiscard]] static StatusOr<std::shared_ptr<const StateLayout>> Create(
      const graph::Program& program, std::vector<std::string> slot_names);

  StateLayout(const StateLayout&) = delete;
  StateLayout& operator=(const StateLayout&) = delete;

  [[nodiscard]] const exact::BlockLayout& blocks() const { return blocks_; }
  // By canonical number.
  [[nodiscard]] const std::vector<Tensor>& tensors() const { return tensors_; }
  // What is frozen, in the order of the program, and how it lies: in an arena of its own.
  [[nodiscard]] const std::vector<Tensor>& frozen_tensors() const { return frozen_tensors_; }
  [[nodiscard]] const exact::BlockLayout& frozen() const { return frozen_; }
  [[nodiscard]] const std::vector<Normalization>& normalizations() const { return normalizations_; }
  [[nodiscard]] size_t channels() const { return channels_; }  // of all normalizations
  [[nodiscard]] const std::vector<std::string>& slot_names() const { return slot_names_; }
  // The last slot is the average of the parameters (graph::kAverageSlot).
  [[nodiscard]] bool averages() const;
  // What programs read of the data, in their order.
  [[nodiscard]] const std::vector<std::string>& columns() const { return columns_; }
  // What shards say beside gradients, and what is made of it; the same in every program.
  [[nodiscard]] const std::vector<Scalar>& scalars() const { return scalars_; }
  [[nodiscard]] const std::vector<graph::Output>& outputs() const { return outputs_; }
  [[nodiscard]] const std::vector<Rows>& rows() const { return rows_; }
  // See graph::Program, of all three.
  [[nodiscard]] uint32_t rate_groups() const { return rate_groups_; }
  [[nodiscard]] const std::map<std::string, int64_t>& counters() const { return counters_; }
  [[nodiscard]] const std::map<std::string, std::string>& aliases() const { return aliases_; }
  [[nodiscard]] uint64_t row_elements() const;  // of a sample, all of them
  // Of a training step; of an evaluation, which has no batch statistics.
  [[nodiscard]] exact::RecordShape step_record(uint32_t shards) const;
  [[nodiscard]] exact::RecordShape evaluation_record(uint32_t shards) const;
  // The tensor's name, or what the scalars record is called in messages.
  [[nodiscard]] std::string NameOf(uint32_t tensor) const;

 private:
  StateLayout(exact::BlockLayout blocks, exact::BlockLayout frozen)
      : blocks_(std::move(blocks)), frozen_(std::move(frozen)) {}

  exact::BlockLayout blocks_;
  exact::BlockLayout frozen_;
  std::vector<Tensor> tensors_;
  std::vector<Tensor> frozen_tensors_;
  std::vector<Normalization> normalizations_;
  size_t channels_ = 0;
  std::vector<std::string> slot_names_;
  std::vector<std::string> columns_;
  std::vector<Scalar> scalars_;
  std::vector<graph::Output> outputs_;
  std::vector<Rows> rows_;
  uint32_t rate_groups_ = 0;
  std::map<std::string, int64_t> counters_;
  std::map<std::string, std::string> aliases_;
};

// The dynamic loss scale S of mixed_float16 (Micikevicius et al., "Mixed Precision Training",
// 2018), part of the state: backward is seeded with S/n and gradients are multiplied by 1/S, both
// exact, as S is a power of two. Values and free functions. With other policies S is 1 and never
// changes.

// Also the most that a job may start with: S/n stays far from float32's limits for every batch.
inline constexpr uint32_t kLargestLossScale = uint32_t{1} << 24;

struct LossScale {
  uint32_t value = 1;       // S: a power of two, 1 to kLargestLossScale
  uint32_t good_steps = 0;  // applied in a row since S was set
  bool operator==(const LossScale&) const = default;

  // S/n, rounded once; 1/S, exact.
  [[nodiscard]] float seed(uint64_t samples) const {
    return static_cast<float>(value) / static_cast<float>(samples);
  }
  [[nodiscard]] float inverse() const { return 1.0F / static_cast<float>(value); }
};

// After an applied step: the growth_steps-th good one in a row doubles S (not past its largest) and
// starts to count anew.
[[nodiscard]] constexpr LossScale AfterGoodStep(LossScale scale, uint32_t growth_steps) {
  if (++scale.good_steps < growth_steps) return scale;
  return {scale.value < kLargestLossScale ? scale.value * 2 : scale.value, 0};
}

// After a skipped step. S is at least 2: under 1 there is no scale.
[[nodiscard]] constexpr LossScale AfterSkippedStep(LossScale scale) { return {scale.value / 2, 0}; }

// S(k): everything that step k reads and changes, and nothing else. A pure function of
// (ResolvedJob, k). Owned by the trainer; step thread, or several threads on ranges of their own
// inside one update.

// Over the samples of one epoch so far, skipped steps left out; starts anew with the epoch's first
// applied step.
struct EpochMetrics {
  uint64_t epoch = 0;
  uint64_t samples = 0;
  std::vector<double> sums;  // of each scalar; empty: all 0
};

// Of one metric that the job watches; set by the evaluation of a state, before anything is made of
// that state.
struct Watched {
  std::string name;        // validation/loss
  uint64_t looked = 0;     // the newest state that was evaluated; 0: none
  uint64_t best_step = 0;  // 0: no evaluation gave a number
  double best = 0;
  // Of early stopping: evaluations since the one that was better by more than min_delta, and what
  // that one gave.
  uint64_t stale = 0;
  double reference = 0;
  bool operator==(const Watched&) const = default;
};

// How many samples a job predicts, a batch in each step; of other jobs 0.
struct Predicted {
  uint64_t samples = 0, batch = 0;
  // So many before that step.
  [[nodiscard]] uint64_t before(uint64_t step) const { return std::min(step * batch, samples); }
};
[[nodiscard]] Predicted PredictedOf(const v1::ResultSpec& spec);

struct State {
  // All zero, step 0; Initialize makes it S(0). `master`: where the parameters lie, zeros of the
  // layout's size that outlive it; empty: anywhere.
  State(std::shared_ptr<const StateLayout> state_layout, int precision_bits,
        std::vector<Watched> watches = {}, Predicted predicts = {}, std::span<float> master = {});

  std::shared_ptr<const StateLayout> layout;
  Arena<float> parameters;
  std::vector<Arena<float>> slots;  // by slot_names()
  Arena<float> frozen;              // as in S(0), in the layout's frozen()
  Arena<float> moving_means;        // all normalizations' channels
  Arena<float> moving_variances;
  exact::Units units;
  uint64_t step = 0;     // k: batches, applied or skipped
  uint64_t updates = 0;  // applied updates: Adam's t
  LossScale loss_scale;
  EpochMetrics metrics;
  std::vector<Watched> watched;  // of the ResultSpec's watches
  // By the layout's rows(): those of predicted.before(step) samples, and 0 behind them.
  std::vector<Arena<float>> rows;
  Predicted predicted;
  Sha256Digest digest{};
  exact::DigestLink link;  // what the digest was made of, beside this state; of S(0) nothing
  // What was last written of each part. Of a state that was neither initialized nor set: nothing.
  StateSums written;

  // The average of the parameters; empty where the job has none.
  [[nodiscard]] std::span<const float> average() const {
    return layout->averages() ? slots.back().span() : std::span<const float>();
  }

  // The means of the epoch so far.
  [[nodiscard]] std::vector<graph::Metric> train_metrics() const {
    return graph::MetricsOf(layout->outputs(), metrics.sums, metrics.samples);
  }
};

// S(0): drawn parameters, which their average equals, zero slots, moving means 0 and variances 1,
// the first loss scale, digest(0). `given` fills a parameter whose first values are not drawn, and
// says whether it has.
using GivenValues = std::function<bool(uint32_t tensor, std::span<float> values)>;
void Initialize(const v1::ResultSpec& spec, State* state, const GivenValues& given = {});

// An evaluated set under S(step).
struct Evaluation {
  uint64_t step = 0;
  std::vector<graph::Metric> metrics;  // without what is not finite
  [[nodiscard]] std::optional<double> metric(std::string_view name) const;
  bool operator==(const Evaluation&) const = default;
};

}  // namespace ringmaster::worker
