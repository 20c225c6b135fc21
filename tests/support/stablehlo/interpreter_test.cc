// The interpreter against answers that are known: small ones by hand, gradients of convolutions and
// pools by finite differences.
#include "tests/support/stablehlo/interpreter.h"

#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <regex>
#include <string>
#include <vector>

#include "tests/support/stablehlo/module_text.h"

namespace ringmaster::testing::stablehlo {
namespace {

// An op without attributes on two tensors of a type, elements of which are of type T.
template <typename T>
std::vector<T> Binary(const std::string& op, const std::string& type, const Tensor& a,
                      const Tensor& b) {
  const std::string tensor = fmt::format("tensor<{}x{}>", a.shape[0], type);
  return Values<T>(
      Run(Function(fmt::format("%a: {0}, %b: {0}", tensor), tensor,
                   fmt::format("%r = \"stablehlo.{0}\"(%a, %b) : ({1}, {1}) -> {1}", op, tensor)),
          {a, b})[0]);
}

std::vector<float> Unary(const std::string& op, const std::vector<float>& values) {
  const std::string tensor = fmt::format("tensor<{}xf32>", values.size());
  return Values<float>(
      Run(Function("%a: " + tensor, tensor,
                   fmt::format("%r = \"stablehlo.{0}\"(%a) : ({1}) -> {1}", op, tensor)),
          {Floats({static_cast<int64_t>(values.size())}, values)})[0]);
}

// One op on floats with attributes.
std::vector<float> Apply(const std::string& op, const std::string& attributes,
                         const std::string& from, const std::string& to, const Tensor& a) {
  return Values<float>(
      Run(Function("%a: " + from, to,
                   fmt::format("%z = \"stablehlo.constant\"() {{value = dense<9.0> : tensor<f32>}} "
                               ": () -> tensor<f32>\n%r = \"stablehlo.{}\"(%a) {{{}}} : ({}) -> {}",
                               op, attributes, from, to)),
          {a})[0]);
}

// Of two values the first stays selected unless the second is larger.
const char* const kSelection =
    "{^bb0(%p: tensor<f32>, %q: tensor<f32>): %g = \"stablehlo.compare\"(%p, %q) "
    "{comparison_direction = #stablehlo<comparison_direction GE>} : (tensor<f32>, tensor<f32>) -> "
    "tensor<i1> \"stablehlo.return\"(%g) : (tensor<i1>) -> () }";

const float kInfinity = std::numeric_limits<float>::infinity();
const float kNan = std::numeric_limits<float>::quiet_NaN();

}  // namespace

TEST_CASE("StableHLO: elementwise arithmetic on floats") {
  CHECK(Unary("negate", {1, -2}) == std::vector<float>{-1, 2});
  CHECK(Unary("sqrt", {4, 0.25f}) == std::vector<float>{2, 0.5f});
  CHECK(Unary("exponential", {0, 1})[1] == Approx(2.718281828));
  CHECK(Unary("log_plus_one", {0, 1e-6f})[1] == Approx(1e-6).epsilon(1e-6));
  CHECK(Unary("exponential_minus_one", {0, 1e-6f})[1] == Approx(1e-6).epsilon(1e-6));
  const Tensor a = Floats({4}, {7, -7, 1, kNan});
  const Tensor b = Floats({4}, {2, 2, kInfinity, 1});
  CHECK(Binary<float>("subtract", "f32", a, b)[0] == 5);
  CHECK(Binary<float>("divide", "f32", a, b)[1] == -3.5f);
  CHECK(Binary<float>("maximum", "f32", a, b)[2] == kInfinity);
  CHECK(std::isnan(Binary<float>("maximum", "f32", a, b)[3]));
  CHECK(std::isnan(Binary<float>("minimum", "f32", b, a)[3]));
}

TEST_CASE("StableHLO: integers wrap around, and what is shifted out is 0") {
  CHECK(Binary<int32_t>("shift_right_logical", "i32", Ints({3}, {-7, 5, 1}),
                        Ints({3}, {2, 0, 40})) == std::vector<int32_t>{0x3ffffffe, 5, 0});
  const Tensor c = Make<uint32_t>(Type::kUInt32, {2}, {0xffffffff, 0xf0f0});
  const Tensor d = Make<uint32_t>(Type::kUInt32, {2}, {0xffffffff, 0x0ff0});
  CHECK(Binary<uint32_t>("multiply", "ui32", c, d)[0] == 1);
  CHECK(Binary<uint32_t>("add", "ui32", c, d)[0] == 0xfffffffe);
  CHECK(Binary<uint32_t>("xor", "ui32", c, d)[1] == 0xff00);
  CHECK(Binary<uint32_t>("and", "ui32", c, d)[1] == 0x00f0);
}

TEST_CASE("StableHLO: conversions round to nearest even") {
  const auto convert = [](const std::string& from, const std::string& to, const Tensor& value) {
    const std::string a = fmt::format("tensor<{}x{}>", value.shape[0], from);
    const std::string r = fmt::format("tensor<{}x{}>", value.shape[0], to);
    return Run(
        Function("%a: " + a, r, fmt::format("%r = \"stablehlo.convert\"(%a) : ({}) -> {}", a, r)),
        {value})[0];
  };
  // 1 + 2^-8 lies between two numbers of bf16, 1 + 3 * 2^-8 too.
  const Tensor ties = Floats({3}, {1.00390625f, 1.01171875f, -kInfinity});
  CHECK(Values<uint16_t>(convert("f32", "bf16", ties)) ==
        std::vector<uint16_t>{0x3f80, 0x3f82, 0xff80});
  CHECK(Values<uint16_t>(convert("f32", "f16", Floats({2}, {65520, 1.00048828125f}))) ==
        std::vector<uint16_t>{0x7c00, 0x3c00});
  CHECK(Values<int32_t>(convert("f32", "i32", Floats({4}, {2.9f, -2.9f, 1e20f, kNan}))) ==
        std::vector<int32_t>{2, -2, std::numeric_limits<int32_t>::max(), 0});
  CHECK(Values<float>(convert("i1", "f32", Make<uint8_t>(Type::kPred, {2}, {1, 0}))) ==
        std::vector<float>{1, 0});
  CHECK(Values<uint8_t>(convert("f32", "i1", Floats({2}, {0.5f, 0}))) ==
        std::vector<uint8_t>{1, 0});
}

TEST_CASE("StableHLO: comparisons and select") {
  const auto compare = [](const std::string& direction) {
    return Values<uint8_t>(
        Run(Function("%a: tensor<3xf32>, %b: tensor<3xf32>", "tensor<3xi1>",
                     "%r = \"stablehlo.compare\"(%a, %b) {comparison_direction = "
                     "#stablehlo<comparison_direction " +
                         direction + ">} : (tensor<3xf32>, tensor<3xf32>) -> tensor<3xi1>"),
            {Floats({3}, {1, 2, kNan}), Floats({3}, {2, 2, kNan})})[0]);
  };
  using Bits = std::vector<uint8_t>;
  CHECK(compare("LT") == Bits{1, 0, 0});
  CHECK(compare("LE") == Bits{1, 1, 0});
  CHECK(compare("EQ") == Bits{0, 1, 0});
  CHECK(compare("NE") == Bits{1, 0, 1});
  CHECK(compare("GE") == Bits{0, 1, 0});
  CHECK(compare("GT") == Bits{0, 0, 0});
  const std::vector<Tensor> results =
      Run(Function("%c: tensor<3xi1>, %a: tensor<3xf32>, %b: tensor<3xf32>", "tensor<3xf32>",
                   "%r = \"stablehlo.select\"(%c, %a, %b) : (tensor<3xi1>, tensor<3xf32>, "
                   "tensor<3xf32>) -> tensor<3xf32>"),
          {Make<uint8_t>(Type::kPred, {3}, {1, 1, 0}), Floats({3}, {-5, 7, 7}),
           Floats({3}, {1, 2, 3})});
  CHECK(Values<float>(results[0]) == std::vector<float>{-5, 7, 3});
}

TEST_CASE("StableHLO: ops that move elements") {
  const Tensor a = Floats({2, 3}, {1, 2, 3, 4, 5, 6});
  using List = std::vector<float>;
  CHECK(Apply("transpose", "permutation = array<i64: 1, 0>", "tensor<2x3xf32>", "tensor<3x2xf32>",
              a) == List{1, 4, 2, 5, 3, 6});
  CHECK(Apply("reverse", "dimensions = array<i64: 1>", "tensor<2x3xf32>", "tensor<2x3xf32>", a) ==
        List{3, 2, 1, 6, 5, 4});
  CHECK(Apply("slice",
              "start_indices = array<i64: 0, 0>, limit_indices = array<i64: 2, 3>, strides = "
              "array<i64: 1, 2>",
              "tensor<2x3xf32>", "tensor<2x2xf32>", a) == List{1, 3, 4, 6});
  CHECK(Apply("broadcast_in_dim", "broadcast_dimensions = array<i64: 0, 2>", "tensor<2x3xf32>",
              "tensor<2x2x3xf32>", a) == List{1, 2, 3, 1, 2, 3, 4, 5, 6, 4, 5, 6});
  CHECK(Apply("reshape", "", "tensor<2x3xf32>", "tensor<6xf32>", a) == List{1, 2, 3, 4, 5, 6});
  const auto pad = [&](const std::string& low, const std::string& high, const std::string& inner,
                       const std::string& type) {
    return Values<float>(Run(
        Function("%a: tensor<2x3xf32>, %z: tensor<f32>", type,
                 fmt::format("%r = \"stablehlo.pad\"(%a, %z) {{edge_padding_low = array<i64: {}>, "
                             "edge_padding_high = array<i64: {}>, interior_padding = array<i64: "
                             "{}>}} : (tensor<2x3xf32>, tensor<f32>) -> {}",
                             low, high, inner, type)),
        {a, Floats({}, {9})})[0]);
  };
  CHECK(pad("0, 1", "0, 0", "1, 0", "tensor<3x4xf32>") == List{9, 1, 2, 3, 9, 9, 9, 9, 9, 4, 5, 6});
  CHECK(pad("0, -1", "-1, 1", "0, 1", "tensor<1x5xf32>") == List{9, 2, 9, 3, 9});
  CHECK(pad("-2, 0", "1, 0", "0, 0", "tensor<1x3xf32>") == List{9, 9, 9});
  CHECK(Values<float>(Run(Function("%a: tensor<2x3xf32>", "tensor<2x5xf32>",
                                   "%s = \"stablehlo.slice\"(%a) {start_indices = array<i64: 0, "
                                   "1>, limit_indices = array<i64: 2, 3>, strides = array<i64: 1, "
                                   "1>} : (tensor<2x3xf32>) -> tensor<2x2xf32>\n%r = "
                                   "\"stablehlo.concatenate\"(%a, %s) {dimension = 1 : i64} : "
                                   "(tensor<2x3xf32>, tensor<2x2xf32>) -> tensor<2x5xf32>"),
                          {a})[0]) == List{1, 2, 3, 2, 3, 4, 5, 6, 5, 6});
  CHECK(Values<int32_t>(Run(Function("", "tensor<2x3xi32>",
                                     "%r = \"stablehlo.iota\"() {iota_dimension = 1 : i64} : () -> "
                                     "tensor<2x3xi32>"),
                            {})[0]) == std::vector<int32_t>{0, 1, 2, 0, 1, 2});
}

TEST_CASE("StableHLO: literals") {
  const auto constant = [](const std::string& literal, const std::string& type) {
    return Run(Function("", type,
                        fmt::format("%r = \"stablehlo.constant\"() {{value = dense<{}> : {}}} : () "
                                    "-> {}",
                                    literal, type, type)),
               {})[0];
  };
  CHECK(Values<float>(constant("0xFF800000", "tensor<2xf32>"))[1] == -kInfinity);
  CHECK(Values<float>(constant("[[1.5, -2.0e-1]]", "tensor<1x2xf32>")) ==
        std::vector<float>{1.5f, -0.2f});
  CHECK(Values<uint16_t>(constant("0xFF80", "tensor<bf16>"))[0] == 0xff80);
  CHECK(Values<uint16_t>(constant("1.0", "tensor<f16>"))[0] == 0x3c00);
  CHECK(Values<uint32_t>(constant("4294967295", "tensor<ui32>"))[0] == 0xffffffff);
  CHECK(Values<int64_t>(constant("-5", "tensor<i64>"))[0] == -5);
  CHECK(Values<uint8_t>(constant("[true, false]", "tensor<2xi1>")) == std::vector<uint8_t>{1, 0});
  CHECK(Values<float>(constant("\"0x0000803F00000040\"", "tensor<2xf32>")) ==
        std::vector<float>{1, 2});
}

TEST_CASE("StableHLO: reductions") {
  const auto reduce = [](const std::string& region, const std::string& axes, float init,
                         const std::string& to) {
    return Values<float>(
        Run(Function("%a: tensor<2x3x2xf32>, %i: tensor<f32>", to,
                     fmt::format("%r = \"stablehlo.reduce\"(%a, %i) {} {{dimensions = array<i64: "
                                 "{}>}} : (tensor<2x3x2xf32>, tensor<f32>) -> {}",
                                 region, axes, to)),
            {Floats({2, 3, 2}, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}), Floats({}, {init})})[0]);
  };
  using List = std::vector<float>;
  CHECK(reduce(RegionOf("add"), "0, 1, 2", 100, "tensor<f32>") == List{178});
  CHECK(reduce(RegionOf("add"), "1", 0, "tensor<2x2xf32>") == List{9, 12, 27, 30});
  CHECK(reduce(RegionOf("maximum"), "0, 2", -1, "tensor<3xf32>") == List{8, 10, 12});
  CHECK(reduce(RegionOf("multiply"), "2", 1, "tensor<2x3xf32>") == List{2, 12, 30, 56, 90, 132});
  CHECK(reduce(RegionOf("minimum"), "0", 2, "tensor<3x2xf32>") == List{1, 2, 2, 2, 2, 2});
  // No fold of ours: the region runs as it stands.
  CHECK(reduce(RegionOf("subtract"), "1", 0, "tensor<2x2xf32>") == List{-9, -12, -27, -30});
  const Tensor flags = Make<uint8_t>(Type::kPred, {3}, {0, 1, 0});
  const Tensor any = Run(Function("%a: tensor<3xi1>, %i: tensor<i1>", "tensor<i1>",
                                  "%r = \"stablehlo.reduce\"(%a, %i) " + RegionOf("or", "i1") +
                                      " {dimensions = array<i64: 0>} : (tensor<3xi1>, "
                                      "tensor<i1>) -> tensor<i1>"),
                         {flags, Make<uint8_t>(Type::kPred, {}, {0})})[0];
  CHECK(Values<uint8_t>(any)[0] == 1);
}

