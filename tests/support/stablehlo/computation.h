// A function or a region in the form in which it runs: ops with numbered values, each freed behind
// its last use. Compile checks names, types and attributes; Run checks nothing. Immutable; Run is
// thread-safe.
#pragma once

#include <functional>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "tests/support/stablehlo/interpreter.h"
#include "tests/support/stablehlo/syntax.h"
#include "tests/support/stablehlo/tensor.h"

namespace ringmaster::testing::stablehlo {

using Inputs = std::span<const Tensor* const>;
// Of the types that the op declares; bytes are anything, or those of the first operand where the
// kernel may work in place. A kernel writes all of them.
using Outputs = std::span<Tensor>;

struct Kernel {
  std::function<void(Inputs inputs, Outputs outputs)> run;
  // An output element depends on no operand's element elsewhere: the output may take the place of
  // an operand that nobody reads again.
  bool in_place = false;

  Kernel() = default;
  template <typename Function>
  Kernel(Function run,
         bool in_place = false)  // NOLINT(google-explicit-constructor): a kernel is what it runs
      : run(std::move(run)), in_place(in_place) {}
};

class Computation {
 public:
  // `terminator`: func.return or stablehlo.return; `outer`: names that are visible around a region,
  // which it may neither use nor hide.
  [[nodiscard]] static StatusOr<std::unique_ptr<Computation>> Compile(
      const RegionText& region, const std::string& terminator, const std::set<std::string>& outer);

  [[nodiscard]] std::vector<Tensor> Run(Inputs arguments) const;

  [[nodiscard]] const std::vector<TensorType>& arguments() const { return arguments_; }
  [[nodiscard]] const std::vector<TensorType>& results() const { return results_; }
  [[nodiscard]] size_t operations() const { return instructions_.size(); }
  [[nodiscard]] Position end() const { return end_; }

  // `stablehlo.add` where the computation is that op of its two arguments and nothing else; else
  // empty. `swapped`: of the second and the first.
  [[nodiscard]] const std::string& only_op() const { return only_op_; }
  [[nodiscard]] bool swapped() const { return swapped_; }
  // comparison_direction of only_op() compare.
  [[nodiscard]] const std::string& direction() const { return direction_; }

  [[nodiscard]] Memory memory(Module::Padding padding) const;

 private:
  struct Instruction {
    Kernel kernel;
    std::vector<uint32_t> operands;
    uint32_t first = 0;  // number of its first result
    std::vector<TensorType> results;
    std::vector<uint32_t> dead;  // values that nobody reads behind it
    bool in_place = false;       // into the memory of operands[0]
    Tensor constant;             // of an op without a kernel
  };
  struct Compiler;

  void PlanLives();
  std::vector<Tensor> Returned(const std::vector<const Tensor*>& values,
                               std::vector<Tensor>* owned) const;
  void FindOnlyOp(const RegionText& region);

  std::vector<TensorType> arguments_;
  std::vector<TensorType> results_;
  std::vector<TensorType> values_;
  std::vector<Instruction> instructions_;
  std::vector<uint32_t> returned_;
  Position end_;
  std::string only_op_;
  std::string direction_;
  bool swapped_ = false;
};

}  // namespace ringmaster::testing::stablehlo
