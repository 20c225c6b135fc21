#include "worker/backend/pjrt/emit/builder.h"

#include <fmt/format.h>

#include <cctype>
#include <cmath>
#include <numeric>
#include <utility>

namespace ringmaster::pjrt {
namespace {

const char* Name(ElementKind element) {
  switch (element) {
    case ElementKind::kPred:
      return "i1";
    case ElementKind::kInt32:
      return "i32";
    case ElementKind::kUInt32:
      return "ui32";
    case ElementKind::kUInt64:
      return "ui64";
    case ElementKind::kFloat32:
      return "f32";
    case ElementKind::kBFloat16:
      return "bf16";
    case ElementKind::kFloat16:
      return "f16";
  }
  return "";
}

bool IsFloat(ElementKind element) { return element >= ElementKind::kFloat32; }

std::string TypeOf(ElementKind element, const graph::Shape& shape) {
  std::string type = "tensor<";
  for (const int64_t extent : shape) type += fmt::format("{}x", extent);
  return type + Name(element) + ">";
}

// array<i64: 1, 2>
template <typename Numbers>
std::string Array(const Numbers& numbers) {
  std::string list;
  for (const int64_t number : numbers) {
    list += fmt::format("{} {}", list.empty() ? ":" : ",", number);
  }
  return "array<i64" + list + ">";
}

template <typename Paddings>
std::string PaddingAttribute(const Paddings& paddings) {
  std::string list;
  for (const Padding& padding : paddings) {
    list += fmt::format("{}[{}, {}]", list.empty() ? "" : ", ", padding.low, padding.high);
  }
  return fmt::format("padding = dense<[{}]> : tensor<{}x2xi64>", list, paddings.size());
}

std::string WindowAttributes(const Windows& windows) {
  return fmt::format("window_dimensions = {}, window_strides = {}, {}", Array(windows.window),
                     Array(windows.strides), PaddingAttribute(windows.padding));
}

// MLIR wants a point in a float, and names what is not finite by its bits.
std::string FloatLiteral(double value, ElementKind element) {
  if (!std::isfinite(value)) {
    const bool negative = std::signbit(value);
    const char* const bits = element == ElementKind::kFloat32    ? "7F800000"
                             : element == ElementKind::kBFloat16 ? "7F80"
                                                                 : "7C00";
    const std::string text = bits;
    return (negative ? "0xF" : "0x7") + text.substr(1);
  }
  // The shortest decimal of the float32 as a float64 is exactly that.
  std::string text = fmt::format("{}", static_cast<double>(static_cast<float>(value)));
  if (text.find('.') != std::string::npos) return text;
  const size_t exponent = text.find('e');
  return text.insert(exponent == std::string::npos ? text.size() : exponent, ".0");
}

// A region of two scalars; its names are used in regions only.
std::string Region(std::string_view op, std::string_view attributes, ElementKind element,
                   ElementKind result) {
  const std::string type = TypeOf(element, {}), out = TypeOf(result, {});
  return fmt::format(
      "{{^bb0(%fold_a: {0}, %fold_b: {0}): %fold_r = \"stablehlo.{1}\"(%fold_a, %fold_b){2} : "
      "({0}, {0}) -> {3} \"stablehlo.return\"(%fold_r) : ({3}) -> ()}}",
      type, op, attributes, out);
}

const char* OpOf(Fold fold) { return fold == Fold::kAdd ? "add" : "maximum"; }

const char* PrecisionOf(const Tensor& operand) {
  // The default of a TPU multiplies float32 as bfloat16, that of a GPU as TF32.
  return operand.element == ElementKind::kFloat32
             ? "precision_config = [#stablehlo<precision HIGHEST>, #stablehlo<precision HIGHEST>]"
             : "precision_config = [#stablehlo<precision DEFAULT>, #stablehlo<precision DEFAULT>]";
}

}  // namespace

ElementKind ElementOf(graph::DType dtype) {
  switch (dtype) {
    case graph::DType::kFloat32:
      return ElementKind::kFloat32;
    case graph::DType::kBFloat16:
      return ElementKind::kBFloat16;
    case graph::DType::kFloat16:
      return ElementKind::kFloat16;
    case graph::DType::kInt32:
      return ElementKind::kInt32;
  }
  return ElementKind::kFloat32;
}

std::string Tensor::type() const { return TypeOf(element, shape); }

void Builder::SetScope(std::string_view scope) {
  scope_ = scope;
  for (char& c : scope_) {
    if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
  }
  // A name is a number, or begins with no digit.
  if (scope_.empty() || std::isdigit(static_cast<unsigned char>(scope_[0])) != 0) {
    scope_.insert(0, "_");
  }
}

std::string Builder::NewName() { return fmt::format("%{}_{}", scope_, names_++); }

Tensor Builder::Append(std::string_view op, const std::vector<Tensor>& operands,
                       std::string_view attributes, ElementKind element, const graph::Shape& shape,
                       std::string_view regions) {
  Tensor made = {NewName(), element, shape};
  std::string names, types;
  for (const Tensor& operand : operands) {
    const char* const comma = names.empty() ? "" : ", ";
    names += comma + operand.name;
    types += comma + operand.type();
  }
  text_ += fmt::format("    {} = \"stablehlo.{}\"({})", made.name, op, names);
  if (!regions.empty()) text_ += fmt::format(" ({})", regions);
  if (!attributes.empty()) text_ += fmt::format(" {{{}}}", attributes);
  text_ += fmt::format(" : ({}) -> {}\n", types, made.type());
  return made;
}

Tensor Builder::Splat(const std::string& literal, const graph::Shape& shape, ElementKind element) {
  const std::string type = TypeOf(element, {});
  const auto made = [&](const std::string& key, const auto& make) -> const Tensor& {
    const auto found = made_.find(key);
    return found != made_.end() ? found->second : made_.emplace(key, make()).first->second;
  };
  const std::string value = fmt::format("value = dense<{}> : {}", literal, type);
  const Tensor scalar = made(value, [&] { return Append("constant", {}, value, element, {}); });
  if (shape.empty()) return scalar;
  // One number that is broadcast: compilers keep a constant as large as it is written.
  return made(value + TypeOf(element, shape), [&] { return Fill(scalar, shape); });
}

Tensor Builder::Constant(double value, const graph::Shape& shape, ElementKind element) {
  return Splat(FloatLiteral(value, element), shape, element);
}

Tensor Builder::Integer(uint64_t value, const graph::Shape& shape, ElementKind element) {
  return Splat(fmt::format("{}", value), shape, element);
}

Tensor Builder::Zero(const graph::Shape& shape, ElementKind element) {
  return IsFloat(element) ? Constant(0, shape, element) : Integer(0, shape, element);
}

Tensor Builder::Iota(size_t axis, const graph::Shape& shape, ElementKind element) {
  return Append("iota", {}, fmt::format("iota_dimension = {} : i64", axis), element, shape);
}

Tensor Builder::Unary(std::string_view op, const Tensor& x) {
  return Append(op, {x}, "", x.element, x.shape);
}

Tensor Builder::Binary(std::string_view op, const Tensor& a, const Tensor& b) {
  return Append(op, {a, b}, "", a.element, a.shape);
}

Tensor Builder::Compare(std::string_view direction, const Tensor& a, const Tensor& b) {
  const std::string attribute =
      fmt::format("comparison_direction = #stablehlo<comparison_direction {}>", direction);
  return Append("compare", {a, b}, attribute, ElementKind::kPred, a.shape);
}

Tensor Builder::Select(const Tensor& condition, const Tensor& yes, const Tensor& no) {
  return Append("select", {condition, yes, no}, "", yes.element, yes.shape);
}

Tensor Builder::Convert(const Tensor& x, ElementKind element) {
  if (x.element == element) return x;
  return Append("convert", {x}, "", element, x.shape);
}

Tensor Builder::Broadcast(const Tensor& x, const graph::Shape& shape,
                          const std::vector<int64_t>& axes) {
  if (x.shape == shape) return x;
  return Append("broadcast_in_dim", {x}, "broadcast_dimensions = " + Array(axes), x.element, shape);
}

Tensor Builder::OverLast(const Tensor& x, const graph::Shape& shape) {
  std::vector<int64_t> axes(x.shape.size());
  std::iota(axes.begin(), axes.end(), static_cast<int64_t>(shape.size() - x.shape.size()));
  return Broadcast(x, shape, axes);
}

Tensor Builder::Reshape(const Tensor& x, const graph::Shape& shape) {
  if (x.shape == shape) return x;
  return Append("reshape", {x}, "", x.element, shape);
}

Tensor Builder::Transpose(const Tensor& x, const std::vector<int64_t>& permutation) {
  graph::Shape shape;
  for (const int64_t axis : permutation) shape.push_back(x.shape[static_cast<size_t>(axis)]);
  return Append("transpose", {x}, "permutation = " + Array(permutation), x.element, shape);
}

Tensor Builder::Reverse(const Tensor& x, const std::vector<int64_t>& axes) {
  return Append("reverse", {x}, "dimensions = " + Array(axes), x.element, x.shape);
}

Tensor Builder::Slice(const Tensor& x, const std::vector<int64_t>& begin,
                      const std::vector<int64_t>& end) {
  graph::Shape shape;
  for (size_t axis = 0; axis < begin.size(); ++axis) shape.push_back(end[axis] - begin[axis]);
  if (shape == x.shape) return x;
  const std::string attributes =
      fmt::format("start_indices = {}, limit_indices = {}, strides = {}", Array(begin), Array(end),
                  Array(std::vector<int64_t>(begin.size(), 1)));
  return Append("slice", {x}, attributes, x.element, shape);
}

Tensor Builder::Concatenate(const std::vector<Tensor>& parts, size_t axis) {
  graph::Shape shape = parts.front().shape;
  shape[axis] = 0;
  for (const Tensor& part : parts) shape[axis] += part.shape[axis];
  return Append("concatenate", parts, fmt::format("dimension = {} : i64", axis),
                parts.front().element, shape);
}

Tensor Builder::Pad(const Tensor& x, const std::vector<Padding>& padding,
                    const std::vector<int64_t>& between, Fold fold) {
  std::vector<int64_t> low, high;
  graph::Shape shape = x.shape;
  for (size_t axis = 0; axis < shape.size(); ++axis) {
    low.push_back(padding[axis].low);
    high.push_back(padding[axis].high);
    shape[axis] += low.back() + high.back() + (x.shape[axis] - 1) * between[axis];
  }
  if (shape == x.shape) return x;
  const std::string attributes =
      fmt::format("edge_padding_low = {}, edge_padding_high = {}, interior_padding = {}",
                  Array(low), Array(high), Array(between));
  return Append("pad", {x, Start(fold, x.element)}, attributes, x.element, shape);
}

std::vector<Tensor> Builder::Apart(const std::vector<Tensor>& values) {
  const std::string name = NewName();
  std::string names, types;
  std::vector<Tensor> apart;
  for (const Tensor& value : values) {
    const char* const comma = names.empty() ? "" : ", ";
    names += comma + value.name;
    types += comma + value.type();
    apart.push_back({fmt::format("{}#{}", name, apart.size()), value.element, value.shape});
  }
  text_ += fmt::format("    {}:{} = \"stablehlo.optimization_barrier\"({}) : ({}) -> ({})\n", name,
                       values.size(), names, types, types);
  return apart;
}

Tensor Builder::Start(Fold fold, ElementKind element) {
  return fold == Fold::kAdd ? Zero({}, element) : Constant(-HUGE_VAL, {}, element);
}

Tensor Builder::Reduce(Fold fold, const Tensor& x, const std::vector<int64_t>& axes) {
  if (axes.empty()) return x;
  graph::Shape shape;
  for (size_t axis = 0, next = 0; axis < x.shape.size(); ++axis) {
    if (next < axes.size() && axes[next] == static_cast<int64_t>(axis)) {
      ++next;
    } else {
      shape.push_back(x.shape[axis]);
    }
  }
  return Append("reduce", {x, Start(fold, x.element)}, "dimensions = " + Array(axes), x.element,
                shape, Region(OpOf(fold), "", x.element, x.element));
}

Tensor Builder::ReduceWindow(Fold fold, const Tensor& x, const Windows& windows) {
  graph::Shape shape;
  for (size_t axis = 0; axis < x.shape.size(); ++axis) {
    const Padding& padding = windows.padding[axis];
    const int64_t padded = x.shape[axis] + padding.low + padding.high;
    shape.push_back((padded - windows.window[axis]) / windows.strides[axis] + 1);
  }
  return Append("reduce_window", {x, Start(fold, x.element)}, WindowAttributes(windows), x.element,
                shape, Region(OpOf(fold), "", x.element, x.element));
}

Tensor Builder::ScatterToMaximum(const Tensor& x, const Tensor& dy, const Windows& windows) {
  // XLA has failed on CPUs and GPUs where the op itself pads.
  const Tensor padded =
      Pad(x, windows.padding, std::vector<int64_t>(x.shape.size(), 0), Fold::kMaximum);
  Windows within = windows;
  within.padding.assign(x.shape.size(), {});
  // What is selected stays while it is at least what comes next.
  const std::string select =
      Region("compare", " {comparison_direction = #stablehlo<comparison_direction GE>}", x.element,
             ElementKind::kPred);
  const Tensor sums = Append("select_and_scatter", {padded, dy, Constant(0, {}, x.element)},
                             WindowAttributes(within), x.element, padded.shape,
                             select + ", " + Region("add", "", x.element, x.element));
  std::vector<int64_t> begin, end;
  for (size_t axis = 0; axis < x.shape.size(); ++axis) {
    begin.push_back(windows.padding[axis].low);
    end.push_back(begin.back() + x.shape[axis]);
  }
  return Slice(sums, begin, end);
}

Tensor Builder::Dot(const Tensor& a, const Tensor& b, int64_t a_axis, int64_t b_axis) {
  graph::Shape shape = a.shape;
  shape.erase(shape.begin() + a_axis);
  for (size_t axis = 0; axis < b.shape.size(); ++axis) {
    if (static_cast<int64_t>(axis) != b_axis) shape.push_back(b.shape[axis]);
  }
  const std::string attributes = fmt::format(
      "dot_dimension_numbers = #stablehlo.dot<lhs_contracting_dimensions = [{}], "
      "rhs_contracting_dimensions = [{}]>, {}",
      a_axis, b_axis, PrecisionOf(a));
  return Append("dot_general", {a, b}, attributes, ElementKind::kFloat32, shape);
}

Tensor Builder::Convolve(const Tensor& x, const Tensor& kernel, const Convolution& convolution,
                         const graph::Shape& shape) {
  const std::string attributes = fmt::format(
      "dimension_numbers = #stablehlo.conv<{}>, window_strides = {}, {}, lhs_dilation = {}, "
      "rhs_dilation = {}, window_reversal = array<i1: false, false>, batch_group_count = {} : i64, "
      "feature_group_count = {} : i64, {}",
      convolution.dimensions, Array(convolution.strides), PaddingAttribute(convolution.padding),
      Array(convolution.x_dilations), Array(convolution.kernel_dilations), convolution.batch_groups,
      convolution.feature_groups, PrecisionOf(x));
  return Append("convolution", {x, kernel}, attributes, convolution.result, shape);
}

}  // namespace ringmaster::pjrt
