// What a layer kind is made of: a struct whose options are members, described by Fields(), with
//
//   static constexpr const char* kName;
//   static constexpr const char* kHelp;
//   ValueId Build(GraphBuilder&, const std::string& name, ValueId x) const;
//
// which adds its parameters, LAYER/ROLE, and its nodes, in their order. layer_list.h lists them;
// whatever op is not there is a layer by itself. The first option is the one that may stand alone,
// as in `dense: 10`; one whose default is out of its range is required. Here are the types of
// options that several share. A layer whose parameters may be another's instead says which:
//
//   static constexpr const char* kRoles[] = {"kernel", "bias"};
//
// Values; thread-safe.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <tuple>

#include "common/fields.h"
#include "common/graph/builder.h"
#include "ringmaster/v1/graph.pb.h"

namespace ringmaster::graph::layers {

// Of height and width; one number stands for both.
struct Pair {
  int64_t height, width;
  constexpr Pair(int64_t both) : Pair(both, both) {}
  constexpr Pair(int64_t height, int64_t width) : height(height), width(width) {}
  bool operator==(const Pair&) const = default;
};
[[nodiscard]] std::string ToText(const Pair& pair);
[[nodiscard]] std::string ToText(const std::optional<Pair>& pair);
[[nodiscard]] inline std::array<int64_t, 2> NumbersOf(const Pair& pair) {
  return {pair.height, pair.width};
}
[[nodiscard]] inline std::array<int64_t, 2> NumbersOf(const std::optional<Pair>& pair) {
  return NumbersOf(pair.value_or(1));
}
[[nodiscard]] inline const char* TypeWords(const Pair&) {
  return "whole number or [height, width]";
}
[[nodiscard]] inline const char* TypeWords(const std::optional<Pair>&) {
  return "whole number or [height, width]";
}
// What is longer is a mistake; sums and products of a few such lengths do not wrap.
inline constexpr Range kLength = {.min = 1, .max = 1024};
inline constexpr Range kCount = {.min = 1, .max = 1 << 24};  // of filters, units, parts
inline constexpr Range kMargin = {.min = 0, .max = 1024};

// Zeros round an image. kSame: ceil(input / stride) outputs, the odd pad below and to the right.
struct Padding {
  enum class Kind : uint8_t { kSame, kValid, kNumbers };
  Kind kind = Kind::kNumbers;
  std::array<int64_t, 4> numbers = {};  // top, left, bottom, right

  constexpr Padding(Kind kind) : kind(kind) {}
  constexpr Padding(int64_t all) : numbers{all, all, all, all} {}
  constexpr Padding(int64_t height, int64_t width) : numbers{height, width, height, width} {}
  constexpr Padding(std::array<int64_t, 4> numbers) : numbers(numbers) {}
  bool operator==(const Padding&) const = default;
};
inline constexpr Padding kSame = Padding::Kind::kSame;
inline constexpr Padding kValid = Padding::Kind::kValid;
[[nodiscard]] std::string ToText(const Padding& padding);  // same, valid, [0, 0, 1, 1]
[[nodiscard]] inline std::array<int64_t, 4> NumbersOf(const Padding& padding) {
  return padding.numbers;
}
[[nodiscard]] inline const char* TypeWords(const Padding&) {
  return "same, valid, a whole number, [height, width] or [top, left, bottom, right]";
}

// The pads of windows of that extent, dilation included, on images (N,H,W,C).
[[nodiscard]] std::array<int64_t, 4> PadsOf(const Padding& padding, const Shape& x, Pair extent,
                                            Pair stride);

// How a parameter starts; the fans are known when the layer is built. glorot: Glorot and Bengio,
// 2010; he: He, Zhang, Ren and Sun, 2015; lecun: LeCun and others, 1998. The normal ones of these
// are cut at two deviations and have the variance that they would have uncut, as Keras' have.
struct Initial {
  enum class Rule : uint8_t {
    kConstant,
    kUniform,
    kNormal,
    kTruncatedNormal,
    kGlorotUniform,
    kGlorotNormal,
    kHeUniform,
    kHeNormal,
    kHeNormalOut,  // by what a kernel makes, not by what it reads
    kLecunUniform,
    kLecunNormal,
  };
  Rule rule = Rule::kConstant;
  double value = 0;  // of the first four: as Initializer's scale

  [[nodiscard]] Initializer Resolve(int64_t fan_in, int64_t fan_out) const;
  bool operator==(const Initial&) const = default;
};
inline constexpr Initial kZeros = {}, kOnes = {Initial::Rule::kConstant, 1};
inline constexpr Initial kGlorotUniform = {Initial::Rule::kGlorotUniform};
inline constexpr Initial kHeNormal = {Initial::Rule::kHeNormal};
inline constexpr Initial kHeNormalOut = {Initial::Rule::kHeNormalOut};
[[nodiscard]] std::string ToText(const Initial& initial);  // he_normal, {uniform: 0.05}
// Names of the rules, by number; the first four have a value.
[[nodiscard]] std::span<const char* const> InitialNames();
inline constexpr size_t kInitialsOfValue = 4;
[[nodiscard]] std::string TypeWords(const Initial&);

// Of a normal distribution that is cut at two deviations, so that what is left has variance 1.
inline constexpr double kCutDeviation = 0.87962566103423978;

// An elementwise op or softmax behind a layer, with options of its own: relu, {leaky_relu: 0.1},
// {gelu: {approximate: tanh}}.
struct Activation {
  std::string op;  // empty: none
  // One without a name is the op's first.
  google::protobuf::RepeatedPtrField<v1::Attribute> options = {};

  Activation(const char* op = "") : op(op) {}
  bool operator==(const Activation& other) const { return ToText(*this) == ToText(other); }
  friend std::string ToText(const Activation& activation);
};
[[nodiscard]] std::string ToText(const Activation& activation);
[[nodiscard]] inline const char* TypeWords(const Activation&) { return "OP or {OP: {options}}"; }

// That op behind x, as a node NAME/OP; x itself where there is none.
[[nodiscard]] ValueId Activate(GraphBuilder& builder, const std::string& name, ValueId x,
                               const Activation& activation);

}  // namespace ringmaster::graph::layers
