// What decides whether a gradient passes the relu or relu6 of a batch_norm: its gradient computes
// that once more, and must find what was stored. Thread-compatible (a free function).
#pragma once

#include <catch2/catch.hpp>
#include <cmath>
#include <vector>

#include "tests/worker/backend/op_program.h"

namespace ringmaster::testing {

// How many elements there were of each kind.
struct ReluMask {
  int passed = 0, stopped = 0;
  int underflowed = 0;  // stopped, though they are above 0
  int overflowed = 0;   // stopped, though they are below 6, by a relu6
  int wrong = 0;        // channels in whose dbeta anything else is summed
};

// `run` gives the outputs of a program's node 0. Channels of three kinds: any values; some of which
// are so small that 16 bits may hold nothing of them; a beta at which one row's y is the
// activation's upper bound, or without one 0, but for roundings. Row r has 2^r as its dy, so that
// dbeta tells the rows that passed.
template <typename Run>
StatusOr<ReluMask> MaskOf(graph::Activation activation, graph::DType compute, const Run& run) {
  constexpr size_t kRows = 12, kChannels = 48;
  const bool relu6 = activation == graph::Activation::kRelu6;
  const graph::BatchNormAttributes relu = {.activation = activation};
  const graph::TensorType x = {{kRows, kChannels}}, vector = {{kChannels}};
  RING_ASSIGN_OR_RETURN(
      const OpProgram forward,
      MakeOpProgram({"forward", graph::BatchNorm{relu}, {x, vector, vector}}, compute));
  graph::ReferenceFeeds feeds = FeedOp(forward);
  const std::vector<graph::ValueId>& operands = forward.program.graph.node(0).inputs;
  std::vector<double>&gamma = feeds[operands[1]], &beta = feeds[operands[2]];
  for (size_t c = 1; c < kChannels; c += 3) {
    gamma[c] *= 0x1p-26;
    beta[c] = 0;
  }
  for (size_t c = 0; relu6 && c < kChannels; c += 3) gamma[c] *= 8;
  RING_ASSIGN_OR_RETURN(const auto values,
                        graph::RunReference(forward.program.graph, feeds, KeysOf(forward.program)));
  const std::vector<double>& mean = values[static_cast<size_t>(forward.outputs[1])];
  const std::vector<double>& variance = values[static_cast<size_t>(forward.outputs[2])];
  for (size_t c = 2; c < kChannels; c += 3) {
    const double at = feeds[operands[0]][c % kRows * kChannels + c];
    beta[c] = static_cast<float>((relu6 ? 6 : 0) +
                                 (mean[c] - at) * gamma[c] / std::sqrt(variance[c] + 1e-3));
  }
  const auto outputs = run(forward, feeds);

  RING_ASSIGN_OR_RETURN(
      const OpProgram gradient,
      MakeOpProgram(
          {"gradient", graph::BatchNormGradient{relu}, {x, x, vector, vector, vector, vector}},
          compute));
  const std::vector<graph::ValueId>& into = gradient.program.graph.node(0).inputs;
  graph::ReferenceFeeds more = FeedOp(gradient);
  more[into[0]] = feeds[operands[0]];
  for (size_t i = 0; i < kRows * kChannels; ++i) {
    more[into[1]][i] = std::exp2(static_cast<double>(i / kChannels));
  }
  for (size_t i : {1, 2}) more[into[i + 1]] = {outputs[i].begin(), outputs[i].end()};
  more[into[4]] = gamma;
  more[into[5]] = beta;
  const auto dbeta = run(gradient, more)[2];

  const std::vector<double>& exact = values[static_cast<size_t>(forward.outputs[0])];
  ReluMask mask;
  for (size_t c = 0; c < kChannels; ++c) {
    float sum = 0;
    for (size_t r = 0; r < kRows; ++r) {
      const float y = outputs[0][r * kChannels + c];
      const bool passes = y > 0 && (!relu6 || y < 6);
      if (passes) sum += std::exp2(static_cast<float>(r));
      ++(passes ? mask.passed : mask.stopped);
      if (!passes && c % 3 == 1 && exact[r * kChannels + c] > 0) ++mask.underflowed;
      if (y == 6 && exact[r * kChannels + c] < 6) ++mask.overflowed;
    }
    if (sum != dbeta[c]) ++mask.wrong;
  }
  return mask;
}

// That the gradient's mask is the forward pass's, by relu and by relu6, in elements of every kind.
template <typename Run>
void CheckMasks(graph::DType compute, const Run& run) {
  for (const auto activation : {graph::Activation::kRelu, graph::Activation::kRelu6}) {
    INFO(graph::Name(compute) << ", activation " << static_cast<int>(activation));
    const auto mask = MaskOf(activation, compute, run);
    REQUIRE(Message(mask.status()) == "");
    CHECK(mask->wrong == 0);
    CHECK(mask->passed > 0);
    CHECK(mask->stopped > 0);
    CHECK((mask->underflowed > 0) == (compute == graph::DType::kFloat16));
    CHECK((mask->overflowed > 0) == (activation == graph::Activation::kRelu6));
  }
}

}  // namespace ringmaster::testing
