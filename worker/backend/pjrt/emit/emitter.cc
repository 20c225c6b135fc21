#include "worker/backend/pjrt/emit/emitter.h"

#include <fmt/format.h>

#include <algorithm>

namespace ringmaster::pjrt {

void EmitContext::SetFed(graph::ValueId id, const Tensor& argument) {
  const ElementKind element = ElementOf(program_.graph.value(id).dtype);
  values_[static_cast<size_t>(id)] = builder_.Convert(argument, element);
}

void EmitContext::Enter(const graph::Node& node) {
  node_ = &node;
  builder_.SetScope(node.name);
  apart_.clear();
  if (!node.again) return;
  const auto made_again = [&](graph::ValueId id) {
    const graph::NodeId producer = program_.graph.value(id).producer;
    return producer != graph::kFed && program_.graph.node(producer).again;
  };
  // One that reads such values is no copy of another.
  if (std::ranges::any_of(node.inputs, made_again)) return;
  for (const graph::ValueId id : node.inputs) apart_.push_back(At(id));
  apart_ = builder_.Apart(apart_);
}

void EmitContext::Out(size_t i, const Tensor& result) {
  values_[static_cast<size_t>(node_->outputs[i])] =
      builder_.Convert(result, ElementOf(output(i).dtype));
}

Tensor EmitContext::Once(const std::string& key, const std::function<Tensor()>& make) {
  const auto found = once_.find(key);
  if (found != once_.end()) return found->second;
  return once_[key] = make();
}

Tensor EmitContext::OnlySamples(const Tensor& x) {
  if (!rows_) return x;
  const int64_t rows = x.shape[0];
  const Tensor samples = Once(fmt::format("samples of {}", rows), [&] {
    const Tensor row = builder_.Iota(0, {rows}, ElementKind::kInt32);
    return builder_.Compare("LT", row, builder_.Fill(*rows_, {rows}));
  });
  const Tensor mask = Once(fmt::format("samples of {}", fmt::join(x.shape, "x")),
                           [&] { return builder_.Broadcast(samples, x.shape, {0}); });
  return builder_.Select(mask, x, builder_.Zero(x.shape, x.element));
}

Tensor EmitContext::SampleCount(int64_t each) {
  // The product of the float32s is the float32 of the product: both paths divide by the same.
  if (!rows_) return builder_.Constant(static_cast<double>(program_.samples * each));
  return builder_.Multiply(builder_.Convert(*rows_, ElementKind::kFloat32),
                           builder_.Constant(static_cast<double>(each)));
}

Tensor EmitContext::NextRow(const Tensor& labels) {
  const int64_t rows = labels.shape[0];
  const Tensor first = builder_.Slice(labels, {0}, {1});
  if (rows == 1) return first;
  const Tensor next = builder_.Concatenate({builder_.Slice(labels, {1}, {rows}), first}, 0);
  if (!rows_) return next;
  const Tensor one = builder_.Integer(1, {}, ElementKind::kInt32);
  const Tensor last = builder_.Fill(builder_.Subtract(*rows_, one), {rows});
  const Tensor is_last =
      builder_.Compare("EQ", builder_.Iota(0, {rows}, ElementKind::kInt32), last);
  return builder_.Select(is_last, builder_.Broadcast(first, {rows}, {0}), next);
}

}  // namespace ringmaster::pjrt