TEST_CASE("StableHLO: a reduction of several operands keeps the place of the largest") {
  const std::string text = Function(
      "%a: tensor<2x3xf32>, %z: tensor<f32>, %o: tensor<i32>", "tensor<2xi32>",
      "%i = \"stablehlo.iota\"() {iota_dimension = 1 : i64} : () -> tensor<2x3xi32>\n"
      "%m:2 = \"stablehlo.reduce\"(%a, %i, %z, %o) ({^bb0(%v: tensor<f32>, %k: tensor<i32>, %w: "
      "tensor<f32>, %l: tensor<i32>):\n%g = \"stablehlo.compare\"(%w, %v) {comparison_direction = "
      "#stablehlo<comparison_direction GT>} : (tensor<f32>, tensor<f32>) -> tensor<i1>\n%s = "
      "\"stablehlo.select\"(%g, %w, %v) : (tensor<i1>, tensor<f32>, tensor<f32>) -> tensor<f32>\n"
      "%t = \"stablehlo.select\"(%g, %l, %k) : (tensor<i1>, tensor<i32>, tensor<i32>) -> "
      "tensor<i32>\n\"stablehlo.return\"(%s, %t) : (tensor<f32>, tensor<i32>) -> () }) {dimensions "
      "= array<i64: 1>} : (tensor<2x3xf32>, tensor<2x3xi32>, tensor<f32>, tensor<i32>) -> "
      "(tensor<2xf32>, tensor<2xi32>)\n%n = \"stablehlo.constant\"() {value = dense<0> : "
      "tensor<2xi32>} : () -> tensor<2xi32>\n%r = \"stablehlo.add\"(%m#1, %n) : (tensor<2xi32>, "
      "tensor<2xi32>) -> tensor<2xi32>");
  const std::vector<Tensor> results =
      Run(text, {Floats({2, 3}, {1, 5, 2, 8, 3, 8}), Floats({}, {-kInfinity}), Ints({}, {-1})});
  CHECK(Values<int32_t>(results[0]) == std::vector<int32_t>{1, 0});
}

