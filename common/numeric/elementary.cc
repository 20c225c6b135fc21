#include "common/numeric/elementary.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <numbers>

namespace ringmaster {
namespace {

// The series of these coefficients, the highest power last.
template <size_t n>
double Series(const double (&coefficients)[n], double x) {
  double sum = 0;
  for (size_t i = n; i-- > 0;) sum = sum * x + coefficients[i];
  return sum;
}

// 1 / (first + step i)!, each with the sign.
template <size_t n>
struct Factorials {
  constexpr Factorials(size_t first, size_t step, double sign) {
    double factorial = 1;
    for (size_t i = 2; i <= first; ++i) factorial *= static_cast<double>(i);
    double power = 1;
    for (size_t i = 0; i < n; ++i, power *= sign) {
      values[i] = power / factorial;
      for (size_t k = 1; k <= step; ++k) factorial *= static_cast<double>(first + step * i + k);
    }
  }
  double values[n] = {};
};

// Taylor's series, long enough for |x| <= log 2 / 2, and for |x| <= pi / 4.
constexpr Factorials<14> kExponential(0, 1, 1);
constexpr Factorials<9> kCosine(0, 2, -1);
constexpr Factorials<9> kSine(1, 2, -1);

// The upper bits of log 2, so that a product with a small whole number is exact, and the rest.
constexpr double kLog2High = 0x1.62e42feep-1;
constexpr double kLog2Low = 0x1.a39ef35793c76p-33;

}  // namespace

// log(2^e m) = e log 2 + 2 atanh((m - 1) / (m + 1)), 1 / sqrt 2 <= m < sqrt 2; the series of atanh.
double NaturalLog(double x) {
  const auto bits = std::bit_cast<uint64_t>(x);
  int64_t exponent = static_cast<int64_t>(bits >> 52) - 1023;
  double m = std::bit_cast<double>((bits & ((uint64_t{1} << 52) - 1)) | uint64_t{1023} << 52);
  if (m >= std::numbers::sqrt2) {
    m /= 2;
    ++exponent;
  }
  const double s = (m - 1) / (m + 1);
  double sum = 0;
  for (int odd = 25; odd >= 1; odd -= 2) sum = sum * (s * s) + 1.0 / odd;
  return static_cast<double>(exponent) * std::numbers::ln2 + 2 * s * sum;
}

// e^x = 2^k e^r, |r| <= log 2 / 2.
double Exponential(double x) {
  x = std::clamp(x, -700.0, 700.0);
  const double scaled = x / std::numbers::ln2;
  const auto k = static_cast<int64_t>(scaled + (scaled < 0 ? -0.5 : 0.5));
  const auto whole = static_cast<double>(k);
  const double r = (x - whole * kLog2High) - whole * kLog2Low;
  const double power = std::bit_cast<double>(static_cast<uint64_t>(k + 1023) << 52);
  return Series(kExponential.values, r) * power;
}

double CosinePi(double x) {
  if (x > 0.5) return -CosinePi(1 - x);
  if (x <= 0.25) {
    const double y = std::numbers::pi * x;
    return Series(kCosine.values, y * y);
  }
  const double y = std::numbers::pi * (0.5 - x);
  return y * Series(kSine.values, y * y);
}

double Power(double base, uint64_t exponent) {
  double result = 1;
  for (double square = base; exponent > 0; exponent >>= 1, square *= square) {
    if ((exponent & 1) != 0) result *= square;
  }
  return result;
}

double RealPower(double base, double exponent) {
  const auto whole = static_cast<uint64_t>(exponent);
  if (static_cast<double>(whole) == exponent) return Power(base, whole);
  return base == 0 ? 0 : Exponential(exponent * NaturalLog(base));
}

}  // namespace ringmaster
