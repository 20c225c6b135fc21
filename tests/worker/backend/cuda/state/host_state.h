// A small model's state on the host, which states on GPUs are compared with: common/exact, the
// optimizers and the CPU backend's roundings. Main thread: it asserts.
#pragma once

#include <cstdint>
#include <memory>
#include <random>
#include <span>
#include <vector>

#include "common/exact/block_layout.h"
#include "common/exact/digest.h"
#include "common/exact/quantize.h"
#include "common/exact/units.h"
#include "common/graph/program.h"
#include "common/graph/update/optimizer.h"
#include "worker/backend/device_state.h"

namespace ringmaster::testing {

constexpr int kPrecisionBits = 21;
constexpr uint32_t kShards = 3;

// Four tensors: 2160, 5, 15 and 3 elements.
[[nodiscard]] graph::Program Mlp();
// Three: 9072, 63 and 3 elements; one of 21 is frozen.
[[nodiscard]] graph::Program FrozenMlp();
[[nodiscard]] exact::BlockLayout LayoutOf(const graph::Program& program);
// Some tensors decay and adapt, some have rates of their own; some have equal steps.
[[nodiscard]] graph::UpdateOptions UpdateOf(const exact::BlockLayout& layout,
                                            const v1::Optimizer& optimizer);

struct HostState {
  HostState(const exact::BlockLayout& blocks, const v1::Optimizer& options);

  // Of the whole arena, with tensors of very different size; now and then a value that is refused.
  std::vector<float> DrawGradient();
  // What a shard's gradient of that tensor adds to the sums.
  exact::FlagKind Add(const exact::TensorRange& tensor, const float* gradient, float scale);
  [[nodiscard]] exact::BlockSum DigestOf(const std::vector<int64_t>& integers) const;
  void Apply(const std::vector<int64_t>& integers, uint64_t update);
  // What a DeviceState that reads or writes it says of it.
  [[nodiscard]] DeviceHashes Hash() const;

  // Calls `body` with the place of each element that is not padding.
  template <typename Body>
  void EachElement(Body body) const {
    for (size_t b = 0; b < layout.block_count(); ++b) {
      for (size_t i = 0; i < layout.blocks()[b].count; ++i) body(b * exact::kBlockElements + i);
    }
  }
  float Draw(float scale) { return std::normal_distribution<float>(0, scale)(random); }

  std::mt19937_64 random{7};
  const exact::BlockLayout& layout;
  const std::unique_ptr<graph::Optimizer> optimizer;
  exact::Units units;
  std::vector<float> parameters;
  std::vector<std::vector<float>> slots;
  std::vector<int64_t> sums, totals;
  std::vector<graph::NormFactors> factors;  // of the last Apply
};

}  // namespace ringmaster::testing
