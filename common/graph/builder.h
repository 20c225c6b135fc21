// Builds a model's forward graph layer by layer: what the zoo writes. Thread-compatible; lives as
// long as one build. The first error sticks: later calls do nothing and Finish returns it. It
// derives no gradients and knows no precision policy: see autodiff.h and passes/.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/graph/ops/op_table.h"
#include "common/graph/program.h"

namespace ringmaster::graph {

// kSame: ceil(input / stride) outputs, the odd pad below and to the right. kValid: no padding.
enum class Padding : uint8_t { kSame, kValid };
enum class Bias : uint8_t { kUse, kNone };

struct Conv2dOptions {
  int64_t filters = 0;
  int64_t window = 3;  // height and width
  int64_t stride = 1;
  Padding padding = Padding::kSame;
  Bias bias = Bias::kUse;
};

struct BatchNormOptions {
  double momentum = 0.99;
  double epsilon = 1e-3;
};

struct MaxPoolOptions {
  int64_t window = 2;
  int64_t stride = 2;
  Padding padding = Padding::kValid;
};

class GraphBuilder {
 public:
  // kInference: batch normalization by moving statistics, dropout left out.
  GraphBuilder(Mode mode, int64_t samples);

  // Images (N, height, width, channels) in float32, and their labels (N). Call once, first.
  ValueId Input(int64_t height, int64_t width, int64_t channels);

  // Parameters are named after the layer: name/kernel, name/bias, name/gamma, name/beta. They are
  // numbered in the order of these calls.
  ValueId Conv2d(const std::string& name, ValueId x, const Conv2dOptions& options);
  ValueId Dense(const std::string& name, ValueId x, int64_t units, Bias bias = Bias::kUse);
  ValueId BatchNorm(const std::string& name, ValueId x, const BatchNormOptions& options = {});

  ValueId Relu(const std::string& name, ValueId x);
  ValueId MaxPool(const std::string& name, ValueId x, const MaxPoolOptions& options = {});
  ValueId GlobalAveragePool(const std::string& name, ValueId x);
  ValueId Dropout(const std::string& name, ValueId x, double rate);  // rate 0: x itself
  ValueId Flatten(const std::string& name, ValueId x);               // (N, all the rest)

  // The loss of logits (N, classes) against the labels. Call once, last.
  void SoftmaxCrossEntropy(const std::string& name, ValueId logits);

  // The program without gradients, or the first error.
  [[nodiscard]] StatusOr<Program> Finish();

 private:
  // False after an error; checks that x has `rank` dimensions (0: any).
  [[nodiscard]] bool Ready(const std::string& layer, ValueId x, size_t rank = 0);
  // Appends the node (`wanted`: see AddOp); its outputs, or kNoValue three times after an error.
  std::vector<ValueId> Add(Node node, std::vector<TensorType> wanted = {});
  ValueId AddParameter(std::string name, Shape shape, Initializer initializer);
  void Fail(Status status);
  [[nodiscard]] const Shape& shape(ValueId x) const { return program_.graph.value(x).shape; }

  Program program_;
  Status status_;
};

}  // namespace ringmaster::graph
