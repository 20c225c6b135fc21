// The cases of single ops, which all tests of ops run: numeric gradients (tests/common/graph/ops),
// and every backend against the reference and against itself (tests/worker/backend). A family of
// ops is a file here, named as in common/graph/ops, and a row in table.cc. Thread-safe (free
// functions).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/graph/ops/op_table.h"

namespace ringmaster::graph {

struct OpCase {
  using Operands = std::vector<std::vector<double>>;  // by input

  std::string what;  // sets it apart from the op's others
  Kind kind;
  // kFloat32 stands for the type that a sweep is about, where the op does not keep its input in
  // float32; any other type is that type in every sweep.
  std::vector<TensorType> inputs;
  std::vector<TensorType> wanted = {};  // see ShapeRule; types as in inputs
  int64_t classes = 2;                  // int32 inputs are below; their shape is (rows)
  // Makes operands that random ones would not be, exact in 16 bits where the inputs may be.
  void (*prepare)(const OpCase& self, Operands* operands) = nullptr;
  // No finite differences: the op has no gradient and is none, or the operands stand at a kink.
  bool forward_only = false;
  uint32_t constants = 0;  // bit i: no gradient flows into input i
  bool same_bits = false;  // every backend gives the same bits
};

// Of ops that go element by element: one, fewer than a vector has, a vector, tails, many blocks.
inline constexpr int64_t kElementCounts[] = {1, 7, 8, 1023, 20001};

// Every way to broadcast two operands of one op, in the file of add.
[[nodiscard]] std::vector<OpCase> BroadcastCases(const Kind& kind);

// In the order of table.cc.
[[nodiscard]] const std::vector<OpCase>& AllCases();

// conv2d, same 3x3
[[nodiscard]] std::string NameOf(const OpCase& test);

// The case in a sweep of that type: all types are what they say.
[[nodiscard]] OpCase InType(OpCase test, DType compute);

// Samples: the first extent of the first input.
[[nodiscard]] int64_t RowsOf(const OpCase& test);

// What finite differences take: a case of few elements in all its inputs, whose op has a gradient
// rule.
[[nodiscard]] bool HasFiniteDifferences(const OpCase& test);

// kAwayFromZero: no magnitude under 0.1, since relu has its kink at 0.
enum class Spread : uint8_t { kUniform, kAwayFromZero };

// Random values in [-1, 1), exact in their type; others for another `subject`.
[[nodiscard]] std::vector<double> DrawFloats(const TensorType& type, Spread spread,
                                             uint64_t subject);

// What the case runs on: random values, prepared.
[[nodiscard]] OpCase::Operands DrawOperands(const OpCase& test, Spread spread);

}  // namespace ringmaster::graph
