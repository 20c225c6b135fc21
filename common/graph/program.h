// A graph with the meaning of its fed and produced values: what a backend binds and the step loop
// runs. A value, immutable once built, thread-safe. Parameters stand in canonical order: the order
// in which the model's graph created them, before any pass.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/graph/graph.h"

namespace ringmaster::graph {

// How a parameter starts; drawn by common/graph/update/initialize.h.
struct Initializer {
  enum class Kind : uint8_t { kZeros, kOnes, kGlorotUniform };
  Kind kind = Kind::kZeros;
  int64_t fan_in = 0;  // of kGlorotUniform: uniform in +-sqrt(6 / (fan_in + fan_out))
  int64_t fan_out = 0;
};

struct Parameter {
  std::string name;             // conv1/kernel: unique, stands in checkpoints
  Shape shape;                  // canonical layout, float32 in the master arena
  ValueId value = kNoValue;     // fed; float32 before the policy pass, else the compute type
  ValueId gradient = kNoValue;  // float32; kNoValue in an inference program
  Initializer initializer;
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
};

enum class Mode : uint8_t { kTraining, kInference };

struct Program {
  Mode mode = Mode::kTraining;
  Graph graph;
  int64_t samples = 0;                // N of this shard shape
  ValueId images = kNoValue;          // fed, (N,H,W,C) float32
  ValueId labels = kNoValue;          // fed, (N) int32
  ValueId loss_seed = kNoValue;       // fed, scalar float32: S / n; training only
  ValueId loss_sum = kNoValue;        // produced, scalar float32: sum over the shard's samples
  ValueId correct = kNoValue;         // produced, scalar float32: count
  std::vector<Parameter> parameters;  // canonical order
  std::vector<Normalization> normalizations;  // canonical order
  // Canonical parameter numbers in the order in which backward yields their gradients.
  std::vector<uint32_t> gradient_order;
};

// What a program is run for: loss, count, gradients and batch statistics; no kNoValue among them.
[[nodiscard]] std::vector<ValueId> Results(const Program& program);

}  // namespace ringmaster::graph
