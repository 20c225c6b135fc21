#include "common/graph/builder.h"

#include <catch2/catch.hpp>
#include <string>

#include "common/graph/printer.h"
#include "tests/support/small_models.h"

namespace ringmaster::graph {
namespace {

TEST_CASE("GraphBuilder: a small network reads as it was written") {
  const auto program = testing::SmallConvolutional(Mode::kTraining, 2);
  REQUIRE(program.ok());
  CHECK(Print(*program) ==
        "fed image (2, 6, 5, 2) float32\n"
        "fed label (2) int32\n"
        "fed conv1/kernel (4, 3, 3, 2) float32\n"
        "fed bn1/gamma (4) float32\n"
        "fed bn1/beta (4) float32\n"
        "fed conv2/kernel (3, 3, 3, 4) float32\n"
        "fed conv2/bias (3) float32\n"
        "fed fc/kernel (3, 3) float32\n"
        "fed fc/bias (3) float32\n"
        "conv1 (2, 6, 5, 4) float32 = conv2d(image, conv1/kernel) pads=1,1,1,1\n"
        "bn1 (2, 6, 5, 4) float32, bn1/mean (4) float32, bn1/variance (4) float32 = "
        "batch_norm(conv1, bn1/gamma, bn1/beta)\n"
        "relu1 (2, 6, 5, 4) float32 = relu(bn1)\n"
        "pool1 (2, 3, 2, 4) float32 = max_pool(relu1)\n"
        "conv2 (2, 2, 1, 3) float32 = conv2d(pool1, conv2/kernel, conv2/bias) strides=2,2 "
        "pads=1,0,1,1\n"
        "relu2 (2, 2, 1, 3) float32 = relu(conv2)\n"
        "pool2 (2, 3) float32 = global_average_pool(relu2)\n"
        "dropout (2, 3) float32 = dropout(pool2) rate=0.25 layer=dropout\n"
        "fc (2, 3) float32 = dense(dropout, fc/kernel, fc/bias)\n"
        "loss () float32 = softmax_cross_entropy(fc, label)\n"
        "accuracy () float32 = top_k(fc, label)\n");
}

TEST_CASE("GraphBuilder: inference normalizes by moving statistics and leaves dropout out") {
  const auto program = testing::SmallConvolutional(Mode::kInference, 2);
  REQUIRE(program.ok());
  const std::string text = Print(*program);
  CHECK(text.find("bn1 (2, 6, 5, 4) float32 = batch_norm_inference(conv1, bn1/gamma, bn1/beta, "
                  "bn1/moving_mean, bn1/moving_variance)") != std::string::npos);
  CHECK(text.find("dropout") == std::string::npos);
}

TEST_CASE("GraphBuilder: same padding puts the odd pad below and to the right") {
  GraphBuilder builder(1);
  const ValueId x = builder.Input(6, 7, 1);
  const layers::MaxPool pool = {.window = 3, .stride = 2, .padding = layers::kSame};
  const ValueId pooled = builder.Add("pool", pool, x);
  testing::AddClassifierOutputs(builder, builder.Add("flatten", layers::Flatten{}, pooled));
  const auto program = builder.Finish();
  REQUIRE(program.ok());
  const auto& attributes = *program->graph.node(0).as<MaxPool>();
  CHECK(attributes.pads[0] == 0);
  CHECK(attributes.pads[2] == 1);
  CHECK(attributes.pads[1] == 1);
  CHECK(attributes.pads[3] == 1);
  CHECK(program->graph.value(pooled).shape == Shape{1, 3, 4, 1});
}

TEST_CASE("GraphBuilder: the first error stays") {
  GraphBuilder builder(2);
  ValueId x = builder.Input(4, 4, 1);
  x = builder.Add("fc1", layers::Dense{.units = 3}, x);  // images have four dimensions
  x = builder.Add("conv1", layers::Conv2d{.filters = -1}, x);
  x = builder.Add("dropout", layers::Dropout{2}, x);
  x = builder.Add("sum", Add{}, std::vector{x, x});
  testing::AddClassifierOutputs(builder, x);
  const auto program = builder.Finish();
  REQUIRE_FALSE(program.ok());
  CHECK(Message(program.status()) ==
        "fc1: expected an input with 2 dimensions, got image (2, 4, 4, 1)");
}

}  // namespace
}  // namespace ringmaster::graph
