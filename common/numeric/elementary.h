// Functions that enter results, by correctly rounded + - * / alone: the same bits on every machine,
// because no function of a library is called. Errors are a few units of the last place of a double.
// Thread-safe (free functions).
#pragma once

#include <cstdint>

namespace ringmaster {

// The natural logarithm of a normal number above 0, within 2 units of the last place.
[[nodiscard]] double NaturalLog(double x);

// e^x for -700 <= x <= 700; beyond that what it is at the end.
[[nodiscard]] double Exponential(double x);

// cos(pi x) for 0 <= x <= 1; exact at 0, 1/2 and 1.
[[nodiscard]] double CosinePi(double x);

// base^exponent by squaring.
[[nodiscard]] double Power(double base, uint64_t exponent);
// base^exponent for 0 <= base and 0 <= exponent < 2^53; a whole exponent by squaring. 0^0 is 1.
[[nodiscard]] double RealPower(double base, double exponent);

}  // namespace ringmaster
