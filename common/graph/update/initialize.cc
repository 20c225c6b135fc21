#include "common/graph/update/initialize.h"

#include <algorithm>

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

}  // namespace

void Initialize(const Parameter& parameter, uint32_t tensor, uint64_t seed,
                std::span<float> values) {
  switch (parameter.initializer.kind) {
    case Initializer::Kind::kConstant:
      std::ranges::fill(values, static_cast<float>(parameter.initializer.scale));
      return;
    case Initializer::Kind::kUniform:
      const PhiloxStream stream(seed, PhiloxStream::Purpose::kInitialize, 0, tensor,
                                parameter.name);
      FillUniform(parameter.initializer, stream, values);
      return;
  }
}

}  // namespace ringmaster::graph
