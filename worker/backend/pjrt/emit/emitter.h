// The seam inside the emitter: an emit function writes one node through an EmitContext, which knows
// what every value is called, which rows are samples, and how types change. One context belongs to
// one Emit; thread-compatible.
//
// Ops compute in float32 and round once, when a value is stored: what they read is widened first.
// A convolution whose sums come in 16 bits (Convolutions::kStored) rounds once more in front of its
// bias and relu.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/graph/program.h"
#include "worker/backend/pjrt/emit/builder.h"
#include "worker/backend/pjrt/emit/emit.h"

namespace ringmaster::pjrt {

class EmitContext {
 public:
  EmitContext(const graph::Program& program, Convolutions convolutions, Builder* builder)
      : program_(program),
        convolutions_(convolutions),
        builder_(*builder),
        values_(program.graph.values().size()) {}

  // What is fed. `rows`: a scalar int32, how many rows are samples; without it all are.
  void SetFed(graph::ValueId id, const Tensor& argument);
  void SetRows(const Tensor& rows) { rows_ = rows; }
  void SetDropoutKeys(const std::string& layer, const Tensor& keys) { keys_[layer] = keys; }
  // What follows is written for that node. One that runs again reads values of their
  // own: a compiler would take it for the node that ran before, and keep what that made.
  void Enter(const graph::Node& node);

  [[nodiscard]] Builder& builder() { return builder_; }
  [[nodiscard]] const graph::Node& node() const { return *node_; }
  [[nodiscard]] const graph::Value& input(size_t i) const {
    return program_.graph.value(node_->inputs[i]);
  }
  [[nodiscard]] const graph::Value& output(size_t i) const {
    return program_.graph.value(node_->outputs[i]);
  }
  template <typename T>
  [[nodiscard]] const T& attributes() const {
    return *node_->attributes<T>();
  }

  [[nodiscard]] bool Knows(graph::ValueId id) const {
    return values_[static_cast<size_t>(id)].has_value();
  }
  [[nodiscard]] const Tensor& At(graph::ValueId id) const {
    return *values_[static_cast<size_t>(id)];
  }
  // An operand as it is stored, and in float32.
  [[nodiscard]] const Tensor& In(size_t i) const {
    return apart_.empty() ? At(node_->inputs[i]) : apart_[i];
  }
  [[nodiscard]] Tensor Wide(size_t i) { return builder_.Convert(In(i), ElementKind::kFloat32); }
  // What a convolution gives whose result becomes output i, unless that is a gradient of weights.
  [[nodiscard]] ElementKind Convolved(size_t i) const {
    return convolutions_ == Convolutions::kStored ? ElementOf(output(i).dtype)
                                                  : ElementKind::kFloat32;
  }
  // Stores a result in the type of its value.
  void Out(size_t i, const Tensor& result);

  // x with zeros in the rows that are no samples. Where a gradient is summed over rows it needs
  // none of this: what flows into a net from its losses is masked there and by batch norms, which
  // alone let rows touch each other, and every other op keeps zeros of a row zeros.
  [[nodiscard]] Tensor OnlySamples(const Tensor& x);
  // How many samples there are, times `each`: a scalar float32.
  [[nodiscard]] Tensor SampleCount(int64_t each);
  // labels(N) -> the label of the next row, of the first one behind the last sample.
  [[nodiscard]] Tensor NextRow(const Tensor& labels);

  // uint32 (N,4): keys and upper counter words of a layer's streams.
  [[nodiscard]] const Tensor& DropoutKeys(const std::string& layer) const {
    return keys_.at(layer);
  }
  // What was made under that key before, else what `make` makes now.
  [[nodiscard]] Tensor Once(const std::string& key, const std::function<Tensor()>& make);

 private:
  const graph::Program& program_;
  const Convolutions convolutions_;
  Builder& builder_;
  std::vector<std::optional<Tensor>> values_;  // by ValueId
  std::optional<Tensor> rows_;
  std::map<std::string, Tensor> keys_, once_;
  const graph::Node* node_ = nullptr;
  std::vector<Tensor> apart_;  // its operands, where it runs again
};

using EmitOp = void(EmitContext& context);
using EmitFunction = EmitOp*;

// The row of an op in emitter_table.cc; nullptr when there is no emitter.
[[nodiscard]] EmitFunction FindEmitter(const graph::Kind& kind);

}  // namespace ringmaster::pjrt