TEST_CASE("StableHLO: products, batched and transposed, in 16 bits and in 32") {
  const auto dot = [](const std::string& numbers, const std::string& types, const Tensor& a,
                      const Tensor& b, const std::string& to) {
    const size_t comma = types.find(", ");
    return Run(
        Function(fmt::format("%a: {}, %b: {}", types.substr(0, comma), types.substr(comma + 2)), to,
                 fmt::format("%r = \"stablehlo.dot_general\"(%a, %b) "
                             "{{dot_dimension_numbers = #stablehlo.dot<{}>}} : ({}) -> {}",
                             numbers, types, to)),
        {a, b})[0];
  };
  const Tensor a = Floats({2, 3}, {1, 2, 3, 4, 5, 6});
  const Tensor b = Floats({3, 2}, {1, 0, 0, 1, 1, 1});
  using List = std::vector<float>;
  CHECK(Values<float>(dot("lhs_contracting_dimensions = [1], rhs_contracting_dimensions = [0]",
                          "tensor<2x3xf32>, tensor<3x2xf32>", a, b, "tensor<2x2xf32>")) ==
        List{4, 5, 10, 11});
  CHECK(Values<float>(dot("lhs_contracting_dimensions = [0], rhs_contracting_dimensions = [1]",
                          "tensor<2x3xf32>, tensor<3x2xf32>", a, b, "tensor<3x3xf32>")) ==
        List{1, 4, 5, 2, 5, 7, 3, 6, 9});
  // The batch is the last axis of lhs and the first of rhs.
  CHECK(Values<float>(dot("lhs_batching_dimensions = [1], rhs_batching_dimensions = [0], "
                          "lhs_contracting_dimensions = [0], rhs_contracting_dimensions = [1]",
                          "tensor<2x3xf32>, tensor<3x2xf32>", a, b, "tensor<3xf32>")) ==
        List{1, 5, 9});
  const Tensor c = Make<uint16_t>(Type::kBFloat16, {1, 2}, {0x3f80, 0x4000});  // 1, 2
  const Tensor d = Make<uint16_t>(Type::kBFloat16, {2, 1}, {0x3b80, 0x3f80});  // 2^-8, 1
  const std::string inner = "lhs_contracting_dimensions = [1], rhs_contracting_dimensions = [0]";
  CHECK(Values<float>(dot(inner, "tensor<1x2xbf16>, tensor<2x1xbf16>", c, d, "tensor<1x1xf32>")) ==
        List{2.00390625f});
  CHECK(Values<uint16_t>(dot(inner, "tensor<1x2xbf16>, tensor<2x1xbf16>", c, d,
                             "tensor<1x1xbf16>"))[0] == 0x4000);
}

