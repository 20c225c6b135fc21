#include "common/graph/layers/layer.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "common/graph/layers/options.h"
#include "common/numeric/arithmetic.h"

namespace ringmaster::graph::layers {
namespace {

std::pair<int64_t, int64_t> SamePads(int64_t input, int64_t extent, int64_t stride) {
  if (stride < 1) return {0, 0};  // the op says so
  const int64_t outputs = (input + stride - 1) / stride;
  const int64_t total = std::max<int64_t>((outputs - 1) * stride + extent - input, 0);
  return {total / 2, total - total / 2};
}

}  // namespace

std::string ToText(const Pair& pair) {
  return pair.height == pair.width ? fmt::format("{}", pair.height)
                                   : fmt::format("{},{}", pair.height, pair.width);
}

std::string ToText(const std::optional<Pair>& pair) { return pair ? ToText(*pair) : ""; }

std::string ToText(const Padding& padding) {
  if (padding.kind == Padding::Kind::kSame) return "same";
  if (padding.kind == Padding::Kind::kValid) return "valid";
  return fmt::format("[{}]", fmt::join(padding.numbers, ", "));
}

std::array<int64_t, 4> PadsOf(const Padding& padding, const Shape& x, Pair extent, Pair stride) {
  if (padding.kind == Padding::Kind::kNumbers) return padding.numbers;
  if (padding.kind == Padding::Kind::kValid) return {};
  const auto [top, bottom] = SamePads(x[1], extent.height, stride.height);
  const auto [left, right] = SamePads(x[2], extent.width, stride.width);
  return {top, left, bottom, right};
}

Initializer Initial::Resolve(int64_t fan_in, int64_t fan_out) const {
  const auto scaled = [](Initializer::Kind kind, double variance, double divisor) {
    return Initializer{kind, SquareRoot(variance) / divisor};
  };
  const auto in = static_cast<double>(fan_in),
             both = static_cast<double>(fan_in) + static_cast<double>(fan_out);
  switch (rule) {
    case Rule::kConstant:
      return {Initializer::Kind::kConstant, value};
    case Rule::kUniform:
      return {Initializer::Kind::kUniform, value};
    case Rule::kNormal:
      return {Initializer::Kind::kNormal, value};
    case Rule::kTruncatedNormal:
      return {Initializer::Kind::kTruncatedNormal, value};
    case Rule::kGlorotUniform:
      return GlorotUniform(fan_in, fan_out);
    case Rule::kGlorotNormal:
      return scaled(Initializer::Kind::kTruncatedNormal, 2 / both, kCutDeviation);
    case Rule::kHeUniform:
      return scaled(Initializer::Kind::kUniform, 6 / in, 1);
    case Rule::kHeNormal:
      return scaled(Initializer::Kind::kTruncatedNormal, 2 / in, kCutDeviation);
    case Rule::kHeNormalOut:
      return scaled(Initializer::Kind::kTruncatedNormal, 2 / static_cast<double>(fan_out),
                    kCutDeviation);
    case Rule::kLecunUniform:
      return scaled(Initializer::Kind::kUniform, 3 / in, 1);
    case Rule::kLecunNormal:
      return scaled(Initializer::Kind::kTruncatedNormal, 1 / in, kCutDeviation);
  }
  return {};
}

std::span<const char* const> InitialNames() {
  static constexpr const char* kNames[] = {"constant",         "uniform",        "normal",
                                           "truncated_normal", "glorot_uniform", "glorot_normal",
                                           "he_uniform",       "he_normal",      "he_normal_out",
                                           "lecun_uniform",    "lecun_normal"};
  return kNames;
}

std::string ToText(const Initial& initial) {
  if (initial == kZeros) return "zeros";
  if (initial == kOnes) return "ones";
  const char* const rule = InitialNames()[static_cast<size_t>(initial.rule)];
  if (initial.rule > Initial::Rule::kTruncatedNormal) return rule;
  return fmt::format("{{{}: {}}}", rule, initial.value);
}

std::string TypeWords(const Initial&) {
  const auto names = InitialNames();
  return fmt::format("zeros, ones, {}, {{{}: number}}",
                     fmt::join(names.subspan(kInitialsOfValue), ", "),
                     fmt::join(names.first(kInitialsOfValue), ": number}, {"));
}

std::string ToText(const Activation& activation) {
  if (activation.options.empty()) return activation.op;
  std::vector<std::string> options;
  for (const v1::Attribute& option : activation.options) {
    if (option.name().empty()) return fmt::format("{{{}: {}}}", activation.op, Describe(option));
    options.push_back(fmt::format("{}: {}", option.name(), Describe(option)));
  }
  return fmt::format("{{{}: {{{}}}}}", activation.op, fmt::join(options, ", "));
}

namespace {

// An elementwise op, or softmax.
template <typename Op>
inline constexpr bool kIsActivation =
    UnaryOp<Op> || std::is_same_v<Op, Relu> || std::is_same_v<Op, Softmax>;

// Takes options of the op; one without a name is its first.
template <typename Op>
Status Take(google::protobuf::RepeatedPtrField<v1::Attribute> options, Op* op) {
  const std::vector<FieldDescription> known = DescribeFields<Op>();
  for (v1::Attribute& option : options) {
    if (known.empty()) return InvalidArgument("{} has no options", Op::kTraits.name);
    if (option.name().empty()) option.set_name(known[0].name);
  }
  return Annotate(ReadOptions(options, op), Op::kTraits.name);
}

}  // namespace

ValueId Activate(GraphBuilder& builder, const std::string& name, ValueId x,
                 const Activation& activation) {
  if (activation.op.empty() || !builder.Expect(name, x)) return x;
  std::optional<Kind> kind = KindNamed(activation.op);
  const auto read = [&]<typename Op>(Op& op) -> Status {
    if constexpr (kIsActivation<Op>) return Take(activation.options, &op);
    return InvalidArgument("there is no activation {}", activation.op);
  };
  const Status status =
      kind ? std::visit(read, *kind) : InvalidArgument("there is no activation {}", activation.op);
  if (status.ok()) return builder.Add(name + "/" + activation.op, *std::move(kind), x);
  builder.Fail(Annotate(status, name));
  return kNoValue;
}

}  // namespace ringmaster::graph::layers
