// float16 as the CPU backend stores it, against the reference's rounding.
#include "worker/backend/cpu/storage.h"

#include <xmmintrin.h>

#include <bit>
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <vector>

#include "common/graph/ops/reference_executor.h"

namespace ringmaster::cpu {
namespace {

constexpr uint32_t kPatterns = 65536;

std::vector<Float16> AllPatterns() {
  std::vector<Float16> patterns;
  for (uint32_t bits = 0; bits < kPatterns; ++bits) {
    patterns.push_back(std::bit_cast<Float16>(static_cast<uint16_t>(bits)));
  }
  return patterns;
}

uint16_t BitsOf(Float16 value) { return std::bit_cast<uint16_t>(value); }

// What the format says (IEEE 754, table 3.5): 1 sign, 5 exponent, 10 fraction bits.
double ValueOf(uint32_t bits) {
  const int exponent = static_cast<int>(bits >> 10 & 31);
  const double fraction = bits & 1023;
  const double sign = bits >> 15 != 0 ? -1 : 1;
  if (exponent == 31) return fraction == 0 ? sign * HUGE_VAL : std::nan("");
  return sign *
         (exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25));
}

// float32 values round every float16: itself, its neighbours, and the middle to the next.
std::vector<float> Neighbourhood() {
  std::vector<float> values;
  const float infinity = std::numeric_limits<float>::infinity();
  for (uint32_t bits = 0; bits < 0x7c00; ++bits) {
    const double here = ValueOf(bits);
    const double next = bits == 0x7bff ? 65536 : ValueOf(bits + 1);
    const auto middle = static_cast<float>((here + next) / 2);
    for (float value : {static_cast<float>(here), middle}) {
      for (float near :
           {std::nextafter(value, -infinity), value, std::nextafter(value, infinity)}) {
        values.push_back(near);
        values.push_back(-near);
      }
    }
  }
  for (float value : {infinity, 3.4e38F, 65520.0F, 0x1p-149F, 0x1p-126F}) {
    values.push_back(value);
    values.push_back(-value);
  }
  return values;
}

bool Same(float a, double b) {
  return static_cast<double>(a) == b && std::signbit(a) == std::signbit(b);
}

}  // namespace

TEST_CASE("Float16: all 65,536 patterns survive float32, one by one and in bulk") {
  const std::vector<Float16> patterns = AllPatterns();
  std::vector<float> wide(kPatterns);
  Widen(patterns.data(), wide.data(), kPatterns);
  std::vector<Float16> narrow(kPatterns);
  Narrow(wide.data(), narrow.data(), kPatterns);
  uint32_t wrong = 0;
  for (uint32_t bits = 0; bits < kPatterns; ++bits) {
    const double expected = ValueOf(bits);
    const auto alone = static_cast<float>(patterns[bits]);
    if (std::isnan(expected)) {
      const bool nan = std::isnan(wide[bits]) && std::isnan(alone) &&
                       std::isnan(static_cast<float>(narrow[bits]));
      wrong += nan ? 0 : 1;
    } else {
      const bool same = Same(wide[bits], expected) && Same(alone, expected) &&
                        BitsOf(narrow[bits]) == bits && BitsOf(Float16(alone)) == bits;
      wrong += same ? 0 : 1;
    }
  }
  CHECK(wrong == 0);
}

TEST_CASE("Float16: rounding is half to even, and too much is infinite, one by one and in bulk") {
  const std::vector<float> values = Neighbourhood();
  std::vector<Float16> narrow(values.size());
  Narrow(values.data(), narrow.data(), static_cast<int64_t>(values.size()));
  uint32_t wrong = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    const double expected = graph::Round(static_cast<double>(values[i]), graph::DType::kFloat16);
    const bool same = Same(static_cast<float>(narrow[i]), expected) &&
                      BitsOf(Float16(values[i])) == BitsOf(narrow[i]);
    wrong += same ? 0 : 1;
  }
  CHECK(wrong == 0);
  CHECK(BitsOf(Float16(65519.996F)) == 0x7bff);
  CHECK(BitsOf(Float16(65520.0F)) == 0x7c00);
  CHECK(BitsOf(Float16(-1e30F)) == 0xfc00);
}

TEST_CASE("Float16: bulk conversions write what they are asked to, at any length") {
  for (int64_t count = 0; count <= 19; ++count) {
    std::vector<float> wide(20, 0.25F);
    std::vector<Float16> narrow(20, Float16(7.0F));
    Narrow(wide.data(), narrow.data(), count);
    std::vector<float> back(20, 9.0F);
    Widen(narrow.data(), back.data(), 20);
    for (int64_t i = 0; i < 20; ++i) {
      CHECK(back[static_cast<size_t>(i)] == (i < count ? 0.25F : 7.0F));
    }
  }
}

TEST_CASE("Float16: subnormals stay whatever the float mode") {
  const unsigned mode = _mm_getcsr();
  const std::vector<float> wide(9, 0x1p-24F);
  std::vector<Float16> narrow(9);
  std::vector<float> back(9);
  _mm_setcsr(mode | 0x8040);  // FTZ and DAZ
  Narrow(wide.data(), narrow.data(), 9);
  Widen(narrow.data(), back.data(), 9);
  _mm_setcsr(mode);
  CHECK(back == wide);
}

TEST_CASE("Storage: the largest float32 that becomes 0, the smallest that becomes 6") {
  const auto check = [](auto type) {
    using T = decltype(type);
    CHECK(static_cast<float>(T(kRoundsToZero<T>)) == 0);
    CHECK(static_cast<float>(T(std::nextafter(kRoundsToZero<T>, 1.0F))) > 0);
    CHECK(static_cast<float>(T(kRoundsToSix<T>)) == 6);
    CHECK(static_cast<float>(T(std::nextafter(kRoundsToSix<T>, 1.0F))) < 6);
  };
  check(float{});
  check(BFloat16{});
  check(Float16{});
}

}  // namespace ringmaster::cpu
