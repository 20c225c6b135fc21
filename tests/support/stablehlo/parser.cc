#include "tests/support/stablehlo/parser.h"

#include "tests/support/stablehlo/cursor.h"
#include "tests/support/stablehlo/literal.h"

namespace ringmaster::testing::stablehlo {
namespace {

constexpr int kDeepest = 8;  // regions within regions

class Parser {
 public:
  explicit Parser(std::string_view text) : cursor_(text) {}

  StatusOr<ModuleText> Module();

 private:
  // One `item` after the other up to `close`, with commas between them.
  template <typename Item>
  Status List(std::string_view open, std::string_view close, const Item& item) {
    RING_RETURN_IF_ERROR(cursor_.Expect(open));
    for (bool first = true; !cursor_.Accept(close); first = false) {
      if (!first) RING_RETURN_IF_ERROR(cursor_.Expect(","));
      RING_RETURN_IF_ERROR(item());
    }
    return absl::OkStatus();
  }

  Status Function(ModuleText* module);
  Status Arguments(std::vector<ArgumentText>* arguments, bool with_attributes);
  Status Operations(RegionText* region);
  Status Region(RegionText* region);
  StatusOr<OperationText> Operation();
  Status Signature(OperationText* operation);
  Status Types(std::vector<TensorType>* types);

  Status ParseAttributes(Attributes* attributes);
  StatusOr<Attribute> Value();
  StatusOr<Attribute> DialectAttribute();
  StatusOr<EnumAttribute> Enum();
  StatusOr<ConvolutionAttribute> Convolution();
  StatusOr<NumbersAttribute> Numbers(const std::string& name);
  StatusOr<Attribute> Array();
  StatusOr<Attribute> NumberValue();

