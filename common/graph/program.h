// A graph with the meaning of its fed and produced values: what a backend binds and the step loop
// runs. A value, immutable once built, thread-safe. Parameters stand in canonical order: the order
// in which the model's graph created them, before any pass.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/graph/graph.h"

namespace ringmaster::graph {

// How a parameter starts; drawn by common/graph/update/initialize.h.
struct Initializer {
  enum class Kind : uint8_t { kConstant, kUniform, kNormal, kTruncatedNormal };
  Kind kind = Kind::kConstant;
  // The value; the limit of [-scale, scale); the deviation; the deviation before the cut at twice
  // that.
  double scale = 0;
};
// Glorot and Bengio 2010: uniform in +-sqrt(6 / (fan_in + fan_out)).
[[nodiscard]] Initializer GlorotUniform(int64_t fan_in, int64_t fan_out);

struct Parameter {
  std::string name;             // conv1/kernel: unique, stands in checkpoints
  Shape shape;                  // canonical layout, float32 in the master arena
  ValueId value = kNoValue;     // fed; float32 before the policy pass, else the compute type
  ValueId gradient = kNoValue;  // float32; kNoValue in an inference program, and of a frozen one
  Initializer initializer;
  // Its place among all parameters of the model, which keys what is drawn for it; kStatistic: it is
  // a moving statistic of a frozen normalization.
  uint32_t index = 0;
  static constexpr uint32_t kStatistic = std::numeric_limits<uint32_t>::max();
};

// One batch normalization. Its moving statistics are part of the state, not parameters.
struct Normalization {
  std::string name;  // bn1
  int64_t channels = 0;
  double momentum = 0.99;
  ValueId batch_mean = kNoValue;      // training: produced, float32
  ValueId batch_variance = kNoValue;  // biased
  ValueId moving_mean = kNoValue;     // inference: fed, float32
  ValueId moving_variance = kNoValue;

  // What the statistics are called in the state.
  [[nodiscard]] std::string moving_mean_name() const { return name + "/moving_mean"; }
  [[nodiscard]] std::string moving_variance_name() const { return name + "/moving_variance"; }
};

enum class Mode : uint8_t { kTraining, kInference };

// What the data has of each sample: fed, N rows of it.
struct Column {
  std::string name;  // image, label
  ValueId value = kNoValue;
  // int32: least <= element < limit. float32: 0, 0.
  int64_t least = 0;
  int64_t limit = 0;
};

// What a shard says of its samples beside gradients: one number, float32, added over them.
struct Scalar {
  ValueId value = kNoValue;
  bool counts = false;  // a whole number of samples or positions; else a real value
};

// What the model says of itself under a name, from scalars that are added over samples. The loss
// that is minimized is the sum over all losses of weight * value.
struct Output {
  enum class Role : uint8_t { kLoss, kMeasure };
  enum class View : uint8_t { kMean, kRootMean };  // as v1::View
  std::string name;                                // loss, accuracy: unique
  Role role = Role::kLoss;
  size_t scalar = 0;            // its place in Program::scalars
  View view = View::kMean;      // what is shown of its mean over the samples; a loss's is kMean
  double weight = 1;            // of a loss
  bool lower_is_better = true;  // always of a loss
};

// What the model says of each sample under a name: float32 (N, ...), N rows of it.
struct Rows {
  std::string name;
  ValueId value = kNoValue;
};

// A loss's gradient comes in here: fed, scalar float32, S / n * weight.
struct Seed {
  ValueId value = kNoValue;
  float weight = 1;
};

struct Program {
  Mode mode = Mode::kTraining;
  Graph graph;
  int64_t samples = 0;          // N of this shard shape
  std::vector<Column> columns;  // those that a node reads, in the dataset's order
  std::vector<Seed> seeds;      // one a loss, in their order; training only
  // The share of rows' own labels in losses of classes: fed, scalar float32; kNoValue: all of it.
  ValueId share = kNoValue;
  std::vector<Scalar> scalars;  // in the order of the outputs
  // Of a script: so many groups of parameters have rates that its shards say, float64. The bits of
  // each are two counts of the scalars, the last ones: the upper half, then the lower one.
  uint32_t rate_groups = 0;
  // Likewise: what its checkpoints have beside tensors, for whoever reads them by a module's names:
  // integers that count updates, from a start on, and further names of tensors.
  std::map<std::string, int64_t> counters;
  std::map<std::string, std::string> aliases;
  std::vector<Output> outputs;        // losses first
  std::vector<Rows> rows;             // of predictions, in the order of the graph; no outputs then
  std::vector<Parameter> parameters;  // those that are trained, canonical order
  // What is fed and stays as it is for the whole job: frozen parameters in canonical order, then
  // the statistics of normalizations that use their moving ones also in training.
  std::vector<Parameter> frozen;
  std::vector<Normalization> normalizations;  // canonical order, without those
  // Canonical parameter numbers in the order in which backward yields their gradients.
  std::vector<uint32_t> gradient_order;

  // The column of this name, nullptr when no node reads it.
  [[nodiscard]] const Column* column(std::string_view name) const;
  // The value of that column, or kNoValue.
  [[nodiscard]] ValueId fed(std::string_view name) const;
};

// What a program is run for: scalars, rows, gradients and batch statistics; no kNoValue among them.
[[nodiscard]] std::vector<ValueId> Results(const Program& program);

// What the loss that is minimized is called among metrics; an output of this name is the only loss.
inline constexpr const char* kMinimized = "loss";

// What an output came to.
struct Metric {
  std::string name;
  double value = 0;
  bool operator==(const Metric&) const = default;
};
// The outputs from their scalars' sums over so many samples: what is shown of each one's mean, and
// in front `loss`, the one that is minimized, where there are several. Without samples nothing;
// what is not finite is left out.
[[nodiscard]] std::vector<Metric> MetricsOf(const std::vector<Output>& outputs,
                                            std::span<const double> sums, uint64_t samples);

}  // namespace ringmaster::graph
