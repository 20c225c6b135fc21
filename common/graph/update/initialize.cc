#include "common/graph/update/initialize.h"

#include <algorithm>

#include "common/graph/update/normal.h"
#include "common/philox.h"

namespace ringmaster::graph {
namespace {

// The limit is rounded once; 2u - 1 is exact in float32.
void FillUniform(const Initializer& initializer, const PhiloxStream& stream,
                 std::span<float> values) {
  const auto limit = static_cast<float>(initializer.scale);
  for (size_t begin = 0; begin < values.size(); begin += 4) {
    const PhiloxBlock block = stream.Block(begin / 4);
    const size_t end = std::min(values.size(), begin + 4);
    for (size_t i = begin; i < end; ++i) {
      const float uniform = static_cast<float>(block[i - begin] >> 8) * 0x1p-24F;
      values[i] = (2 * uniform - 1) * limit;
    }
  }
}

// A word an element; u in (0, 1), so that both tails are alike. `cut` of the distribution is left
// out at either end.
void FillNormal(const Initializer& initializer, double cut, const PhiloxStream& stream,
                std::span<float> values) {
  for (size_t i = 0; i < values.size(); ++i) {
    const double u = (static_cast<double>(stream.At(i)) + 0.5) * 0x1p-32;
    values[i] = static_cast<float>(NormalQuantile(cut + u * (1 - 2 * cut)) * initializer.scale);
  }
}

// How probable it is that a standard normal variable is below -2.
constexpr double kBelowTwo = 0.022750131948179208;

}  // namespace

void Initialize(const Parameter& parameter, uint32_t tensor, uint64_t seed,
                std::span<float> values) {
  const PhiloxStream stream(seed, PhiloxStream::Purpose::kInitialize, 0, tensor, parameter.name);
  switch (parameter.initializer.kind) {
    case Initializer::Kind::kConstant:
      std::ranges::fill(values, static_cast<float>(parameter.initializer.scale));
      return;
    case Initializer::Kind::kUniform:
      FillUniform(parameter.initializer, stream, values);
      return;
    case Initializer::Kind::kNormal:
      FillNormal(parameter.initializer, 0, stream, values);
      return;
    case Initializer::Kind::kTruncatedNormal:
      FillNormal(parameter.initializer, kBelowTwo, stream, values);
      return;
  }
}

}  // namespace ringmaster::graph
