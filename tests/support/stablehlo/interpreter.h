// StableHLO without a compiler: checks a module's text (generic form, one function @main) op by op
// and runs it on this thread. It reads nothing but the text, so that what our emitter writes is
// judged by someone who never saw the graph: operand and result types of every op are compared with
// the op's own rule from the StableHLO specification. The same input gives the same bits. A parsed
// module is immutable; Run is thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/status.h"
#include "tests/support/stablehlo/tensor.h"

namespace ringmaster::testing::stablehlo {

class Computation;

// Bytes of one run. `temporary`: the most that values other than arguments and outputs take
// between two ops; each is freed behind its last use.
struct Memory {
  size_t arguments = 0;
  size_t outputs = 0;
  size_t temporary = 0;
  size_t generated_code = 0;
};

class Module {
 public:
  // INVALID_ARGUMENT with line, column and op for text that is not StableHLO, for an op whose types
  // do not fit, and for one that the interpreter lacks.
  [[nodiscard]] static StatusOr<std::unique_ptr<Module>> Parse(const std::string& text);
  ~Module();

  // INVALID_ARGUMENT for arguments of other types than arguments().
  [[nodiscard]] StatusOr<std::vector<Tensor>> Run(std::span<const Tensor> arguments) const;
  // Likewise, of tensors that lie elsewhere.
  [[nodiscard]] StatusOr<std::vector<Tensor>> Run(std::span<const Tensor* const> arguments) const;

  [[nodiscard]] const std::vector<TensorType>& arguments() const { return arguments_; }
  [[nodiscard]] const std::vector<TensorType>& results() const { return results_; }
  // For each argument, the result whose memory it may become (tf.aliasing_output).
  [[nodiscard]] const std::vector<std::optional<size_t>>& aliases() const { return aliases_; }
  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] size_t operations() const;

  enum class Padding : uint8_t { kNone, kTiles };  // see TensorType::tiled_bytes
  [[nodiscard]] Memory memory(Padding padding) const;

 private:
  Module();

  std::string name_;
  std::vector<TensorType> arguments_;
  std::vector<TensorType> results_;
  std::vector<std::optional<size_t>> aliases_;
  std::unique_ptr<Computation> main_;
};

}  // namespace ringmaster::testing::stablehlo
