// A program as text of StableHLO, the language that plugins of PJRT compile (docs/tpu.md): forward
// and backward as autodiff made them, policies as casts, dropout from our own Philox. One module a
// program; its main function takes arguments and gives results in the order that stands beside the
// text. A value, a function of its arguments; thread-safe. It knows no plugin and no device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "common/graph/program.h"
#include "common/status.h"

namespace ringmaster::pjrt {

// Of arguments and results: what crosses between the host and a device, dense and row-major.
enum class ElementType : uint8_t { kInt32, kUInt32, kFloat32 };  // 4 bytes, all of them

struct Argument {
  enum class Kind : uint8_t {
    kColumn,          // rows of Program::columns[index]
    kSeed,            // Program::seeds[index], with its weight; scalar
    kShare,           // ShardInput::share; scalar
    kRows,            // int32 scalar: how many rows are samples, from the first one on
    kDropout,         // uint32 (N, 4): key and upper counter words of each row's stream in
                      // Module::dropout_layers[index] (PhiloxStream)
    kParameter,       // the master values of Program::parameters[index]
    kFrozen,          // likewise, of Program::frozen[index]
    kMovingMean,      // of Program::normalizations[index]
    kMovingVariance,  // likewise
  };
  Kind kind = Kind::kColumn;
  size_t index = 0;
  ElementType type = ElementType::kFloat32;
  graph::Shape shape;

  [[nodiscard]] size_t bytes() const { return 4 * static_cast<size_t>(graph::Elements(shape)); }
};

// All of them float32.
struct Result {
  enum class Kind : uint8_t { kScalar, kRows, kBatchMean, kBatchVariance, kGradient };
  Kind kind = Kind::kScalar;
  size_t index = 0;  // in Program::scalars, rows, normalizations; canonical number of a parameter
  graph::Shape shape;

  [[nodiscard]] size_t bytes() const { return 4 * static_cast<size_t>(graph::Elements(shape)); }
};

struct Module {
  std::string text;
  std::vector<Argument> arguments;
  std::vector<Result> results;              // gradients last, in the program's gradient_order
  std::vector<std::string> dropout_layers;  // names that key their streams
};

// kSome: an argument says how many rows are samples. What the others hold, which must be finite,
// reaches no scalar, no gradient and no statistic; their rows of predictions mean nothing.
enum class Rows : uint8_t { kAll, kSome };

// What a convolution of 16-bit operands gives: its float32 sums; or those as they are stored, in 16
// bits, for a compiler that would widen operands to give the others. Gradients of weights are
// float32 all the same.
enum class Convolutions : uint8_t { kFloat32, kStored };

// UNIMPLEMENTED names op and node where an op has no emitter.
[[nodiscard]] StatusOr<Module> Emit(const graph::Program& program, Rows rows,
                                    Convolutions convolutions = Convolutions::kFloat32);

}  // namespace ringmaster::pjrt
