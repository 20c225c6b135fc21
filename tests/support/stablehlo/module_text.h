// Texts of small modules, tensors for them, and how a test runs them. Free functions.
#pragma once

#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "tests/support/stablehlo/interpreter.h"

namespace ringmaster::testing::stablehlo {

template <typename T>
Tensor Make(Type type, Shape shape, const std::vector<T>& values) {
  Tensor tensor(TensorType{type, std::move(shape)});
  REQUIRE(tensor.bytes.size() == values.size() * sizeof(T));
  std::memcpy(tensor.bytes.data(), values.data(), tensor.bytes.size());
  return tensor;
}
inline Tensor Floats(Shape shape, const std::vector<float>& values) {
  return Make(Type::kFloat32, std::move(shape), values);
}
inline Tensor Ints(Shape shape, const std::vector<int32_t>& values) {
  return Make(Type::kInt32, std::move(shape), values);
}

template <typename T>
std::vector<T> Values(const Tensor& tensor) {
  return {tensor.data<T>(), tensor.data<T>() + tensor.bytes.size() / sizeof(T)};
}

// A function of `arguments`, whose last op is %r.
inline std::string Function(const std::string& arguments, const std::string& result,
                            const std::string& body) {
  return fmt::format(
      "module @m {{\nfunc.func @main({}) -> ({}) {{\n{}\n\"func.return\"(%r) : ({}) -> ()\n}} }}",
      arguments, result, body, result);
}

inline std::string RegionOf(const std::string& op, const std::string& type = "f32") {
  return fmt::format(
      "({{^bb0(%p: tensor<{0}>, %q: tensor<{0}>): %s = \"stablehlo.{1}\"(%p, %q) : (tensor<{0}>, "
      "tensor<{0}>) -> tensor<{0}> \"stablehlo.return\"(%s) : (tensor<{0}>) -> () }})",
      type, op);
}

inline std::vector<Tensor> Run(const std::string& text, const std::vector<Tensor>& arguments) {
  auto module = Module::Parse(text);
  INFO(text << "\n" << module.status());
  REQUIRE(module.ok());
  auto results = (*module)->Run(arguments);
  INFO(results.status());
  REQUIRE(results.ok());
  return *std::move(results);
}

inline std::vector<float> Waves(size_t n, double scale) {
  std::vector<float> values;
  for (size_t i = 0; i < n; ++i) {
    values.push_back(static_cast<float>(scale * std::sin(1.0 + 1.7 * static_cast<double>(i))));
  }
  return values;
}

}  // namespace ringmaster::testing::stablehlo