TEST_CASE("StableHLO: pools at the edges, and with dilation") {
  const auto pool = [](const std::string& op, float init, const std::string& attributes,
                       const std::string& to) {
    return Values<float>(
        Run(Function("%a: tensor<4xf32>, %i: tensor<f32>", to,
                     fmt::format("%r = \"stablehlo.reduce_window\"(%a, %i) {} {{{}}} : "
                                 "(tensor<4xf32>, tensor<f32>) -> {}",
                                 RegionOf(op), attributes, to)),
            {Floats({4}, {1, -5, 3, 2}), Floats({}, {init})})[0]);
  };
  using List = std::vector<float>;
  CHECK(pool("maximum", -kInfinity,
             "window_dimensions = array<i64: 3>, window_strides = array<i64: 2>, padding = "
             "dense<[[1, 1]]> : tensor<1x2xi64>",
             "tensor<2xf32>") == List{1, 3});
  CHECK(pool("add", 0, "window_dimensions = array<i64: 2>, window_dilations = array<i64: 2>",
             "tensor<2xf32>") == List{4, -3});
  CHECK(pool("add", 0,
             "window_dimensions = array<i64: 2>, base_dilations = array<i64: 2>, padding = "
             "dense<[[1, -1]]> : tensor<1x2xi64>",
             "tensor<6xf32>") == List{1, 1, -5, -5, 3, 3});
}