  Cursor cursor_;
  int depth_ = 0;
};

StatusOr<ModuleText> Parser::Module() {
  ModuleText module;
  RING_RETURN_IF_ERROR(cursor_.Expect("module"));
  if (cursor_.Sees("@")) {
    RING_ASSIGN_OR_RETURN(module.name, cursor_.Name('@'));
  }
  if (cursor_.Accept("attributes")) RING_RETURN_IF_ERROR(ParseAttributes(&module.attributes));
  RING_RETURN_IF_ERROR(cursor_.Expect("{"));
  RING_RETURN_IF_ERROR(Function(&module));
  RING_RETURN_IF_ERROR(cursor_.Expect("}"));
  if (!cursor_.AtEnd()) return cursor_.Unexpected("the end of the text");
  return module;
}

Status Parser::Function(ModuleText* module) {
  RING_RETURN_IF_ERROR(cursor_.Expect("func.func"));
  cursor_.Accept("public");
  const Position at = cursor_.position();
  RING_ASSIGN_OR_RETURN(const std::string name, cursor_.Name('@'));
  if (name != "main") return ErrorAt(at, "expected one function @main, got @{}", name);
  RING_RETURN_IF_ERROR(Arguments(&module->main.arguments, true));
  module->results_at = cursor_.position();
  if (cursor_.Accept("->")) {
    const auto result = [&]() -> Status {
      RING_ASSIGN_OR_RETURN(TensorType type, cursor_.Tensor());
      module->results.push_back(std::move(type));
      Attributes ignored;
      return cursor_.Sees("{") ? ParseAttributes(&ignored) : absl::OkStatus();
    };
    if (cursor_.Sees("(")) {
      RING_RETURN_IF_ERROR(List("(", ")", result));
    } else {
      RING_ASSIGN_OR_RETURN(TensorType type, cursor_.Tensor());
      module->results.push_back(std::move(type));
    }
  }
  RING_RETURN_IF_ERROR(cursor_.Expect("{"));
  return Operations(&module->main);
}

Status Parser::Arguments(std::vector<ArgumentText>* arguments, bool with_attributes) {
  return List("(", ")", [&]() -> Status {
    ArgumentText argument;
    argument.at = cursor_.position();
    RING_ASSIGN_OR_RETURN(argument.name, cursor_.Name('%'));
    RING_RETURN_IF_ERROR(cursor_.Expect(":"));
    RING_ASSIGN_OR_RETURN(argument.type, cursor_.Tensor());
    if (with_attributes && cursor_.Sees("{")) {
      RING_RETURN_IF_ERROR(ParseAttributes(&argument.attributes));
    }
    arguments->push_back(std::move(argument));
    return absl::OkStatus();
  });
}

Status Parser::Operations(RegionText* region) {
  while (!cursor_.Sees("}")) {
    RING_ASSIGN_OR_RETURN(OperationText operation, Operation());
    region->operations.push_back(std::move(operation));
  }
  region->end = cursor_.position();
  return cursor_.Expect("}");
}

Status Parser::Region(RegionText* region) {
  const Position at = cursor_.position();
  if (++depth_ > kDeepest) return ErrorAt(at, "regions nested more than {} deep", kDeepest);
  RING_RETURN_IF_ERROR(cursor_.Expect("{"));
  if (cursor_.Sees("^")) {
    RING_RETURN_IF_ERROR(cursor_.Name('^').status());
    if (cursor_.Sees("(")) RING_RETURN_IF_ERROR(Arguments(&region->arguments, false));
    RING_RETURN_IF_ERROR(cursor_.Expect(":"));
  }
  RING_RETURN_IF_ERROR(Operations(region));
  --depth_;
  return absl::OkStatus();
}

StatusOr<OperationText> Parser::Operation() {
  OperationText operation;
  operation.at = cursor_.position();
  if (cursor_.Sees("%")) {
    RING_ASSIGN_OR_RETURN(operation.result, cursor_.Name('%'));
    operation.results = 1;
    if (cursor_.Accept(":")) {
      RING_ASSIGN_OR_RETURN(operation.results, cursor_.Integer());
    }
    RING_RETURN_IF_ERROR(cursor_.Expect("="));
  }
  if (!cursor_.Sees("\"")) return cursor_.Unexpected("an op in quotes (generic form)");
  RING_ASSIGN_OR_RETURN(operation.op, cursor_.Quoted());
  RING_RETURN_IF_ERROR(List("(", ")", [&]() -> Status {
    Use use;
    use.at = cursor_.position();
    RING_ASSIGN_OR_RETURN(use.name, cursor_.Name('%'));
    if (cursor_.AcceptHere("#")) {
      RING_ASSIGN_OR_RETURN(use.index, cursor_.Integer());
    }
    operation.operands.push_back(std::move(use));
    return absl::OkStatus();
  }));
  if (cursor_.Accept("<")) {
    RING_RETURN_IF_ERROR(ParseAttributes(&operation.attributes));
    RING_RETURN_IF_ERROR(cursor_.Expect(">"));
  }
  if (cursor_.Sees("(")) {
    RING_RETURN_IF_ERROR(List("(", ")", [&] { return Region(&operation.regions.emplace_back()); }));
  }
  if (cursor_.Sees("{")) RING_RETURN_IF_ERROR(ParseAttributes(&operation.attributes));
  RING_RETURN_IF_ERROR(Signature(&operation));
  return operation;
}

Status Parser::Signature(OperationText* operation) {
  RING_RETURN_IF_ERROR(cursor_.Expect(":"));
  RING_RETURN_IF_ERROR(Types(&operation->operand_types));
  RING_RETURN_IF_ERROR(cursor_.Expect("->"));
  if (cursor_.Sees("(")) return Types(&operation->result_types);
  RING_ASSIGN_OR_RETURN(TensorType type, cursor_.Tensor());
  operation->result_types.push_back(std::move(type));
  return absl::OkStatus();
}

Status Parser::Types(std::vector<TensorType>* types) {
  return List("(", ")", [&]() -> Status {
    RING_ASSIGN_OR_RETURN(TensorType type, cursor_.Tensor());
    types->push_back(std::move(type));
    return absl::OkStatus();
  });
}

Status Parser::ParseAttributes(Attributes* attributes) {
  return List("{", "}", [&]() -> Status {
    const Position at = cursor_.position();
    RING_ASSIGN_OR_RETURN(const std::string name, cursor_.Word());
    Attribute value = UnitAttribute();
    if (cursor_.Accept("=")) {
      RING_ASSIGN_OR_RETURN(value, Value());
    }
    if (!attributes->emplace(name, std::move(value)).second) {
      return ErrorAt(at, "attribute {} stands there twice", name);
    }
    return absl::OkStatus();
  });
}

StatusOr<Attribute> Parser::Value() {
  if (cursor_.Accept("dense")) {
    RING_ASSIGN_OR_RETURN(Tensor value, ParseDense(cursor_));
    return Attribute(DenseAttribute{std::move(value)});
  }
  if (cursor_.Accept("array")) return Array();
  if (cursor_.Accept("true")) return Attribute(BoolAttribute{true});
  if (cursor_.Accept("false")) return Attribute(BoolAttribute{false});
  if (cursor_.Accept("unit")) return Attribute(UnitAttribute());
  if (cursor_.Sees("\"")) {
    RING_ASSIGN_OR_RETURN(std::string text, cursor_.Quoted());
    return Attribute(StringAttribute{std::move(text)});
  }
  if (cursor_.Sees("[")) {
    EnumListAttribute list;
    RING_RETURN_IF_ERROR(List("[", "]", [&]() -> Status {
      RING_RETURN_IF_ERROR(cursor_.Expect("#stablehlo"));
      RING_ASSIGN_OR_RETURN(EnumAttribute value, Enum());
      list.values.push_back(std::move(value));
      return absl::OkStatus();
    }));
    return Attribute(std::move(list));
  }
  if (cursor_.Sees("#")) return DialectAttribute();
  return NumberValue();
}

StatusOr<Attribute> Parser::DialectAttribute() {
  if (cursor_.Accept("#stablehlo")) {
    RING_ASSIGN_OR_RETURN(EnumAttribute value, Enum());
    return Attribute(std::move(value));
  }
  const Position at = cursor_.position();
  RING_ASSIGN_OR_RETURN(const std::string name, cursor_.Name('#'));
  if (name == "stablehlo.conv") {
    RING_ASSIGN_OR_RETURN(ConvolutionAttribute value, Convolution());
    return Attribute(std::move(value));
  }
  if (!name.starts_with("stablehlo.")) return ErrorAt(at, "no attribute #{} is known", name);
  RING_ASSIGN_OR_RETURN(NumbersAttribute value, Numbers(name));
  return Attribute(std::move(value));
}

StatusOr<EnumAttribute> Parser::Enum() {
  EnumAttribute value;
  RING_RETURN_IF_ERROR(cursor_.Expect("<"));
  RING_ASSIGN_OR_RETURN(value.name, cursor_.Word());
  RING_ASSIGN_OR_RETURN(value.value, cursor_.Word());
  RING_RETURN_IF_ERROR(cursor_.Expect(">"));
  return value;
}

StatusOr<ConvolutionAttribute> Parser::Convolution() {
  ConvolutionAttribute value;
  const auto dimensions = [&](std::vector<std::string>* names) {
    return List("[", "]", [&]() -> Status {
      for (const char* letter : {"b", "f", "i", "o"}) {
        if (cursor_.Accept(letter)) {
          names->emplace_back(letter);
          return absl::OkStatus();
        }
      }
      RING_ASSIGN_OR_RETURN(const int64_t spatial, cursor_.Integer());
      names->push_back(fmt::format("{}", spatial));
      return absl::OkStatus();
    });
  };
  RING_RETURN_IF_ERROR(cursor_.Expect("<"));
  RING_RETURN_IF_ERROR(dimensions(&value.lhs));
  if (!cursor_.AcceptHere("x")) return cursor_.Unexpected("'x'");
  RING_RETURN_IF_ERROR(dimensions(&value.rhs));
  RING_RETURN_IF_ERROR(cursor_.Expect("->"));
  RING_RETURN_IF_ERROR(dimensions(&value.result));
  RING_RETURN_IF_ERROR(cursor_.Expect(">"));
  return value;
}

StatusOr<NumbersAttribute> Parser::Numbers(const std::string& name) {
  NumbersAttribute value;
  value.name = name;
  RING_RETURN_IF_ERROR(List("<", ">", [&]() -> Status {
    const Position at = cursor_.position();
    RING_ASSIGN_OR_RETURN(const std::string field, cursor_.Word());
    RING_RETURN_IF_ERROR(cursor_.Expect("="));
    if (value.values.contains(field)) return ErrorAt(at, "{} stands there twice", field);
    std::vector<int64_t>& numbers = value.values[field];
    const auto number = [&]() -> Status {
      RING_ASSIGN_OR_RETURN(const int64_t next, cursor_.Integer());
      numbers.push_back(next);
      return absl::OkStatus();
    };
    return cursor_.Sees("[") ? List("[", "]", number) : number();
  }));
  return value;
}

StatusOr<Attribute> Parser::Array() {
  ArrayAttribute array;
  RING_RETURN_IF_ERROR(cursor_.Expect("<"));
  RING_ASSIGN_OR_RETURN(array.type, cursor_.Word());
  if (cursor_.Accept(">")) return Attribute(std::move(array));
  RING_RETURN_IF_ERROR(List(":", ">", [&]() -> Status {
    if (array.type == "i1" && (cursor_.Sees("true") || cursor_.Sees("false"))) {
      array.values.push_back(cursor_.Accept("true") ? 1 : 0);
      if (array.values.back() == 0) cursor_.Accept("false");
      return absl::OkStatus();
    }
    RING_ASSIGN_OR_RETURN(const int64_t value, cursor_.Integer());
    array.values.push_back(value);
    return absl::OkStatus();
  }));
  return Attribute(std::move(array));
}

StatusOr<Attribute> Parser::NumberValue() {
  const Position at = cursor_.position();
  RING_ASSIGN_OR_RETURN(const std::string text, cursor_.Number());
  std::string type;
  if (cursor_.Accept(":")) {
    RING_ASSIGN_OR_RETURN(type, cursor_.Word());
  }
  if (text.find('.') != std::string::npos) {
    return Attribute(FloatAttribute{std::strtod(text.c_str(), nullptr)});
  }
  if (text.starts_with("0x")) return ErrorAt(at, "expected a decimal number, got {}", text);
  errno = 0;
  const int64_t value = std::strtoll(text.c_str(), nullptr, 10);
  if (errno != 0) return ErrorAt(at, "{} does not fit 64 bits", text);
  return Attribute(IntegerAttribute{value, type.empty() ? "i64" : type});
}

}  // namespace

StatusOr<ModuleText> ParseText(std::string_view text) { return Parser(text).Module(); }

}  // namespace ringmaster::testing::stablehlo
