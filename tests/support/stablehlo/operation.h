// An op as its rule sees it: operand types, declared result types, attributes that are asked for by
// name, regions. Every complaint names place and op; an attribute that no rule asked for is one.
// Thread-compatible; lives while the op is compiled.
#pragma once

#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "tests/support/stablehlo/computation.h"
#include "tests/support/stablehlo/syntax.h"

namespace ringmaster::testing::stablehlo {

class Operation {
 public:
  using Regions = std::vector<std::shared_ptr<const Computation>>;

  Operation(const OperationText& text, Regions regions)
      : text_(text), regions_(std::move(regions)) {}

  template <typename... Args>
  [[nodiscard]] Status Fail(fmt::format_string<Args...> format, Args&&... args) const {
    return ErrorAt(text_.at, "{}: {}", text_.op, fmt::format(format, std::forward<Args>(args)...));
  }

  [[nodiscard]] const std::string& op() const { return text_.op; }
  [[nodiscard]] size_t operands() const { return text_.operand_types.size(); }
  [[nodiscard]] const TensorType& operand(size_t i) const { return text_.operand_types[i]; }
  [[nodiscard]] const TensorType& result(size_t i = 0) const { return text_.result_types[i]; }
  [[nodiscard]] const std::shared_ptr<const Computation>& region(size_t i) const {
    return regions_[i];
  }

  // How many there must be.
  [[nodiscard]] Status Expect(size_t operands, size_t results, size_t regions = 0) const;
  // That the declared result is what the op's rule makes of its operands.
  [[nodiscard]] Status ExpectResult(const TensorType& inferred, size_t i = 0) const;
  [[nodiscard]] Status ExpectOperand(size_t i, const TensorType& expected) const;
  // That a region takes `arguments` and gives `results`.
  [[nodiscard]] Status ExpectRegion(size_t i, const std::vector<TensorType>& arguments,
                                    const std::vector<TensorType>& results) const;

  // Attributes. `size`: how many numbers there must be.
  [[nodiscard]] StatusOr<std::vector<int64_t>> Array(const std::string& name) const;
  [[nodiscard]] StatusOr<std::vector<int64_t>> Array(const std::string& name, size_t size) const;
  // `missing` in each place where the attribute is not there.
  [[nodiscard]] StatusOr<std::vector<int64_t>> Array(const std::string& name, size_t size,
                                                     int64_t missing) const;
  // As Array; every number once, and below `rank`.
  [[nodiscard]] StatusOr<std::vector<int64_t>> Axes(const std::string& name, size_t rank) const;
  [[nodiscard]] Status CheckAxes(const std::string& name, const std::vector<int64_t>& axes,
                                 size_t rank) const;
  [[nodiscard]] StatusOr<int64_t> Integer(const std::string& name) const;
  [[nodiscard]] StatusOr<int64_t> Integer(const std::string& name, int64_t missing) const;
  // n x 2 of i64: low and high; zeros where it is not there.
  [[nodiscard]] StatusOr<std::vector<std::pair<int64_t, int64_t>>> Padding(size_t n) const;
  // #stablehlo<comparison_direction GE>, whose name is the attribute's.
  [[nodiscard]] StatusOr<std::string> Enum(const std::string& name) const;
  // Attributes that change nothing here: may be there, must be of form T.
  template <typename T>
  [[nodiscard]] Status Ignore(const std::string& name) const {
    const Attribute* attribute = Find(name);
    if (attribute == nullptr || std::holds_alternative<T>(*attribute)) return absl::OkStatus();
    return Fail("attribute {} has another form than it must have", name);
  }
  template <typename T>
  [[nodiscard]] StatusOr<const T*> Get(const std::string& name) const {
    const Attribute* attribute = Find(name);
    if (attribute == nullptr) return Fail("attribute {} is missing", name);
    const T* value = std::get_if<T>(attribute);
    if (value == nullptr) return Fail("attribute {} has another form than it must have", name);
    return value;
  }
  [[nodiscard]] bool Has(const std::string& name) const { return Find(name) != nullptr; }
  [[nodiscard]] Status CheckAllRead() const;

 private:
  [[nodiscard]] const Attribute* Find(const std::string& name) const;

  const OperationText& text_;
  const Regions regions_;
  mutable std::set<std::string> read_;
};

using Axes = std::vector<int64_t>;

// The fields of an attribute #stablehlo.dot<...>, asked for by name; an empty list where a field is
// not there.
class Numbers {
 public:
  static StatusOr<Numbers> Of(const Operation& op, const std::string& attribute,
                              const std::string& form);

  [[nodiscard]] Axes List(const std::string& field);
  [[nodiscard]] Status CheckAllRead(const Operation& op) const;

 private:
  NumbersAttribute value_;
  std::set<std::string> read_;
};

}  // namespace ringmaster::testing::stablehlo
