// Elements of any type as numbers of one type that holds them, and back: so that what is rare or
// complicated is compiled once, and not for each type. Free functions.
#pragma once

#include <vector>

#include "tests/support/stablehlo/number.h"

namespace ringmaster::testing::stablehlo {

// Wide is float, of floats, or int64_t, of i1 and integers but ui64.
template <typename Wide>
std::vector<Wide> Widened(const Tensor& tensor) {
  return Dispatch(tensor.type, [&](auto zero) {
    using T = decltype(zero);
    const T* from = tensor.data<T>();
    return std::vector<Wide>(from, from + tensor.bytes.size() / sizeof(T));
  });
}

// The nearest; integers wrap around.
template <typename Wide>
void Narrow(const Wide* from, Tensor* to) {
  Dispatch(to->type, [&](auto zero) {
    using T = decltype(zero);
    const size_t elements = to->bytes.size() / sizeof(T);
    for (size_t i = 0; i < elements; ++i) {
      to->data<T>()[i] = static_cast<T>(static_cast<Arithmetic<T>>(from[i]));
    }
  });
}

}  // namespace ringmaster::testing::stablehlo
