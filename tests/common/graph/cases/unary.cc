#include "tests/common/graph/cases/table.h"

namespace ringmaster::graph {

std::vector<OpCase> ReluCases() {
  std::vector<OpCase> cases = {
      {"any shape", Relu{}, {{{3, 5, 2}}}},
      {"odd shape", Relu{}, {{{3, 5, 7}}}},
      {"odd shape", ReluGradient{}, {{{3, 5, 7}}, {{3, 5, 7}}}},
      {"whole vectors", ReluGradient{}, {{{1, 8192}}, {{1, 8192}}}},
  };
  for (int64_t count : kElementCounts) {
    const TensorType x = {{1, count}};
    const std::string what = std::to_string(count) + " elements";
    cases.push_back({.what = what, .kind = Relu{}, .inputs = {x}, .same_bits = true});
    cases.push_back({.what = what, .kind = ReluGradient{}, .inputs = {x, x}, .same_bits = true});
  }
  return cases;
}

// kFloat32 being every type in turn, the sweeps together reach each pair.
std::vector<OpCase> CastCases() {
  constexpr DType kSwept = DType::kFloat32;
  std::vector<OpCase> cases = {
      {"to the same type", Cast{}, {{{3, 4}}}, {{{}, kSwept}}},
      {"many rows", Cast{}, {{{9001}}}, {{{}, kSwept}}},
  };
  struct {
    DType from, to;
  } constexpr pairs[] = {{kSwept, kSwept},
                         {kSwept, DType::kBFloat16},
                         {kSwept, DType::kFloat16},
                         {DType::kBFloat16, kSwept},
                         {DType::kFloat16, kSwept}};
  for (const auto& [from, to] : pairs) {
    for (int64_t count : kElementCounts) {
      cases.push_back({.what = fmt::format("{} elements, {} to {}", count, Name(from), Name(to)),
                       .kind = Cast{},
                       .inputs = {{{1, count}, from}},
                       .wanted = {{{1, count}, to}},
                       .same_bits = true});
    }
  }
  return cases;
}

namespace {

// To -8 .. 8, where every function bends; exact in any type.
void Wide(const OpCase& self, OpCase::Operands* operands) {
  const size_t arguments = self.inputs.size() == 1 ? 1 : self.inputs.size() - 1;
  for (size_t i = 0; i < arguments; ++i) {
    for (double& value : (*operands)[i]) value *= 8;
  }
}

// Where a gradient reads y, what y may be: 0 .. 1.
void Positive(const OpCase&, OpCase::Operands* operands) {
  for (double& value : operands->front()) value = value < 0 ? -value : value;
}

template <typename Op>
void AddOpAndGradient(const std::string& what, const Op& op, std::vector<OpCase>* cases) {
  const std::vector<TensorType> read(UnaryGradient<Op>::kDy + 1, {{3, 5, 7}});
  const std::vector<TensorType> tail(UnaryGradient<Op>::kDy + 1, {{2, 4099}});
  const std::string said = what.empty() ? "" : what + ", ";
  const UnaryGradient<Op> gradient = {op};
  cases->push_back({said + "odd shape", op, {{{3, 5, 7}}}});
  cases->push_back({.what = said + "wide", .kind = op, .inputs = {{{4, 37}}}, .prepare = Wide});
  cases->push_back({said + "a tail after many packets", op, {{{2, 4099}}}});
  cases->push_back(
      {.what = said + "odd shape", .kind = gradient, .inputs = read, .prepare = Positive});
  cases->push_back({.what = said + "wide", .kind = gradient, .inputs = read, .prepare = Wide});
  cases->push_back({said + "a tail after many packets", gradient, tail});
}

}  // namespace

std::vector<OpCase> UnaryCases() {
  std::vector<OpCase> cases;
  AddOpAndGradient("", Elu{}, &cases);
  AddOpAndGradient("alpha", Elu{0.25}, &cases);
  AddOpAndGradient("", Gelu{}, &cases);
  AddOpAndGradient("tanh", Gelu{Gelu::Approximate::kTanh}, &cases);
  AddOpAndGradient("", HardSigmoid{}, &cases);
  AddOpAndGradient("", HardSwish{}, &cases);
  AddOpAndGradient("", LeakyRelu{}, &cases);
  AddOpAndGradient("no slope", LeakyRelu{0}, &cases);
  AddOpAndGradient("", Relu6{}, &cases);
  AddOpAndGradient("", Sigmoid{}, &cases);
  AddOpAndGradient("", Softplus{}, &cases);
  AddOpAndGradient("", Swish{}, &cases);
  AddOpAndGradient("", Tanh{}, &cases);
  return cases;
}

}  // namespace ringmaster::graph
