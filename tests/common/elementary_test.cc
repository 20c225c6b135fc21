#include "common/numeric/elementary.h"

#include <catch2/catch.hpp>

#include <cmath>
#include <numbers>

namespace ringmaster {
namespace {

// Bits, which every build must give: each is the nearest double, or the one beside it (checked with
// 50 digits). Whoever changes them changes results.
TEST_CASE("Elementary: bits are what they always were") {
  CHECK(CosinePi(0.125) == 0x1.d906bcf328d46p-1);
  CHECK(CosinePi(0.3) == 0x1.2cf2304755a5ep-1);
  CHECK(CosinePi(0.6180339887) == -0x1.73126734a39dfp-2);
  CHECK(CosinePi(0.999) == -0x1.ffff5a6a681ffp-1);
  CHECK(Exponential(-1e-3) == 0x1.ff7cfe56f1a9ep-1);
  CHECK(Exponential(1) == 0x1.5bf0a8b14576ap+1);
  CHECK(Exponential(-300) == 0x1.245639c3a49f7p-433);
  CHECK(RealPower(0.97, 0.37) == 0x1.fa431f95b5619p-1);
  CHECK(RealPower(0.1, 3.3) == 0x1.06c4363887517p-11);
  CHECK(NaturalLog(0.1) == -0x1.26bb1bbb55515p+1);
  CHECK(NaturalLog(1e10) == 0x1.7069e2aa2aa5ap+4);
}

TEST_CASE("Elementary: the logarithm is that of the library") {
  for (double x = 1e-12; x < 1e12; x *= 1.37) {
    INFO(x);
    CHECK(NaturalLog(x) == Approx(std::log(x)).epsilon(1e-15).margin(1e-15));
  }
  CHECK(NaturalLog(1) == 0);
}

TEST_CASE("Elementary: the exponential is that of the library, and ends where it would overflow") {
  for (double x = -690; x < 690; x += 0.173) {
    INFO(x);
    CHECK(Exponential(x) == Approx(std::exp(x)).epsilon(5e-16));
  }
  CHECK(Exponential(0) == 1);
  CHECK(Exponential(1e9) == Exponential(700));
  CHECK(Exponential(-1e9) == Exponential(-700));
}

TEST_CASE("Elementary: the cosine is that of the library, exact where it can be") {
  for (double x = 0; x <= 1; x += 1.0 / 1024) {
    INFO(x);
    CHECK(CosinePi(x) == Approx(std::cos(std::numbers::pi * x)).epsilon(1e-15).margin(2e-16));
    CHECK(CosinePi(x) == -CosinePi(1 - x));
  }
  CHECK(CosinePi(0) == 1);
  CHECK(CosinePi(0.5) == 0);
  CHECK(CosinePi(1) == -1);
}

TEST_CASE("Elementary: powers, whole by squaring, others by the logarithm") {
  CHECK(Power(3, 0) == 1);
  CHECK(Power(3, 13) == 1594323);
  CHECK(RealPower(0.5, 3) == 0.125);
  CHECK(RealPower(0, 0) == 1);
  CHECK(RealPower(0, 1.5) == 0);
  for (double x = 0.01; x < 1; x += 0.07) {
    CHECK(RealPower(x, 2.7) == Approx(std::pow(x, 2.7)).epsilon(1e-14));
  }
}

}  // namespace
}  // namespace ringmaster
