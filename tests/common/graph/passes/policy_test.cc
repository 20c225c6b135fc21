#include "common/graph/passes/passes.h"

#include <catch2/catch.hpp>
#include <regex>
#include <string>

#include "common/graph/autodiff.h"
#include "common/graph/printer.h"
#include "tests/support/small_models.h"

namespace ringmaster::graph {
namespace {

// clang-format off
const std::string kCompiled = R"(
fed image (2, 6, 5, 2) float32
fed label (2) int32
fed conv1/kernel (4, 3, 3, 2) bfloat16
fed bn1/gamma (4) float32
fed bn1/beta (4) float32
fed conv2/kernel (3, 3, 3, 4) bfloat16
fed conv2/bias (3) float32
fed fc/kernel (3, 3) bfloat16
fed fc/bias (3) float32
fed loss_seed () float32
image/bfloat16 (2, 6, 5, 2) bfloat16 = cast(image)
conv1 (2, 6, 5, 4) bfloat16 = conv2d(image/bfloat16, conv1/kernel) pads=1,1,1,1
bn1 (2, 6, 5, 4) bfloat16, bn1/mean (4) float32, bn1/variance (4) float32 = batch_norm(conv1, bn1/gamma, bn1/beta) +relu
pool1 (2, 3, 2, 4) bfloat16 = max_pool(bn1)
conv2 (2, 2, 1, 3) bfloat16 = conv2d(pool1, conv2/kernel, conv2/bias) strides=2,2 pads=1,0,1,1 +relu
pool2 (2, 3) bfloat16 = global_average_pool(conv2)
dropout (2, 3) bfloat16 = dropout(pool2) rate=0.25 layer=dropout
fc (2, 3) bfloat16 = dense(dropout, fc/kernel, fc/bias)
fc/float32 (2, 3) float32 = cast(fc)
loss () float32 = softmax_cross_entropy(fc/float32, label)
accuracy () float32 = top_k(fc/float32, label)
loss/gradient (2, 3) float32 = softmax_cross_entropy_gradient(fc/float32, label, loss_seed)
loss/gradient/bfloat16 (2, 3) bfloat16 = cast(loss/gradient)
fc/kernel/gradient (3, 3) float32, fc/bias/gradient (3) float32 = dense_weight_gradient(dropout, loss/gradient/bfloat16)
fc/input_gradient (2, 3) bfloat16 = dense_input_gradient(loss/gradient/bfloat16, fc/kernel)
dropout/gradient (2, 3) bfloat16 = dropout_gradient(fc/input_gradient) rate=0.25 layer=dropout
pool2/gradient (2, 2, 1, 3) bfloat16 = global_average_pool_gradient(dropout/gradient)
relu2/gradient (2, 2, 1, 3) bfloat16 = relu_gradient(conv2, pool2/gradient)
conv2/kernel/gradient (3, 3, 3, 4) float32, conv2/bias/gradient (3) float32 = conv2d_weight_gradient(pool1, relu2/gradient) strides=2,2 pads=1,0,1,1
conv2/input_gradient (2, 3, 2, 4) bfloat16 = conv2d_input_gradient(relu2/gradient, conv2/kernel) strides=2,2 pads=1,0,1,1
pool1/gradient (2, 6, 5, 4) bfloat16 = max_pool_gradient(bn1, pool1, conv2/input_gradient)
bn1/gradient (2, 6, 5, 4) bfloat16, bn1/gamma/gradient (4) float32, bn1/beta/gradient (4) float32 = batch_norm_gradient(conv1, pool1/gradient, bn1/mean, bn1/variance, bn1/gamma, bn1/beta) +relu
conv1/kernel/gradient (4, 3, 3, 2) float32 = conv2d_weight_gradient(image/bfloat16, bn1/gradient) pads=1,1,1,1
gradient fc/kernel = fc/kernel/gradient
gradient fc/bias = fc/bias/gradient
gradient conv2/kernel = conv2/kernel/gradient
gradient conv2/bias = conv2/bias/gradient
gradient bn1/gamma = bn1/gamma/gradient
gradient bn1/beta = bn1/beta/gradient
gradient conv1/kernel = conv1/kernel/gradient
)";
// clang-format on

TEST_CASE("Policy: a compiled network under mixed_bfloat16 reads like this") {
  auto program = testing::SmallConvolutional(Mode::kTraining, 2);
  REQUIRE(program.ok());
  REQUIRE(Differentiate(&*program).ok());
  REQUIRE(ApplyPolicy(&*program, DType::kBFloat16).ok());
  FuseActivations(&*program);
  RemoveDeadNodes(&*program);
  CHECK("\n" + Print(*program) == kCompiled);
}

TEST_CASE("Policy: mixed_float16 keeps in 16 bits what mixed_bfloat16 does") {
  const auto compiled = [](DType compute) {
    auto program = testing::SmallConvolutional(Mode::kTraining, 2);
    REQUIRE(program.ok());
    REQUIRE(Differentiate(&*program).ok());
    REQUIRE(ApplyPolicy(&*program, compute).ok());
    return Print(*program);
  };
  const std::string brain = compiled(DType::kBFloat16);
  const std::string half = compiled(DType::kFloat16);
  CHECK(half.find(" float16 = conv2d(image/float16, conv1/kernel)") != std::string::npos);
  CHECK(half == std::regex_replace(brain, std::regex("bfloat16"), "float16"));
}

TEST_CASE("Policy: float32 changes nothing") {
  auto program = testing::SmallConvolutional(Mode::kTraining, 2);
  REQUIRE(program.ok());
  REQUIRE(Differentiate(&*program).ok());
  const std::string before = Print(*program);
  REQUIRE(ApplyPolicy(&*program, DType::kFloat32).ok());
  CHECK(Print(*program) == before);
}

TEST_CASE("Policy: an integer is no compute type") {
  auto program = testing::SmallConvolutional(Mode::kTraining, 2);
  REQUIRE(program.ok());
  CHECK_FALSE(ApplyPolicy(&*program, DType::kInt32).ok());
}

}  // namespace
}  // namespace ringmaster::graph