TEST_CASE("StableHLO: of equal values in a window the first is selected") {
  const std::string text = Function(
      "%a: tensor<4xf32>, %b: tensor<2xf32>, %z: tensor<f32>", "tensor<4xf32>",
      fmt::format("%r = \"stablehlo.select_and_scatter\"(%a, %b, %z) ({}, {} {{window_dimensions = "
                  "array<i64: 3>, window_strides = array<i64: 1>}} : (tensor<4xf32>, "
                  "tensor<2xf32>, tensor<f32>) -> tensor<4xf32>",
                  kSelection, RegionOf("add").substr(1)));
  CHECK(Values<float>(
            Run(text, {Floats({4}, {0, 2, 2, 1}), Floats({2}, {10, 20}), Floats({}, {0.5f})})[0]) ==
        std::vector<float>{0.5f, 30.5f, 0.5f, 0.5f});
}

// A convolution with stride 2 and padding [0, 1], then a max pool; the gradients of what it gives
// times `dp`, as ops, against differences.
TEST_CASE("StableHLO: gradients of a convolution and a pool are those of finite differences") {
  const std::string conv =
      "lhs_dilation = array<i64: {0}, {0}>, rhs_dilation = array<i64: {1}, {1}>, batch_group_count "
      "= 1 : i64, feature_group_count = 1 : i64";
  const std::string y = "tensor<2x3x3x4xf32>", x = "tensor<2x6x6x3xf32>", w = "tensor<3x3x3x4xf32>";
  const std::string p = "tensor<2x2x2x4xf32>";
  const std::string window =
      "{window_dimensions = array<i64: 1, 2, 2, 1>, window_strides = "
      "array<i64: 1, 1, 1, 1>, padding = dense<0> : tensor<4x2xi64>}";
  std::string text =
      "module @c { func.func @main(%x: X, %w: W, %dp: P) -> (P, X, W) {\n"
      "%c0 = \"stablehlo.constant\"() {value = dense<0.0> : tensor<f32>} : () -> tensor<f32>\n"
      "%low = \"stablehlo.constant\"() {value = dense<0xFF800000> : tensor<f32>} : () -> "
      "tensor<f32>\n%y = \"stablehlo.convolution\"(%x, %w) {dimension_numbers = "
      "#stablehlo.conv<[b, "
      "0, 1, f]x[0, 1, i, o]->[b, 0, 1, f]>, window_strides = array<i64: 2, 2>, padding = "
      "dense<[[0, 1], [0, 1]]> : tensor<2x2xi64>, " +
      fmt::format(fmt::runtime(conv), 1, 1) +
      "} : (X, W) -> Y\n%pool = " + "\"stablehlo.reduce_window\"(%y, %low) " + RegionOf("maximum") +
      " " + window +
      " : (Y, tensor<f32>) -> P\n%dy = \"stablehlo.select_and_scatter\"(%y, %dp, %c0) " + "(" +
      kSelection + ", " + RegionOf("add").substr(1) + " " + window +
      " : (Y, P, tensor<f32>) -> Y\n%wr = \"stablehlo.reverse\"(%w) {dimensions = array<i64: 0, "
      "1>} : (W) -> W\n%dx = \"stablehlo.convolution\"(%dy, %wr) {dimension_numbers = "
      "#stablehlo.conv<[b, 0, 1, f]x[0, 1, o, i]->[b, 0, 1, f]>, window_strides = array<i64: 1, "
      "1>, padding = dense<[[2, 1], [2, 1]]> : tensor<2x2xi64>, " +
      fmt::format(fmt::runtime(conv), 2, 1) + "} : (Y, W) -> X\n%dw = " +
      "\"stablehlo.convolution\"(%x, %dy) {dimension_numbers = #stablehlo.conv<[f, 0, 1, b]x[i, 0, "
      "1, o]->[0, 1, b, f]>, window_strides = array<i64: 1, 1>, padding = dense<[[0, 1], [0, 1]]> "
      ": tensor<2x2xi64>, " +
      fmt::format(fmt::runtime(conv), 1, 2) +
      "} : (X, Y) -> W\n\"func.return\"(%pool, %dx, %dw) : (P, X, W) -> () } }";
  for (const auto& [name, type] : {std::pair("X", x), {"W", w}, {"Y", y}, {"P", p}}) {
    text = std::regex_replace(text, std::regex(fmt::format("\\b{}\\b", name)), type);
  }
  const std::vector<float> dp = Waves(32, 1);
  std::vector<Tensor> arguments = {Floats({2, 6, 6, 3}, Waves(216, 1)),
                                   Floats({3, 3, 3, 4}, Waves(108, 0.5)), Floats({2, 2, 2, 4}, dp)};
  const std::vector<Tensor> results = Run(text, arguments);
  auto module = Module::Parse(text);
  const auto loss = [&] {
    const std::vector<float> pool = Values<float>((*module)->Run(arguments)->at(0));
    double sum = 0;
    for (size_t i = 0; i < pool.size(); ++i) sum += double{pool[i]} * dp[i];
    return sum;
  };
  constexpr float kStep = 1e-2f;  // small enough that no other element becomes a maximum
  for (const size_t argument : {0, 1}) {
    const std::vector<float> gradient = Values<float>(results[argument + 1]);
    for (size_t i = 0; i < gradient.size(); i += 7) {
      float& value = arguments[argument].data<float>()[i];
      const float was = value;
      value = was + kStep;
      const double above = loss();
      value = was - kStep;
      const double difference = (above - loss()) / (2 * double{kStep});
      value = was;
      INFO("argument " << argument << ", element " << i);
      CHECK(gradient[i] == Approx(difference).margin(2e-3));
    }
  }
}

