#include "common/exact/quantize.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <vector>

#include "tests/common/exact/kernel_tables.h"
#include "tests/common/exact/random_values.h"

namespace ringmaster::exact {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

float PowerOfTwo(int exponent) { return std::ldexp(1.0F, exponent); }

struct Quantized {
  std::vector<int64_t> q;
  FlagKind kind;
  bool operator==(const Quantized&) const = default;
};

Quantized QuantizeWith(const Kernels& kernels, const std::vector<float>& gradient,
                       int unit_exponent, float scale, uint32_t shards) {
  Quantized result{std::vector<int64_t>(gradient.size()), FlagKind::kNone};
  result.kind = QuantizeAdd(kernels, gradient, unit_exponent, scale, shards, result.q.data());
  return result;
}

// One value by exact float64 arithmetic and the C library, which no kernel uses: a float32 times
// 2^-245 to 2^104 is exact in float64, and so is its rounding to a whole number.
Quantized QuantizeModel(const std::vector<float>& gradient, int unit_exponent, float scale,
                        uint32_t shards) {
  const int log2_shards = static_cast<int>(std::ceil(std::log2(static_cast<double>(shards))));
  Quantized result{std::vector<int64_t>(gradient.size()), FlagKind::kNone};
  for (size_t i = 0; i < gradient.size(); ++i) {
    const double g = static_cast<double>(gradient[i]) * static_cast<double>(scale);
    const double q = std::nearbyint(std::ldexp(g, -unit_exponent));
    FlagKind kind = FlagKind::kNone;
    if (!std::isfinite(g)) {
      kind = FlagKind::kNotFinite;
    } else if (std::fabs(g) >= std::ldexp(1.0, 127 - log2_shards) ||
               std::fabs(q) >= std::ldexp(1.0, 62 - log2_shards)) {
      kind = FlagKind::kTooLarge;
    }
    if (result.kind == FlagKind::kNone) result.kind = kind;
    if (kind == FlagKind::kNone) result.q[i] = static_cast<int64_t>(q);
  }
  return result;
}

void CheckAgainstModel(const std::vector<float>& gradient, int unit_exponent, float scale,
                       uint32_t shards) {
  const Quantized expected = QuantizeModel(gradient, unit_exponent, scale, shards);
  for (const Kernels* kernels : RunnableKernels()) {
    INFO(kernels->name << ", unit 2^" << unit_exponent << ", scale " << scale << ", " << shards
                       << " shards, " << gradient.size() << " elements");
    const Quantized got = QuantizeWith(*kernels, gradient, unit_exponent, scale, shards);
    REQUIRE(got.q == expected.q);
    REQUIRE(got.kind == expected.kind);
  }
}

TEST_CASE("QuantizeAdd: every kernel equals the model on values of every size") {
  RandomValues random(5);
  for (int round = 0; round < 20000; ++round) {
    const auto unit = static_cast<int>(random.Between(-40, 119));
    const auto count = static_cast<size_t>(random.Between(1, 256));
    const auto spread = static_cast<int>(random.Between(1, 80));
    const float scale =
        PowerOfTwo(static_cast<int>(random.Between(0, 1) * random.Between(-126, 40)));
    std::vector<float> gradient(count);
    for (float& g : gradient) {
      g = random.Near(static_cast<int>(unit - std::log2(scale) + random.Between(-3, spread)));
    }
    const auto shards =
        static_cast<uint32_t>(random.Between(0, 20) == 0 ? 0xffffffff : random.Between(1, 100));
    CheckAgainstModel(gradient, unit, scale, shards);
  }
}

TEST_CASE("QuantizeAdd: every kernel equals the model on any bits") {
  RandomValues random(6);
  for (int round = 0; round < 5000; ++round) {
    std::vector<float> gradient(static_cast<size_t>(random.Between(1, 256)));
    for (float& g : gradient) g = random.AnyBits();
    CheckAgainstModel(gradient, static_cast<int>(random.Between(-40, 119)),
                      PowerOfTwo(static_cast<int>(random.Between(-126, 64))), 8);
  }
}

TEST_CASE("QuantizeAdd: halves go to the even neighbour") {
  const std::vector<float> ties = {0.5F, 1.5F, 2.5F, -0.5F, -1.5F, -2.5F, 3.5F, 0.75F, -0.25F};
  const std::vector<int64_t> expected = {0, 2, 2, 0, -2, -2, 4, 1, 0};
  for (const Kernels* kernels : RunnableKernels()) {
    INFO(kernels->name);
    REQUIRE(QuantizeWith(*kernels, ties, 0, 1.0F, 1).q == expected);
  }
  RandomValues random(7);
  for (int round = 0; round < 3000; ++round) {
    const auto unit = static_cast<int>(random.Between(-40, 100));
    std::vector<float> gradient(kBlockElements);
    for (float& g : gradient) g = random.Tie(unit);
    CheckAgainstModel(gradient, unit, 1.0F, 8);
  }
}

TEST_CASE("QuantizeAdd: adds to what is there") {
  for (const Kernels* kernels : RunnableKernels()) {
    INFO(kernels->name);
    std::vector<float> gradient(37, -3.0F);
    gradient[20] = kNaN;
    std::vector<int64_t> sums(37, int64_t{1} << 50);
    REQUIRE(QuantizeAdd(*kernels, gradient, -2, 1.0F, 1, sums.data()) == FlagKind::kNotFinite);
    for (size_t i = 0; i < sums.size(); ++i) {
      REQUIRE(sums[i] == (int64_t{1} << 50) - (i == 20 ? 0 : 12));
    }
  }
}

TEST_CASE("LargestMagnitude: wherever it is in a block of any size, also where it is not finite") {
  RandomValues random(13);
  for (const Kernels* kernels : RunnableKernels()) {
    INFO(kernels->name);
    for (size_t count = 1; count <= kBlockElements; ++count) {
      std::vector<float> values(count + 1, -1.5F);
      values[count] = kNaN;  // behind the block
      const auto at = static_cast<size_t>(random.Between(0, static_cast<int64_t>(count) - 1));
      for (const float largest : {-2.0F, 1e30F, -std::numeric_limits<float>::infinity(), kNaN}) {
        values[at] = largest;
        REQUIRE(kernels->largest_magnitude(values.data(), count) ==
                (std::bit_cast<uint32_t>(largest) & kMagnitudeMask));
      }
    }
    CHECK(kernels->largest_magnitude(nullptr, 0) == 0);
  }
}

TEST_CASE("QuantizeAddNarrow: as QuantizeAdd where nothing can wrap, and nothing elsewhere") {
  RandomValues random(11);
  size_t done = 0, left = 0;
  for (int round = 0; round < 20000; ++round) {
    const auto unit = static_cast<int>(random.Between(-40, 119));
    const auto count = static_cast<size_t>(random.Between(1, 256));
    const float scale =
        PowerOfTwo(static_cast<int>(random.Between(0, 1) * random.Between(-126, 40)));
    // About a unit to above 2^30 of them.
    const auto spread = static_cast<int>(random.Between(1, 31));
    std::vector<float> gradient(count);
    for (float& g : gradient) {
      g = random.Near(static_cast<int>(unit - std::log2(scale) + random.Between(-3, spread)));
    }
    if (random.Between(0, 19) == 0) std::ranges::fill(gradient, 0.0F);
    if (random.Between(0, 9) == 0) gradient[count / 2] = random.AnyBits();
    std::vector<int32_t> before(count);
    const int widest = random.Between(0, 3) == 0 ? 0 : 31;
    for (int32_t& sum : before) sum = static_cast<int32_t>(random.Integer(widest));
    std::vector<int64_t> expected(before.begin(), before.end());
    const std::vector<int64_t> own = QuantizeModel(gradient, unit, scale, 8).q;
    bool narrow = true;
    for (size_t i = 0; i < count; ++i) {
      expected[i] += own[i];
      const double q = std::ldexp(static_cast<double>(gradient[i]) * scale, -unit);
      narrow &= std::fabs(q) < 0x1p30 && std::fabs(gradient[i] * scale) < 0x1p124F &&
                std::fabs(gradient[i]) < 0x1p127F;
    }
    for (const Kernels* kernels : RunnableKernels()) {
      INFO(kernels->name << ", unit 2^" << unit << ", scale " << scale << ", " << count);
      const bool in_place = random.Between(0, 1) == 0;
      std::vector<int32_t> sums = in_place ? before : std::vector<int32_t>(count, 77);
      const int32_t* const addends = in_place ? sums.data() : before.data();
      int bits = 0;
      if (!QuantizeAddNarrow(*kernels, gradient, unit, scale, 8, addends, sums.data(), &bits)) {
        // 2^shift may be no normal float32: then it may leave all of them to int64.
        REQUIRE((!narrow || std::log2(scale) - unit < -126));
        REQUIRE((sums == before) == in_place);
        ++left;
        continue;
      }
      REQUIRE(narrow);
      REQUIRE(std::vector<int64_t>(sums.begin(), sums.end()) == expected);
      int needed = 0;
      for (const int32_t sum : sums) {
        if (sum != 0 && needed == 0) needed = 1;
        while (needed > 0 && sum >> (needed - 1) != (sum < 0 ? -1 : 0)) ++needed;
      }
      REQUIRE(bits == needed);
      ++done;
    }
  }
  CHECK(done > 20000);
  CHECK(left > 2000);
}

TEST_CASE("QuantizeAdd: names the first refused value in element order") {
  for (const Kernels* kernels : RunnableKernels()) {
    INFO(kernels->name);
    const float large = PowerOfTwo(124);
    REQUIRE(QuantizeWith(*kernels, {0, large, kNaN}, 100, 1, 8).kind == FlagKind::kTooLarge);
    REQUIRE(QuantizeWith(*kernels, {0, kNaN, large}, 100, 1, 8).kind == FlagKind::kNotFinite);
    REQUIRE(QuantizeWith(*kernels, {-kInfinity}, 100, 1, 8).kind == FlagKind::kNotFinite);
    const float below = std::nextafter(large, 0.0F);
    REQUIRE(QuantizeWith(*kernels, {-below}, 100, 1, 8).kind == FlagKind::kNone);
    REQUIRE(QuantizeWith(*kernels, {PowerOfTwo(19)}, -40, 1, 8).kind == FlagKind::kTooLarge);
    const float spike = std::nextafter(PowerOfTwo(19), 0.0F);
    REQUIRE(QuantizeWith(*kernels, {spike}, -40, 1, 8).kind == FlagKind::kNone);
    REQUIRE(QuantizeWith(*kernels, {spike}, -40, 1, 9).kind == FlagKind::kTooLarge);
  }
}

TEST_CASE("QuantizeAdd: the loss scale is taken off exactly") {
  for (const Kernels* kernels : RunnableKernels()) {
    const Quantized plain = QuantizeWith(*kernels, {1.0F / 3, -0.01F}, -21, 1.0F, 8);
    const Quantized scaled =
        QuantizeWith(*kernels, {32768.0F / 3, -0.01F * 32768}, -21, 1 / 32768.0F, 8);
    REQUIRE(plain == scaled);
  }
}

TEST_CASE("Dequantize: rounds the integer once, half to even, then scales") {
  const std::vector<int64_t> q = {
      0, 1, -1, (1 << 24) + 1, (1 << 24) + 3, -(1 << 24) - 1,
      // Through float64 these would round twice: down to a tie, then to even.
      (int64_t{1} << 60) + (int64_t{1} << 36) + 1, -(int64_t{1} << 60) - (int64_t{1} << 36) - 1};
  const std::vector<float> expected = {0,
                                       1,
                                       -1,
                                       16777216,
                                       16777220,
                                       -16777216,
                                       std::nextafter(0x1p60F, 0x1p61F),
                                       -std::nextafter(0x1p60F, 0x1p61F)};
  for (const Kernels* kernels : RunnableKernels()) {
    for (const int unit : {-40, -21, 0, 60}) {
      INFO(kernels->name << ", unit 2^" << unit);
      std::vector<float> out(q.size());
      Dequantize(*kernels, q, unit, out.data());
      for (size_t i = 0; i < q.size(); ++i) REQUIRE(out[i] == std::ldexp(expected[i], unit));
    }
  }
}

// float32(v) from the bits of v alone.
float RoundedModel(int64_t v) {
  const uint64_t magnitude = v < 0 ? -static_cast<uint64_t>(v) : static_cast<uint64_t>(v);
  const int dropped = std::max(0, 40 - std::countl_zero(magnitude));
  if (dropped == 0) return static_cast<float>(v);
  uint64_t kept = magnitude >> dropped;
  const uint64_t rest = magnitude - (kept << dropped);
  const uint64_t half = uint64_t{1} << (dropped - 1);
  if (rest > half || (rest == half && kept % 2 == 1)) ++kept;
  const float rounded = std::ldexp(static_cast<float>(kept), dropped);
  return v < 0 ? -rounded : rounded;
}

TEST_CASE("Dequantize: every kernel equals the model at every width and count") {
  RandomValues random(8);
  for (int round = 0; round < 20000; ++round) {
    const auto width = static_cast<int>(random.Between(0, 63));
    const auto unit = static_cast<int>(random.Between(-40, 64));
    const auto count = static_cast<size_t>(random.Between(1, 256));
    std::vector<int64_t> q = random.Integers(std::min(width, 28), count);
    q[count / 2] = random.Integer(width);
    for (const Kernels* kernels : RunnableKernels()) {
      std::vector<float> out(count + 1, 42.0F);
      Dequantize(*kernels, q, unit, out.data());
      for (size_t i = 0; i < count; ++i) {
        if (out[i] == std::ldexp(RoundedModel(q[i]), unit)) continue;
        INFO(kernels->name << ", " << q[i] << " at unit 2^" << unit);
        REQUIRE(out[i] == std::ldexp(RoundedModel(q[i]), unit));
      }
      REQUIRE(out[count] == 42.0F);
    }
  }
}

TEST_CASE("Flag: kind and tensor come back, through the sum with other workers' zeros") {
  for (const FlagKind kind : {FlagKind::kNotFinite, FlagKind::kTooLarge}) {
    for (const uint32_t tensor : {0U, 1U, 2U, 77U, 0x7fffffffU, 0xfffffffeU, kRecordTensor}) {
      const int64_t code = EncodeFlag(kind, tensor) + 0 + 0;
      REQUIRE(code > 0);
      REQUIRE(DecodeFlag(code).kind == kind);
      REQUIRE(DecodeFlag(code).tensor == tensor);
    }
  }
  REQUIRE(EncodeFlag(FlagKind::kNone, 12) == 0);
  REQUIRE(DecodeFlag(0).kind == FlagKind::kNone);
  REQUIRE(EncodeFlag(FlagKind::kTooLarge, 3) < EncodeFlag(FlagKind::kNotFinite, 4));
}

TEST_CASE("Flag: a code that nobody encodes is still a flag") {
  const int64_t past = EncodeFlag(FlagKind::kTooLarge, kRecordTensor) + 3;
  for (const int64_t code : {int64_t{-1}, int64_t{3}, int64_t{4}, past, int64_t{-7}}) {
    REQUIRE(DecodeFlag(code).kind == FlagKind::kNotFinite);
    REQUIRE(DecodeFlag(code).tensor == kRecordTensor);
  }
}

QuantizedScalar QuantizeScalar(double value, uint32_t shards) {
  return ScalarCode(shards).Quantize(value);
}

double DequantizeScalar(int64_t whole, int64_t fraction, uint32_t shards) {
  return ScalarCode(shards).Dequantize(whole, fraction);
}

int FractionBits(uint32_t shards) { return ScalarCode(shards).fraction_bits(); }

bool IsSplit(const QuantizedScalar& scalar, int64_t whole, int64_t fraction) {
  return scalar.kind == FlagKind::kNone && scalar.whole == whole && scalar.fraction == fraction;
}

TEST_CASE("QuantizeScalar: floor and a fraction that is rounded half to even to 2^-52") {
  const int64_t one = int64_t{1} << 52;
  REQUIRE(IsSplit(QuantizeScalar(0.0, 8), 0, 0));
  REQUIRE(IsSplit(QuantizeScalar(-0.0, 8), 0, 0));
  REQUIRE(IsSplit(QuantizeScalar(1.0, 8), 1, 0));
  REQUIRE(IsSplit(QuantizeScalar(-1.0, 8), -1, 0));
  REQUIRE(IsSplit(QuantizeScalar(2.25, 8), 2, one / 4));
  REQUIRE(IsSplit(QuantizeScalar(-2.25, 8), -3, one / 4 * 3));
  REQUIRE(IsSplit(QuantizeScalar(0x1p-53, 8), 0, 0));
  REQUIRE(IsSplit(QuantizeScalar(0x1.8p-52, 8), 0, 2));
  REQUIRE(IsSplit(QuantizeScalar(-0x1.4p-51, 8), -1, one - 2));
  REQUIRE(IsSplit(QuantizeScalar(-0x1p-1074, 8), -1, one));  // which is 0
  REQUIRE(IsSplit(QuantizeScalar(0x1p52 + 1, 8), (int64_t{1} << 52) + 1, 0));
}

TEST_CASE("QuantizeScalar: the fraction loses bits with more than 2^10 shards") {
  REQUIRE(FractionBits(1) == 52);
  REQUIRE(FractionBits(1024) == 52);
  REQUIRE(FractionBits(1025) == 51);
  REQUIRE(FractionBits(0xffffffff) == 30);
  REQUIRE(IsSplit(QuantizeScalar(0.75, 0xffffffff), 0, 3 << 28));
}

TEST_CASE("QuantizeScalar: refuses what is not finite or whose whole part may overflow a sum") {
  REQUIRE(IsSplit(QuantizeScalar(std::nextafter(0x1p59, 0.0), 8), (int64_t{1} << 59) - 64, 0));
  REQUIRE(QuantizeScalar(0x1p59, 8).kind == FlagKind::kTooLarge);
  REQUIRE(QuantizeScalar(-0x1p59, 8).kind == FlagKind::kTooLarge);
  REQUIRE(QuantizeScalar(std::nextafter(0x1p30, 0.0), 0xffffffff).kind == FlagKind::kNone);
  REQUIRE(QuantizeScalar(-0x1p30 + 0.5, 0xffffffff).kind == FlagKind::kTooLarge);  // its floor
  REQUIRE(QuantizeScalar(-1e300, 8).kind == FlagKind::kTooLarge);
  for (const double value : {double{kNaN}, double{kInfinity}, -double{kInfinity}}) {
    REQUIRE(QuantizeScalar(value, 8).kind == FlagKind::kNotFinite);
    REQUIRE(QuantizeScalar(value, 8).whole == 0);
    REQUIRE(QuantizeScalar(value, 8).fraction == 0);
  }
}

TEST_CASE("DequantizeScalar: carries whole units before its one addition") {
  const int64_t one = int64_t{1} << 52;
  REQUIRE(DequantizeScalar(0, 0, 8) == 0.0);
  REQUIRE(DequantizeScalar(-1, one, 8) == 0.0);
  REQUIRE(DequantizeScalar(-2, one + one / 2, 8) == -0.5);
  REQUIRE(DequantizeScalar(-8, 8 * (one - 1), 8) == -8 * 0x1p-52);
  REQUIRE(DequantizeScalar(int64_t{1} << 52, 5 * one, 8) == 0x1p52 + 5);
  for (const double value : {-2.302585, 0x1.fffffffffffffp-1, 12345.678901, -0x1.8p-40}) {
    const QuantizedScalar scalar = QuantizeScalar(value, 8);
    REQUIRE(DequantizeScalar(scalar.whole, scalar.fraction, 8) ==
            std::nearbyint(value * 0x1p52) * 0x1p-52);
  }
}

}  // namespace
}  // namespace ringmaster::exact
