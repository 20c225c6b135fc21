// What a module says of itself, and texts with one mistake each.
#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <cmath>
#include <string>
#include <vector>

#include "tests/support/stablehlo/interpreter.h"
#include "tests/support/stablehlo/module_text.h"

namespace ringmaster::testing::stablehlo {

TEST_CASE("StableHLO: a value is freed behind its last use, and overwritten where it may be") {
  const std::string line =
      "%{1} = \"stablehlo.exponential\"(%{0}) : (tensor<64xf32>) -> "
      "tensor<64xf32>\n";
  const std::string text = Function(
      "%a: tensor<64xf32>", "tensor<64xf32>",
      fmt::format(fmt::runtime(line), "a", "b") + fmt::format(fmt::runtime(line), "b", "c") +
          "%d = \"stablehlo.add\"(%b, %c) : (tensor<64xf32>, tensor<64xf32>) -> tensor<64xf32>\n" +
          fmt::format(fmt::runtime(line), "d", "r"));
  auto module = Module::Parse(text);
  REQUIRE(module.ok());
  const Memory memory = (*module)->memory(Module::Padding::kNone);
  CHECK(memory.arguments == 256);
  CHECK(memory.outputs == 256);
  CHECK(memory.temporary == 512);  // b and c; d takes b's place
  CHECK((*module)->memory(Module::Padding::kTiles).arguments == 512);
  const std::string turn =
      "%{1} = \"stablehlo.reverse\"(%{0}) {{dimensions = array<i64: 0>}} : (tensor<64xf32>) -> "
      "tensor<64xf32>\n";
  std::string turns;
  for (const auto& [from, to] : {std::pair("a", "b"), {"b", "c"}, {"c", "d"}, {"d", "r"}}) {
    turns += fmt::format(fmt::runtime(turn), from, to);
  }
  const auto chain = Module::Parse(Function("%a: tensor<64xf32>", "tensor<64xf32>", turns));
  REQUIRE(chain.ok());
  CHECK((*chain)->memory(Module::Padding::kNone).temporary == 512);  // never more than two
  const std::vector<float> values = Waves(64, 0.1);
  const std::vector<float> got = Values<float>(Run(text, {Floats({64}, values)})[0]);
  CHECK(got[5] == std::exp(std::exp(values[5]) + std::exp(std::exp(values[5]))));
  CHECK(TensorType{Type::kBFloat16, {3, 17, 130}}.tiled_bytes() == 3 * 32 * 256 * 2);
}

TEST_CASE("StableHLO: donated arguments are named") {
  const auto module = Module::Parse(
      "module @d attributes {mhlo.num_replicas = 1 : i32} { func.func @main(%p: tensor<8xf32> "
      "{tf.aliasing_output = 0 : i32}, %g: tensor<8xf32>) -> (tensor<8xf32>) {\n%q = "
      "\"stablehlo.subtract\"(%p, %g) : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>\n"
      "\"func.return\"(%q) : (tensor<8xf32>) -> () } }");
  REQUIRE(module.ok());
  CHECK((*module)->aliases()[0] == size_t{0});
  CHECK(!(*module)->aliases()[1]);
  CHECK((*module)->name() == "d");
  const auto results = (*module)->Run(std::vector<Tensor>{Floats({8}, Waves(8, 1))});
  CHECK(!results.ok());
}

TEST_CASE("StableHLO: a mistake in a text is found where it is") {
  const auto complaint = [](const std::string& arguments, const std::string& result,
                            const std::string& body) {
    const auto module = Module::Parse(Function(arguments, result, body));
    return module.ok() ? std::string("none") : std::string(module.status().message());
  };
  const auto of = [&](const std::string& body) {
    return complaint("%a: tensor<2x3xf32>, %b: tensor<3xf32>, %i: tensor<2xi32>", "tensor<2x3xf32>",
                     body);
  };
  using Catch::Matchers::Contains;
  const std::string types = " : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>";
  CHECK(of("%r = \"stablehlo.add\"(%a, %a)" + types) == "none");
  CHECK_THAT(of("%r = \"stablehlo.add\"(%a, %b) : (tensor<2x3xf32>, tensor<3xf32>) -> "
                "tensor<2x3xf32>"),
             Contains("line 3, column 1: stablehlo.add: operand 1 is tensor<3xf32>"));
  CHECK_THAT(of("%r = \"stablehlo.add\"(%a, %b)" + types),
             Contains("line 3, column 26: stablehlo.add: %b is tensor<3xf32>, its type says"));
  CHECK_THAT(of("%r = \"stablehlo.add\"(%a, %a) : (tensor<2x3xf32>, tensor<2x3xf32>) -> "
                "tensor<3x2xf32>"),
             Contains("declared tensor<3x2xf32>, the op gives tensor<2x3xf32>"));
  CHECK_THAT(of("%r = \"stablehlo.plus\"(%a, %a)" + types), Contains("plus: no such op"));
  CHECK_THAT(of("%r = \"stablehlo.add\"(%a, %c)" + types), Contains("%c is not defined"));
  CHECK_THAT(of("%a = \"stablehlo.add\"(%a, %a)" + types), Contains("%a is defined twice"));
  CHECK_THAT(of("%r = \"stablehlo.add\"(%a, %a) {speed = 1 : i64}" + types),
             Contains("no attribute speed"));
  CHECK_THAT(of("%r = \"stablehlo.and\"(%a, %a)" + types), Contains("not of f32"));
  CHECK_THAT(of("%r = \"stablehlo.exponential\"(%i) : (tensor<2xi32>) -> tensor<2xi32>"),
             Contains("not of i32"));
  CHECK_THAT(of("%r = \"stablehlo.transpose\"(%a) {permutation = array<i64: 1, 1>} : "
                "(tensor<2x3xf32>) -> tensor<3x3xf32>"),
             Contains("each once"));
  CHECK_THAT(of("%r = \"stablehlo.broadcast_in_dim\"(%b) {broadcast_dimensions = array<i64: 0>} : "
                "(tensor<3xf32>) -> tensor<2x3xf32>"),
             Contains("does not become axis 0"));
  CHECK_THAT(of("%r = \"stablehlo.constant\"() {value = dense<1> : tensor<2x3xf32>} : () -> "
                "tensor<2x3xf32>"),
             Contains("'1' is an integer"));
  CHECK_THAT(of("%r = \"stablehlo.constant\"() {value = dense<[1.0]> : tensor<2xf32>} : () -> "
                "tensor<2xf32>"),
             Contains("a literal of shape [1]"));
  CHECK_THAT(of("%r = \"stablehlo.reshape\"(%a) : (tensor<2x3xf32>) -> tensor<7xf32>"),
             Contains("not as many elements"));
  CHECK_THAT(of("%z = \"stablehlo.constant\"() {value = dense<0.0> : tensor<f32>} : () -> "
                "tensor<f32>\n%r = \"stablehlo.reduce\"(%a, %z) " +
                RegionOf("add", "bf16") +
                " {dimensions = array<i64: 0>} : (tensor<2x3xf32>, tensor<f32>) -> tensor<3xf32>"),
             Contains("region 0 takes (tensor<bf16>, tensor<bf16>)"));
  CHECK_THAT(of("%s = \"stablehlo.constant\"() {value = dense<0.0> : tensor<f32>} : () -> "
                "tensor<f32>\n%r = \"stablehlo.reduce\"(%a, %s) " +
                RegionOf("add") +
                " {dimensions = array<i64: 0>} : (tensor<2x3xf32>, tensor<f32>) -> tensor<3xf32>"),
             Contains("%s hides a value"));
  CHECK_THAT(of("%r = \"stablehlo.dot_general\"(%a, %b) {dot_dimension_numbers = "
                "#stablehlo.dot<lhs_contracting_dimensions = [0], rhs_contracting_dimensions = "
                "[0]>} : (tensor<2x3xf32>, tensor<3xf32>) -> tensor<3xf32>"),
             Contains("has another extent"));
  CHECK_THAT(of("%r = \"stablehlo.add\"(%a, %a)"), Contains("expected ':'"));
  CHECK_THAT(complaint("%a: tensor<2xf33>", "tensor<2xf32>", ""),
             Contains("no element type 'f33'"));
  CHECK_THAT(complaint("%a: tensor<2xf32>", "tensor<3xf32>",
                       "%r = \"stablehlo.abs\"(%a) : (tensor<2xf32>) -> tensor<2xf32>"),
             Contains("func.return"));
  CHECK_THAT(std::string(Module::Parse("module @x {").status().message()),
             Contains("the text ends"));
  CHECK_THAT(std::string(Module::Parse("garbage").status().message()),
             Contains("expected 'module'"));
}

}  // namespace ringmaster::testing::stablehlo
