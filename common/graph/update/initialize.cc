#include "common/graph/update/initialize.h"

#include <algorithm>

#include "common/arithmetic.h"
#include "common/philox.h"

namespace ringmaster::graph {
namespace {

// Glorot and Bengio 2010: uniform in +-sqrt(6 / (fan_in + fan_out)). 2u - 1 is exact in float32.
void FillGlorotUniform(const Initializer& initializer, const PhiloxStream& stream,
                       std::span<float> values) {
  const auto fans = static_cast<double>(initializer.fan_in + initializer.fan_out);
  const auto limit = static_cast<float>(SquareRoot(6.0 / fans));
  for (size_t begin = 0; begin < values.size(); begin += 4) {
    const PhiloxBlock block = stream.Block(begin / 4);
    const size_t end = std::min(values.size(), begin + 4);
    for (size_t i = begin; i < end; ++i) {
      const float uniform = static_cast<float>(block[i - begin] >> 8) * 0x1p-24F;
      values[i] = (2 * uniform - 1) * limit;
    }
  }
}

}  // namespace

void Initialize(const Parameter& parameter, uint32_t tensor, uint64_t seed,
                std::span<float> values) {
  switch (parameter.initializer.kind) {
    case Initializer::Kind::kZeros:
      std::fill(values.begin(), values.end(), 0.0F);
      return;
    case Initializer::Kind::kOnes:
      std::fill(values.begin(), values.end(), 1.0F);
      return;
    case Initializer::Kind::kGlorotUniform:
      const PhiloxStream stream(seed, PhiloxStream::Purpose::kInitialize, 0, tensor,
                                parameter.name);
      FillGlorotUniform(parameter.initializer, stream, values);
      return;
  }
}

}  // namespace ringmaster::graph
