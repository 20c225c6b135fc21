#include "tests/support/stablehlo/operation.h"

#include <algorithm>

namespace ringmaster::testing::stablehlo {

Status Operation::Expect(size_t operands, size_t results, size_t regions) const {
  if (text_.operand_types.size() != operands) {
    return Fail("{} operands, expected {}", text_.operand_types.size(), operands);
  }
  if (text_.result_types.size() != results) {
    return Fail("{} results, expected {}", text_.result_types.size(), results);
  }
  if (regions_.size() != regions) return Fail("{} regions, expected {}", regions_.size(), regions);
  return absl::OkStatus();
}

Status Operation::ExpectResult(const TensorType& inferred, size_t i) const {
  if (result(i) == inferred) return absl::OkStatus();
  return Fail("result {} is declared {}, the op gives {}", i, Text(result(i)), Text(inferred));
}

Status Operation::ExpectOperand(size_t i, const TensorType& expected) const {
  if (operand(i) == expected) return absl::OkStatus();
  return Fail("operand {} is {}, expected {}", i, Text(operand(i)), Text(expected));
}

Status Operation::ExpectRegion(size_t i, const std::vector<TensorType>& arguments,
                               const std::vector<TensorType>& results) const {
  const auto list = [](const std::vector<TensorType>& types) {
    std::string text;
    for (const TensorType& type : types) text += (text.empty() ? "" : ", ") + Text(type);
    return text;
  };
  const Computation& region = *regions_[i];
  if (region.arguments() != arguments) {
    return Fail("region {} takes ({}), expected ({})", i, list(region.arguments()),
                list(arguments));
  }
  if (region.results() == results) return absl::OkStatus();
  return Fail("region {} gives ({}), expected ({})", i, list(region.results()), list(results));
}

const Attribute* Operation::Find(const std::string& name) const {
  read_.insert(name);
  const auto found = text_.attributes.find(name);
  return found == text_.attributes.end() ? nullptr : &found->second;
}

StatusOr<std::vector<int64_t>> Operation::Array(const std::string& name) const {
  RING_ASSIGN_OR_RETURN(const ArrayAttribute* array, Get<ArrayAttribute>(name));
  const std::string expected = name == "window_reversal" ? "i1" : "i64";
  if (array->type != expected) {
    return Fail("attribute {} is array<{}>, expected array<{}>", name, array->type, expected);
  }
  return array->values;
}

StatusOr<std::vector<int64_t>> Operation::Array(const std::string& name, size_t size) const {
  RING_ASSIGN_OR_RETURN(std::vector<int64_t> values, Array(name));
  if (values.size() == size) return values;
  return Fail("attribute {} has {} numbers, expected {}", name, values.size(), size);
}

StatusOr<std::vector<int64_t>> Operation::Array(const std::string& name, size_t size,
                                                int64_t missing) const {
  if (!Has(name)) return std::vector<int64_t>(size, missing);
  return Array(name, size);
}

StatusOr<std::vector<int64_t>> Operation::Axes(const std::string& name, size_t rank) const {
  RING_ASSIGN_OR_RETURN(std::vector<int64_t> axes, Array(name));
  RING_RETURN_IF_ERROR(CheckAxes(name, axes, rank));
  return axes;
}

Status Operation::CheckAxes(const std::string& name, const std::vector<int64_t>& axes,
                            size_t rank) const {
  std::set<int64_t> seen;
  for (const int64_t axis : axes) {
    if (axis < 0 || axis >= static_cast<int64_t>(rank) || !seen.insert(axis).second) {
      return Fail("{} = [{}]: expected axes of a tensor of rank {}, each once", name,
                  fmt::join(axes, ", "), rank);
    }
  }
  return absl::OkStatus();
}

StatusOr<int64_t> Operation::Integer(const std::string& name) const {
  RING_ASSIGN_OR_RETURN(const IntegerAttribute* value, Get<IntegerAttribute>(name));
  if (value->type != "i64") return Fail("attribute {} is {}, expected i64", name, value->type);
  return value->value;
}

StatusOr<int64_t> Operation::Integer(const std::string& name, int64_t missing) const {
  if (!Has(name)) return missing;
  return Integer(name);
}

StatusOr<std::vector<std::pair<int64_t, int64_t>>> Operation::Padding(size_t n) const {
  std::vector<std::pair<int64_t, int64_t>> padding(n);
  if (!Has("padding")) return padding;
  RING_ASSIGN_OR_RETURN(const DenseAttribute* dense, Get<DenseAttribute>("padding"));
  const TensorType expected{Type::kInt64, {static_cast<int64_t>(n), 2}};
  if (dense->value.tensor_type() != expected) {
    return Fail("padding is {}, expected {}", Text(dense->value.tensor_type()), Text(expected));
  }
  const auto* values = dense->value.data<int64_t>();
  for (size_t i = 0; i < n; ++i) padding[i] = {values[2 * i], values[2 * i + 1]};
  return padding;
}

StatusOr<std::string> Operation::Enum(const std::string& name) const {
  RING_ASSIGN_OR_RETURN(const EnumAttribute* value, Get<EnumAttribute>(name));
  if (value->name != name) return Fail("attribute {} is a {}", name, value->name);
  return value->value;
}

Status Operation::CheckAllRead() const {
  for (const auto& [name, value] : text_.attributes) {
    if (!read_.contains(name)) return Fail("no attribute {} is known for it", name);
  }
  return absl::OkStatus();
}

StatusOr<Numbers> Numbers::Of(const Operation& op, const std::string& attribute,
                              const std::string& form) {
  RING_ASSIGN_OR_RETURN(const NumbersAttribute* value, op.Get<NumbersAttribute>(attribute));
  if (value->name != form) {
    return op.Fail("attribute {} is #{}, expected #{}", attribute, value->name, form);
  }
  Numbers numbers;
  numbers.value_ = *value;
  return numbers;
}

Axes Numbers::List(const std::string& field) {
  read_.insert(field);
  const auto found = value_.values.find(field);
  return found == value_.values.end() ? Axes() : found->second;
}

Status Numbers::CheckAllRead(const Operation& op) const {
  for (const auto& [field, values] : value_.values) {
    if (!read_.contains(field)) return op.Fail("no {} is known for it", field);
  }
  return absl::OkStatus();
}

}  // namespace ringmaster::testing::stablehlo