TEST_CASE("StableHLO: groups of features and of the batch") {
  const auto conv = [](const std::string& groups, const std::string& types, const Tensor& a,
                       const Tensor& b, const std::string& to) {
    const size_t comma = types.find(", ");
    return Values<float>(Run(
        Function(fmt::format("%a: {}, %b: {}", types.substr(0, comma), types.substr(comma + 2)), to,
                 fmt::format("%r = \"stablehlo.convolution\"(%a, %b) {{dimension_numbers = "
                             "#stablehlo.conv<[b, 0, f]x[0, i, o]->[b, 0, f]>, {}}} : ({}) -> {}",
                             groups, types, to)),
        {a, b})[0]);
  };
  const Tensor a = Floats({2, 2, 2}, {1, 2, 3, 4, 5, 6, 7, 8});
  using List = std::vector<float>;
  CHECK(conv("feature_group_count = 2 : i64, batch_group_count = 1 : i64",
             "tensor<2x2x2xf32>, tensor<2x1x2xf32>", a, Floats({2, 1, 2}, {1, 10, 2, 20}),
             "tensor<2x1x2xf32>") == List{7, 100, 19, 220});
  CHECK(conv("feature_group_count = 1 : i64, batch_group_count = 2 : i64",
             "tensor<2x2x2xf32>, tensor<2x2x2xf32>", a, Floats({2, 2, 2}, {1, 1, 1, 1, 1, 1, 0, 0}),
             "tensor<1x1x2xf32>") == List{6, 18});
}

}  // namespace ringmaster::testing::stablehlo
