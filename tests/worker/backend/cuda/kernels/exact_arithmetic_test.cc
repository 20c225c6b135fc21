// One element at a time, against common/exact.
#include "worker/backend/cuda/kernels/state.h"

#include <bit>
#include <catch2/catch.hpp>
#include <vector>

#include "common/exact/quantize.h"
#include "tests/common/exact/random_values.h"

namespace ringmaster::cuda {
namespace {

TEST_CASE("Dequantize: the bits of common/exact at every unit and width") {
  exact::RandomValues random(31);
  for (int unit_exponent = -40; unit_exponent <= 119; ++unit_exponent) {
    for (int width = 1; width <= 64; ++width) {
      std::vector<int64_t> q = random.Integers(width, 32);
      // A tie of float32, and what a float64 on the way would make one.
      if (width > 27) q[0] = (int64_t{1} << (width - 2)) + (int64_t{1} << (width - 26));
      if (width > 56) q[1] = q[0] + 1;
      std::vector<float> expected(q.size());
      exact::Dequantize(q, unit_exponent, expected.data());
      for (size_t i = 0; i < q.size(); ++i) {
        const float got = Dequantize(q[i], UnitOf(unit_exponent + 21, 21));
        INFO(q[i] << " at unit 2^" << unit_exponent);
        REQUIRE(std::bit_cast<uint32_t>(got) == std::bit_cast<uint32_t>(expected[i]));
      }
    }
  }
}

}  // namespace
}  // namespace ringmaster::cuda
