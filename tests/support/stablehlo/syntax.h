// What the text of a module says, before anybody asks whether it makes sense. Values, made by Parse
// and read by Compile.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "common/status.h"
#include "tests/support/stablehlo/tensor.h"

namespace ringmaster::testing::stablehlo {

struct Position {
  int line = 1;
  int column = 1;
};

// INVALID_ARGUMENT "line 3, column 9: ...".
template <typename... Args>
[[nodiscard]] Status ErrorAt(Position at, fmt::format_string<Args...> format, Args&&... args) {
  return InvalidArgument("line {}, column {}: {}", at.line, at.column,
                         fmt::format(format, std::forward<Args>(args)...));
}

struct IntegerAttribute {  // 1 : i64
  int64_t value = 0;
  std::string type;
};
struct FloatAttribute {  // 0.001 : f32
  double value = 0;
};
struct BoolAttribute {
  bool value = false;
};
struct StringAttribute {
  std::string value;
};
struct ArrayAttribute {  // array<i64: 1, 2>, array<i1: false, false>
  std::string type;
  std::vector<int64_t> values;
};
struct DenseAttribute {  // dense<[[0, 1]]> : tensor<1x2xi64>
  Tensor value;
};
struct EnumAttribute {  // #stablehlo<comparison_direction GE>
  std::string name;
  std::string value;
};
// [#stablehlo<precision HIGHEST>, #stablehlo<precision HIGHEST>]
struct EnumListAttribute {
  std::vector<EnumAttribute> values;
};
// #stablehlo.dot<lhs_contracting_dimensions = [1], ...>; a number without brackets is a list of
// one.
struct NumbersAttribute {
  std::string name;
  std::map<std::string, std::vector<int64_t>> values;
};
// [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f]: letters as they are, spatial dimensions as numbers.
struct ConvolutionAttribute {
  std::vector<std::string> lhs, rhs, result;
};
struct UnitAttribute {};

using Attribute = std::variant<UnitAttribute, IntegerAttribute, FloatAttribute, BoolAttribute,
                               StringAttribute, ArrayAttribute, DenseAttribute, EnumAttribute,
                               EnumListAttribute, NumbersAttribute, ConvolutionAttribute>;
using Attributes = std::map<std::string, Attribute>;

struct Use {  // %name or %name#index
  Position at;
  std::string name;
  std::optional<int64_t> index;
};

struct ArgumentText {
  Position at;
  std::string name;
  TensorType type;
  Attributes attributes;
};

struct RegionText;

struct OperationText {
  Position at;
  std::string op;      // stablehlo.add
  std::string result;  // name; empty: none
  int64_t results = 0;
  std::vector<Use> operands;
  std::vector<RegionText> regions;
  Attributes attributes;
  std::vector<TensorType> operand_types;
  std::vector<TensorType> result_types;
};

struct RegionText {
  std::vector<ArgumentText> arguments;
  std::vector<OperationText> operations;  // the last one is the terminator
  Position end;
};

struct ModuleText {
  std::string name;
  Attributes attributes;
  RegionText main;
  std::vector<TensorType> results;
  Position results_at;
};

}  // namespace ringmaster::testing::stablehlo
