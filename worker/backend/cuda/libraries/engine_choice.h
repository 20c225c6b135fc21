// Which engine of cuDNN computes something, and the rule that picks it: no timing, no chance. Pure;
// thread-safe.
#pragma once

#include <cudnn.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/graph/graph.h"
#include "common/status.h"

namespace ringmaster::cuda {

// An engine with its settings, by cuDNN's numbers: they mean the same in one version of cuDNN only.
struct EngineChoice {
  int64_t engine = 0;
  std::vector<std::pair<int64_t, int64_t>> knobs;  // (type, value), by type

  bool operator==(const EngineChoice&) const = default;
};

// `engine 37 knobs 2=11,13=4`, or `engine 37`.
[[nodiscard]] std::string ToString(const EngineChoice& choice);
[[nodiscard]] StatusOr<EngineChoice> ParseEngineChoice(const std::string& text);

// Why an engine of these properties may not compute on values of `type`, or "": it must give the
// same bits on every run, and sums in float32; a job in float32 gets float32 alone, never TF32, and
// no transform (Winograd, FFT) that multiplies rounding errors.
[[nodiscard]] std::string Refusal(const std::vector<cudnnBackendNumericalNote_t>& notes,
                                  graph::DType type);

// Most scratch that an engine may want; it takes part in choosing kernels, and is therefore the
// same on every device. Where nothing manages with it, the first that finalizes is taken.
inline constexpr size_t kConvolutionWorkspaceCap = size_t{1} << 30;

// The first of `count` candidates that can be made: `make(i)` returns its scratch in bytes, or why
// not. nullopt: none can. RESOURCE_EXHAUSTED from `make` ends the search, because memory must never
// choose a kernel.
[[nodiscard]] StatusOr<std::optional<size_t>> ChooseFirst(
    size_t count, size_t cap, const std::function<StatusOr<size_t>(size_t)>& make);

}  // namespace ringmaster::cuda
