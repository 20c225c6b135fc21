// Values for everything that a program is fed, drawn from a seed: images, labels, parameters and
// moving statistics. For tests of passes and backends; thread-safe (free functions).
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "common/graph/ops/reference_executor.h"
#include "common/graph/program.h"
#include "common/numeric/philox.h"

namespace ringmaster::testing {

struct FeedOptions {
  uint64_t seed = 1;
  int64_t classes = 10;
  double loss_seed = 1;
  double share = 0.75;  // of own labels, where the program has it
};

// Uniform in [-scale, scale), exact in float32.
inline std::vector<double> UniformValues(const graph::Shape& shape, double scale, uint64_t seed,
                                         const std::string& name) {
  const PhiloxStream stream(seed, PhiloxStream::Purpose::kInitialize, 0, 0, name);
  std::vector<double> values(static_cast<size_t>(graph::Elements(shape)));
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<float>(scale * (2 * static_cast<double>(stream.Uniform(i)) - 1));
  }
  return values;
}

// Kernels by Glorot's bound, other parameters in [-1/2, 1/2) around their initial value, so that no
// gradient vanishes by symmetry; moving variances around 1.
inline graph::ReferenceFeeds FeedProgram(const graph::Program& program,
                                         const FeedOptions& options = {}) {
  graph::ReferenceFeeds feeds;
  const auto shape = [&](graph::ValueId id) { return program.graph.value(id).shape; };
  for (const graph::Column& column : program.columns) {
    std::vector<double> values =
        UniformValues(shape(column.value), 1, options.seed, column.name + "s");
    if (program.graph.value(column.value).dtype == graph::DType::kInt32) {
      for (double& value : values) {
        value = std::floor((value + 1) / 2 * static_cast<double>(options.classes));
      }
    }
    feeds[column.value] = std::move(values);
  }
  for (const graph::Seed& seed : program.seeds)
    feeds[seed.value] = {options.loss_seed * seed.weight};
  if (program.share != graph::kNoValue) feeds[program.share] = {options.share};
  for (const graph::Parameter& parameter : program.parameters) {
    const graph::Initializer& initializer = parameter.initializer;
    const bool uniform = initializer.kind == graph::Initializer::Kind::kUniform;
    const double scale = uniform ? initializer.scale : 0.5;
    std::vector<double> values =
        UniformValues(parameter.shape, scale, options.seed, parameter.name);
    if (!uniform) {
      for (double& value : values) value += initializer.scale;
    }
    feeds[parameter.value] = std::move(values);
  }
  for (const graph::Normalization& normalization : program.normalizations) {
    if (normalization.moving_mean == graph::kNoValue) continue;
    const graph::Shape channels = {normalization.channels};
    feeds[normalization.moving_mean] =
        UniformValues(channels, 0.5, options.seed, normalization.name + "/moving_mean");
    feeds[normalization.moving_variance] =
        UniformValues(channels, 0.5, options.seed, normalization.name + "/moving_variance");
    for (double& variance : feeds[normalization.moving_variance]) variance += 1;
  }
  return feeds;
}

// The columns of a classifier of images.
inline std::vector<std::span<const std::byte>> Columns(std::span<const float> images,
                                                       std::span<const int32_t> labels) {
  return {std::as_bytes(images), std::as_bytes(labels)};
}

// The loss and the accuracy of a program by those logits and its column label.
inline Status AddLossOf(graph::ValueId logits, graph::Program* program) {
  const std::vector<graph::ValueId> read = {logits, program->fed("label")};
  RING_ASSIGN_OR_RETURN(
      const auto loss, graph::AddOp(&program->graph, {"loss", graph::SoftmaxCrossEntropy{}, read}));
  RING_ASSIGN_OR_RETURN(const auto hits,
                        graph::AddOp(&program->graph, {"accuracy", graph::TopK{}, read}));
  program->scalars = {{.value = loss[0]}, {.value = hits[0], .counts = true}};
  program->outputs = {{.name = graph::kMinimized},
                      {.name = "accuracy",
                       .role = graph::Output::Role::kMeasure,
                       .scalar = 1,
                       .lower_is_better = false}};
  return absl::OkStatus();
}

// Keys for dropout: any sample numbers will do.
inline graph::RandomKeys KeysOf(const graph::Program& program) {
  graph::RandomKeys keys = {.seed = 7, .step = 3, .samples = {}};
  for (int64_t row = 0; row < program.samples; ++row) {
    keys.samples.push_back(static_cast<uint64_t>(1000 + 13 * row));
  }
  return keys;
}

}  // namespace ringmaster::testing
