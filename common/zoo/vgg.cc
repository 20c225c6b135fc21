#include <array>
#include <string>
#include <vector>

#include "common/zoo/models.h"

namespace ringmaster::zoo {
namespace {

using graph::Bias;
using graph::GraphBuilder;
using graph::ValueId;

constexpr int kStages = 5;
constexpr std::array<int64_t, kStages> kFilters = {64, 128, 256, 512, 512};
constexpr int64_t kUnits = 512;  // of the hidden dense layer
constexpr int64_t kLeastSide = 1 << kStages;

// Convolutions of each stage: configurations A, B, D and E. With the three dense layers of the
// paper they are 11, 13, 16 and 19 weight layers.
constexpr std::array<int, kStages> ConvolutionsOf(uint32_t depth) {
  switch (depth) {
    case 11:
      return {1, 1, 2, 2, 2};
    case 13:
      return {2, 2, 2, 2, 2};
    case 16:
      return {2, 2, 3, 3, 3};
    default:
      return {2, 2, 4, 4, 4};
  }
}

Bias BiasOf(const v1::Model& model) { return model.batch_norm() ? Bias::kNone : Bias::kUse; }

// Batch normalization if the model has it, relu.
ValueId Activate(GraphBuilder& builder, const v1::Model& model, int number, ValueId x) {
  const std::string suffix = std::to_string(number);
  if (model.batch_norm()) {
    x = builder.BatchNorm("bn" + suffix, x, {.momentum = 0.99, .epsilon = 1e-3});
  }
  return builder.Relu("relu" + suffix, x);
}

}  // namespace

Status CheckVggImages(int64_t height, int64_t width) {
  if (height >= kLeastSide && width >= kLeastSide) return absl::OkStatus();
  return InvalidArgument(
      "its {} pools, which halve height and width each, need images of at least {}x{}, got height "
      "{} and width {}: resize them (data.resize)",
      kStages, kLeastSide, kLeastSide, height, width);
}

ValueId BuildVgg(GraphBuilder& builder, const v1::Model& model, ValueId images, int64_t classes) {
  const std::array<int, kStages> convolutions = ConvolutionsOf(model.depth());
  ValueId x = images;
  int number = 0;
  for (size_t stage = 0; stage < kStages; ++stage) {
    for (int i = 0; i < convolutions[stage]; ++i) {
      x = builder.Conv2d("conv" + std::to_string(++number), x,
                         {.filters = kFilters[stage], .bias = BiasOf(model)});
      x = Activate(builder, model, number, x);
    }
    x = builder.MaxPool("pool" + std::to_string(stage + 1), x);
  }
  x = builder.Dropout("dropout1", builder.Flatten("flatten", x), model.dropout());
  x = Activate(builder, model, number + 1, builder.Dense("dense1", x, kUnits, BiasOf(model)));
  return builder.Dense("fc", builder.Dropout("dropout2", x, model.dropout()), classes);
}

}  // namespace ringmaster::zoo
