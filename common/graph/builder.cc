#include "common/graph/builder.h"

#include <algorithm>
#include <utility>

namespace ringmaster::graph {
namespace {

struct Pads {
  int64_t low = 0, high = 0;
};

Pads MakePads(Padding padding, int64_t input, int64_t window, int64_t stride) {
  if (padding == Padding::kValid || stride < 1) return {};
  const int64_t outputs = (input + stride - 1) / stride;
  const int64_t total = std::max<int64_t>((outputs - 1) * stride + window - input, 0);
  return {total / 2, total - total / 2};
}

// Fills stride and pads of Conv2dAttributes or PoolAttributes for an (N,H,W,C) input.
template <typename Attributes, typename Options>
Attributes WindowAttributes(const Options& options, const Shape& x) {
  const Pads rows = MakePads(options.padding, x[1], options.window, options.stride);
  const Pads columns = MakePads(options.padding, x[2], options.window, options.stride);
  Attributes attributes;
  attributes.strides = {options.stride, options.stride};
  attributes.pads = {rows.low, columns.low, rows.high, columns.high};
  return attributes;
}

}  // namespace

GraphBuilder::GraphBuilder(Mode mode, int64_t samples) {
  program_.mode = mode;
  program_.samples = samples;
  if (samples < 1) Fail(InvalidArgument("a program needs at least 1 sample, got {}", samples));
}

ValueId GraphBuilder::Input(int64_t height, int64_t width, int64_t channels) {
  const Shape shape = {program_.samples, height, width, channels};
  if (std::min({height, width, channels}) < 1) {
    Fail(InvalidArgument("images need at least 1 pixel and 1 channel, got {}", ToString(shape)));
  }
  const ValueId image = program_.graph.AddFed("image", shape, DType::kFloat32);
  const ValueId label = program_.graph.AddFed("label", {program_.samples}, DType::kInt32);
  program_.columns = {{"image", image}, {"label", label}};
  return image;
}

ValueId GraphBuilder::Conv2d(const std::string& name, ValueId x, const Conv2dOptions& options) {
  if (!Ready(name, x, 4)) return kNoValue;
  const Shape kernel = {options.filters, options.window, options.window, shape(x)[3]};
  const int64_t area = options.window * options.window;
  Node node = {name, graph::Conv2d{WindowAttributes<Conv2dAttributes>(options, shape(x))}, {x}};
  node.inputs.push_back(AddParameter(name + "/kernel", kernel,
                                     GlorotUniform(area * shape(x)[3], area * options.filters)));
  if (options.bias == Bias::kUse) {
    node.inputs.push_back(AddParameter(name + "/bias", {options.filters}, {}));
  }
  return Add(std::move(node))[0];
}

ValueId GraphBuilder::Dense(const std::string& name, ValueId x, int64_t units, Bias bias) {
  if (!Ready(name, x, 2)) return kNoValue;
  const int64_t features = shape(x)[1];
  Node node = {name, graph::Dense{}, {x}};
  node.inputs.push_back(
      AddParameter(name + "/kernel", {features, units}, GlorotUniform(features, units)));
  if (bias == Bias::kUse) node.inputs.push_back(AddParameter(name + "/bias", {units}, {}));
  return Add(std::move(node))[0];
}

ValueId GraphBuilder::BatchNorm(const std::string& name, ValueId x,
                                const BatchNormOptions& options) {
  if (!Ready(name, x)) return kNoValue;
  const Shape channels = {shape(x).back()};
  Normalization normalization = {name,     channels[0], options.momentum, kNoValue,
                                 kNoValue, kNoValue,    kNoValue};
  const BatchNormAttributes attributes = {.epsilon = options.epsilon, .momentum = options.momentum};
  Node node = {name, graph::BatchNorm{attributes}, {x}};
  node.inputs.push_back(AddParameter(name + "/gamma", channels, {.scale = 1}));
  node.inputs.push_back(AddParameter(name + "/beta", channels, {}));
  if (program_.mode == Mode::kInference) {
    Graph& graph = program_.graph;
    normalization.moving_mean =
        graph.AddFed(normalization.moving_mean_name(), channels, DType::kFloat32);
    normalization.moving_variance =
        graph.AddFed(normalization.moving_variance_name(), channels, DType::kFloat32);
    node.kind = BatchNormInference{attributes};
    node.inputs.push_back(normalization.moving_mean);
    node.inputs.push_back(normalization.moving_variance);
    program_.normalizations.push_back(std::move(normalization));
    return Add(std::move(node))[0];
  }
  const std::vector<ValueId> outputs = Add(std::move(node));
  normalization.batch_mean = outputs[1];
  normalization.batch_variance = outputs[2];
  program_.normalizations.push_back(std::move(normalization));
  return outputs[0];
}

ValueId GraphBuilder::Relu(const std::string& name, ValueId x) {
  if (!Ready(name, x)) return kNoValue;
  return Add({name, graph::Relu{}, {x}})[0];
}

ValueId GraphBuilder::MaxPool(const std::string& name, ValueId x, const MaxPoolOptions& options) {
  if (!Ready(name, x, 4)) return kNoValue;
  auto attributes = WindowAttributes<PoolAttributes>(options, shape(x));
  attributes.window = {options.window, options.window};
  return Add({name, graph::MaxPool{attributes}, {x}})[0];
}

ValueId GraphBuilder::GlobalAveragePool(const std::string& name, ValueId x) {
  if (!Ready(name, x, 4)) return kNoValue;
  return Add({name, graph::GlobalAveragePool{}, {x}})[0];
}

ValueId GraphBuilder::Dropout(const std::string& name, ValueId x, double rate) {
  if (!Ready(name, x)) return kNoValue;
  if (program_.mode == Mode::kInference || rate == 0) return x;
  return Add({name, graph::Dropout{{rate, name}}, {x}})[0];
}

ValueId GraphBuilder::Flatten(const std::string& name, ValueId x) {
  if (!Ready(name, x)) return kNoValue;
  const int64_t features = Elements(shape(x)) / program_.samples;
  return Add({name, Reshape{{features}}, {x}})[0];
}

void GraphBuilder::SoftmaxCrossEntropy(const std::string& name, ValueId logits) {
  if (!Ready(name, logits, 2)) return;
  Column& label = program_.columns[1];
  label.limit = shape(logits)[1];
  const std::vector<ValueId> made =
      Add({name, graph::SoftmaxCrossEntropy{}, {logits, label.value}});
  program_.scalars = {{.value = made[0]}, {.value = made[1], .counts = true}};
  program_.outputs = {
      {.name = kMinimized},
      {.name = "accuracy", .role = Output::Role::kMeasure, .scalar = 1, .lower_is_better = false}};
}

StatusOr<Program> GraphBuilder::Finish() {
  RING_RETURN_IF_ERROR(status_);
  if (program_.outputs.empty()) return InvalidArgument("the model has no loss");
  return std::move(program_);
}

bool GraphBuilder::Ready(const std::string& layer, ValueId x, size_t rank) {
  if (!status_.ok()) return false;
  if (rank != 0 && shape(x).size() != rank) {
    Fail(InvalidArgument("{}: expected an input with {} dimensions, got {} {}", layer, rank,
                         program_.graph.value(x).name, ToString(shape(x))));
  }
  return status_.ok();
}

std::vector<ValueId> GraphBuilder::Add(Node node, std::vector<TensorType> wanted) {
  auto outputs = AddOp(&program_.graph, std::move(node), std::move(wanted));
  if (outputs.ok()) return std::move(outputs).value();
  Fail(outputs.status());
  return {kNoValue, kNoValue, kNoValue};
}

ValueId GraphBuilder::AddParameter(std::string name, Shape shape, Initializer initializer) {
  const ValueId value = program_.graph.AddFed(name, shape, DType::kFloat32);
  program_.parameters.push_back({std::move(name), std::move(shape), value, kNoValue, initializer});
  return value;
}

void GraphBuilder::Fail(Status status) {
  if (status_.ok()) status_ = std::move(status);
}

}  // namespace ringmaster::graph
