#include "common/graph/update/initialize.h"

#include <algorithm>
#include <cstddef>

#include "common/numeric/arithmetic.h"
#include "common/numeric/elementary.h"
#include "common/numeric/philox.h"

namespace ringmaster::graph {
namespace {

// The polynomial with these coefficients, that of the highest power last.
template <size_t n>
double Polynomial(const double (&coefficients)[n], double x) {
  double sum = 0;
  for (size_t i = n; i-- > 0;) sum = sum * x + coefficients[i];
  return sum;
}

// Numerators and denominators near the middle, in the tails, and far out.
constexpr double kA[] = {3.3871328727963666080e0,  1.3314166789178437745e+2,
                         1.9715909503065514427e+3, 1.3731693765509461125e+4,
                         4.5921953931549871457e+4, 6.7265770927008700853e+4,
                         3.3430575583588128105e+4, 2.5090809287301226727e+3};
constexpr double kB[] = {1.0,
                         4.2313330701600911252e+1,
                         6.8718700749205790830e+2,
                         5.3941960214247511077e+3,
                         2.1213794301586595867e+4,
                         3.9307895800092710610e+4,
                         2.8729085735721942674e+4,
                         5.2264952788528545610e+3};
constexpr double kC[] = {1.42343711074968357734e0,  4.63033784615654529590e0,
                         5.76949722146069140550e0,  3.64784832476320460504e0,
                         1.27045825245236838258e0,  2.41780725177450611770e-1,
                         2.27238449892691845833e-2, 7.74545014278341407640e-4};
constexpr double kD[] = {1.0,
                         2.05319162663775882187e0,
                         1.67638483018380384940e0,
                         6.89767334985100004550e-1,
                         1.48103976427480074590e-1,
                         1.51986665636164571966e-2,
                         5.47593808499534494600e-4,
                         1.05075007164441684324e-9};
constexpr double kE[] = {6.65790464350110377720e0,  5.46378491116411436990e0,
                         1.78482653991729133580e0,  2.96560571828504891230e-1,
                         2.65321895265761230930e-2, 1.24266094738807843860e-3,
                         2.71155556874348757815e-5, 2.01033439929228813265e-7};
constexpr double kF[] = {1.0,
                         5.99832206555887937690e-1,
                         1.36929880922735805310e-1,
                         1.48753612908506148525e-2,
                         7.86869131145613259100e-4,
                         1.84631831751005468180e-5,
                         1.42151175831644588870e-7,
                         2.04426310338993978564e-15};

}  // namespace

double NormalQuantile(double p) {
  const double q = p - 0.5;
  if (q >= -0.425 && q <= 0.425) {
    const double r = 0.180625 - q * q;
    return q * Polynomial(kA, r) / Polynomial(kB, r);
  }
  const double tail = q < 0 ? p : 1 - p;
  const double r = SquareRoot(-NaturalLog(tail));
  const double x = r <= 5 ? Polynomial(kC, r - 1.6) / Polynomial(kD, r - 1.6)
                          : Polynomial(kE, r - 5) / Polynomial(kF, r - 5);
  return q < 0 ? -x : x;
}

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
