// Small programs that have every layer a model can have. For tests of autodiff, passes and plans.
#pragma once

#include <string>

#include "common/graph/layers/layer_list.h"
#include "common/graph/layers/losses.h"
#include "common/graph/message/message.h"

namespace ringmaster::testing {

// Logits (N, classes) against the column label: a loss `loss` and the measure accuracy.
inline void AddClassifierOutputs(graph::GraphBuilder& builder, graph::ValueId logits) {
  using Role = graph::Output::Role;
  if (!builder.Expect("loss", logits, 2)) return;
  const auto add = [&](const char* name, Role role, const char* kind) {
    builder.Fail(graph::layers::AddOutput(builder, name, *graph::layers::FindOutput(role, kind), {},
                                          logits, "label"));
  };
  add("loss", Role::kLoss, "softmax_cross_entropy");
  add("accuracy", Role::kMeasure, "accuracy");
}

// What the builder has for training; for inference the program of its message.
inline StatusOr<graph::Program> FinishFor(graph::Mode mode, int64_t samples,
                                          graph::GraphBuilder* builder) {
  auto program = builder->Finish();
  if (mode == graph::Mode::kTraining || !program.ok()) return program;
  return graph::FromMessage(graph::ToMessage(*program), mode, samples);
}

// conv, batch_norm, relu, max_pool, strided conv with bias, relu, global average pool, dropout,
// dense.
inline StatusOr<graph::Program> SmallConvolutional(graph::Mode mode, int64_t samples) {
  namespace layers = graph::layers;
  graph::GraphBuilder builder(samples);
  graph::ValueId x = builder.Input(6, 5, 2);
  x = builder.Add("conv1", layers::Conv2d{.filters = 4, .bias = false}, x);
  x = builder.Add("bn1", layers::BatchNorm{}, x);
  x = builder.Add("relu1", graph::Relu{}, x);
  x = builder.Add("pool1", layers::MaxPool{}, x);
  x = builder.Add("conv2", layers::Conv2d{.filters = 3, .stride = 2}, x);
  x = builder.Add("relu2", graph::Relu{}, x);
  x = builder.Add("pool2", graph::GlobalAveragePool{}, x);
  x = builder.Add("dropout", layers::Dropout{0.25}, x);
  x = builder.Add("fc", layers::Dense{.units = 3}, x);
  AddClassifierOutputs(builder, x);
  return FinishFor(mode, samples, &builder);
}

// Two convolutions and two dense layers with one kernel each pair; the last layer is float32.
inline StatusOr<graph::Program> SmallShared(graph::Mode mode, int64_t samples) {
  namespace layers = graph::layers;
  graph::GraphBuilder builder(samples);
  const auto share = [&](graph::GraphBuilder::Manner manner) {
    builder.Fail(builder.SetManner(std::move(manner)));
  };
  graph::ValueId x = builder.Add("conv1", layers::Conv2d{.filters = 2}, builder.Input(4, 3, 2));
  share({.shared = {{"kernel", "conv1/kernel"}}});
  x = builder.Add("conv2", layers::Conv2d{.filters = 2, .activation = "tanh"}, x);
  share({});
  x = builder.Add("flatten", layers::Flatten{}, x);
  x = builder.Add("dense1", layers::Dense{.units = 24}, x);
  share({.shared = {{"kernel", "dense1/kernel"}, {"bias", "dense1/bias"}}});
  x = builder.Add("dense2", layers::Dense{.units = 24}, x);
  share({.float32 = true});
  x = builder.Add("fc", layers::Dense{.units = 3}, x);
  share({});
  AddClassifierOutputs(builder, x);
  return FinishFor(mode, samples, &builder);
}

// Blocks of which a batch_norm ends in an add: with what came before as its first operand and as
// its second, with another batch_norm; the last one without relu.
inline StatusOr<graph::Program> SmallResidual(graph::Mode mode, int64_t samples) {
  namespace layers = graph::layers;
  graph::GraphBuilder builder(samples);
  const auto norm = [&](const std::string& name, int stride, graph::ValueId x) {
    x = builder.Add(name + "/conv", layers::Conv2d{.filters = 4, .stride = stride, .bias = false},
                    x);
    return builder.Add(name + "/bn", layers::BatchNorm{}, x);
  };
  graph::ValueId x = builder.Input(5, 4, 2);
  x = builder.Add("stem/relu", graph::Relu{}, norm("stem", 1, x));
  x = builder.Add("first/add", graph::Add{}, {x, norm("first", 1, x)});
  x = builder.Add("first/relu", graph::Relu{}, x);
  const graph::ValueId shortcut = norm("shortcut", 2, x);
  x = builder.Add("both/add", graph::Add{}, {shortcut, norm("both", 2, x)});
  x = builder.Add("both/relu", graph::Relu{}, x);
  x = builder.Add("last/add", graph::Add{}, {norm("last", 1, x), x});
  x = builder.Add("pool", graph::GlobalAveragePool{}, x);
  x = builder.Add("fc", layers::Dense{.units = 3}, x);
  AddClassifierOutputs(builder, x);
  return FinishFor(mode, samples, &builder);
}

// A block as EfficientNets have it, with its stem: convolutions with batch_norm and swish, one of
// them depthwise, squeeze and excitation with a swish of its own, drop-connect in front of an add.
inline StatusOr<graph::Program> SmallEfficient(graph::Mode mode, int64_t samples) {
  namespace layers = graph::layers;
  graph::GraphBuilder builder(samples);
  const auto norm = [&](const std::string& name, const auto& convolution, graph::ValueId x) {
    x = builder.Add(name + "/conv", convolution, x);
    return builder.Add(name + "/bn", layers::BatchNorm{}, x);
  };
  const auto swish = [&](const std::string& name, const auto& convolution, graph::ValueId x) {
    return builder.Add(name + "/swish", graph::Swish{}, norm(name, convolution, x));
  };
  const layers::Conv2d wide = {.filters = 8, .kernel = 1, .bias = false};
  const layers::Conv2d narrow = {.filters = 4, .kernel = 1, .bias = false};
  const graph::ValueId stem = swish("stem", narrow, builder.Input(6, 5, 2));
  graph::ValueId x = swish("expand", wide, stem);
  x = swish("depthwise", layers::DepthwiseConv2d{.bias = false}, x);
  x = builder.Add("excite", layers::SqueezeExcite{.filters = 2}, x);
  x = norm("project", narrow, x);
  x = builder.Add("drop", layers::Dropout{.rate = 0.1, .per_sample = true}, x);
  x = builder.Add("add", graph::Add{}, {x, stem});
  x = builder.Add("pool", graph::GlobalAveragePool{}, x);
  x = builder.Add("fc", layers::Dense{.units = 3}, x);
  AddClassifierOutputs(builder, x);
  return FinishFor(mode, samples, &builder);
}

// flatten, dense with relu and dropout, dense.
inline StatusOr<graph::Program> SmallPerceptron(graph::Mode mode, int64_t samples) {
  namespace layers = graph::layers;
  graph::GraphBuilder builder(samples);
  graph::ValueId x = builder.Add("flatten", layers::Flatten{}, builder.Input(3, 3, 1));
  x = builder.Add("dense1", layers::Dense{.units = 5}, x);
  x = builder.Add("relu1", graph::Relu{}, x);
  x = builder.Add("dropout1", layers::Dropout{0.25}, x);
  x = builder.Add("fc", layers::Dense{.units = 3}, x);
  AddClassifierOutputs(builder, x);
  return FinishFor(mode, samples, &builder);
}

}  // namespace ringmaster::testing
