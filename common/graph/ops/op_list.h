// The only list of ops: the place of each in it is its number, which never leaves a process. Tables
// of ops, here and in backends, are made of it. Constants; thread-safe.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <type_traits>
#include <utility>
#include <variant>

#include "common/graph/ops/batch_norm.h"
#include "common/graph/ops/broadcast.h"
#include "common/graph/ops/conv2d.h"
#include "common/graph/ops/dense.h"
#include "common/graph/ops/dropout.h"
#include "common/graph/ops/group_norm.h"
#include "common/graph/ops/pair_loss.h"
#include "common/graph/ops/pool.h"
#include "common/graph/ops/shape.h"
#include "common/graph/ops/softmax.h"
#include "common/graph/ops/unary.h"

namespace ringmaster::graph {

// What a node does, with its attributes. By name, which is how people find them; a row is an op
// with its gradients.
using Kind = std::variant<                                       //
    Add,                                                         //
    AveragePool, AveragePoolGradient,                            //
    BatchNorm, BatchNormGradient, BatchNormInference,            //
    BatchNormInferenceGradient,                                  //
    BinaryAccuracy,                                              //
    Cast,                                                        //
    Concat,                                                      //
    Conv2d, Conv2dInputGradient, Conv2dWeightGradient,           //
    Dense, DenseInputGradient, DenseWeightGradient,              //
    Dropout, DropoutGradient,                                    //
    Elu, UnaryGradient<Elu>,                                     //
    Gelu, UnaryGradient<Gelu>,                                   //
    GlobalAveragePool, GlobalAveragePoolGradient,                //
    GlobalMaxPool,                                               //
    GroupNorm, GroupNormGradient,                                //
    HardSigmoid, UnaryGradient<HardSigmoid>,                     //
    HardSwish, UnaryGradient<HardSwish>,                         //
    Huber, PairLossGradient<Huber>,                              //
    LayerNorm, LayerNormGradient,                                //
    LeakyRelu, UnaryGradient<LeakyRelu>,                         //
    MaxPool, MaxPoolGradient,                                    //
    MeanAbsoluteError, PairLossGradient<MeanAbsoluteError>,      //
    MeanSquaredError, PairLossGradient<MeanSquaredError>,        //
    Multiply,                                                    //
    Pad,                                                         //
    ReduceTo,                                                    //
    Relu, ReluGradient,                                          //
    Relu6, UnaryGradient<Relu6>,                                 //
    Reshape,                                                     //
    Sigmoid, UnaryGradient<Sigmoid>,                             //
    SigmoidCrossEntropy, PairLossGradient<SigmoidCrossEntropy>,  //
    Slice,                                                       //
    Softmax, SoftmaxGradient,                                    //
    SoftmaxCrossEntropy, SoftmaxCrossEntropyGradient,            //
    Softplus, UnaryGradient<Softplus>,                           //
    Split,                                                       //
    Swish, UnaryGradient<Swish>,                                 //
    Tanh, UnaryGradient<Tanh>,                                   //
    TopK>;

inline constexpr size_t kOpCount = std::variant_size_v<Kind>;

template <typename Op, typename... Ops>
consteval size_t PlaceIn(std::type_identity<std::variant<Ops...>>) {
  size_t place = 0;
  const bool found = ((std::is_same_v<Op, Ops> || (++place, false)) || ...);
  return found ? place : throw "this op is not in the list";
}
// The op's number.
template <typename Op>
inline constexpr size_t kIdOf = PlaceIn<Op>(std::type_identity<Kind>());

// One for each op, in their order: make(std::type_identity<Op>()).
template <typename Make>
[[nodiscard]] constexpr auto ForEachOp(const Make& make) {
  return [&]<size_t... i>(std::index_sequence<i...>) {
    return std::array{make(std::type_identity<std::variant_alternative_t<i, Kind>>())...};
  }
  (std::make_index_sequence<kOpCount>());
}

[[nodiscard]] inline const OpTraits& TraitsOf(const Kind& kind) {
  static constexpr auto kTraits =
      ForEachOp([]<typename Op>(std::type_identity<Op>) { return &Op::kTraits; });
  return *kTraits[kind.index()];
}

// Each stands for every op of a family and their gradients in a kernel table.
struct PairLossFamily {};
struct UnaryFamily {};
inline constexpr size_t kPairLossFamily = kOpCount, kUnaryFamily = kOpCount + 1;

// A backend's kernels, one row an op: what they are made by, by the op's number.
template <typename Bind>
struct KernelRow {
  size_t op;  // or one of the families
  Bind bind;
};
template <typename Op, typename Bind>
[[nodiscard]] constexpr KernelRow<Bind> KernelOf(Bind bind) {
  if constexpr (std::is_same_v<Op, PairLossFamily>) {
    return {kPairLossFamily, bind};
  } else if constexpr (std::is_same_v<Op, UnaryFamily>) {
    return {kUnaryFamily, bind};
  } else {
    return {kIdOf<Op>, bind};
  }
}
template <typename Bind>
[[nodiscard]] constexpr std::array<Bind, kOpCount> MakeKernelTable(
    std::initializer_list<KernelRow<Bind>> rows) {
  constexpr auto kFamily = ForEachOp([]<typename Op>(std::type_identity<Op>) {
    if (PairLossOp<Op> || PairLossGradientOp<Op>) return kPairLossFamily;
    return UnaryOp<Op> || UnaryGradientOp<Op> ? kUnaryFamily : kIdOf<Op>;
  });
  std::array<Bind, kOpCount> table{};
  for (const KernelRow<Bind>& row : rows) {
    for (size_t op = 0; op < kOpCount; ++op) {
      if (row.op == op || row.op == kFamily[op]) table[op] = row.bind;
    }
  }
  return table;
}

}  // namespace ringmaster::graph
