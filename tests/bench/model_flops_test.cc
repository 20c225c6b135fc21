#include "bench/training/model_flops.h"

#include <catch2/catch.hpp>

#include "tests/support/model_option.h"
#include "tests/support/zoo_program.h"

namespace ringmaster::bench {
namespace {

graph::Program Build(const std::string& name, v1::Policy policy = v1::POLICY_FLOAT32,
                     bool batch_norm = false, int64_t samples = 1) {
  v1::Model model;
  model.set_name(name);
  if (name != "mlp") testing::SetOption("batch_norm", batch_norm, &model);
  auto program = zoo::BuildProgram(model, {.samples = samples, .policy = policy});
  REQUIRE(Message(program.status()) == "");
  return *std::move(program);
}

// 3x3 convolutions: pixels of the result, channels, filters.
double Convolution(double pixels, double channels, double filters) {
  return 2 * 9 * pixels * channels * filters;
}

TEST_CASE("ModelFlops: alexnet, by hand") {
  const double first = Convolution(32 * 32, 3, 96);
  const double forward = first + Convolution(16 * 16, 96, 256) + Convolution(8 * 8, 256, 384) +
                         Convolution(8 * 8, 384, 384) + Convolution(8 * 8, 384, 256) +
                         2.0 * 256 * 10;
  const ModelFlops flops = CountFlops(Build("alexnet"));
  CHECK(flops.forward == forward);
  CHECK(flops.training == 3 * forward - first);
  CHECK(forward / 2e6 == Approx(257.4).epsilon(0.001));  // the multiply-adds in millions
}

TEST_CASE("ModelFlops: mlp, by hand: its first layer has no input gradient either") {
  const double first = 2.0 * 3072 * 2048;
  const double forward = first + 2.0 * 2048 * 2048 + 2.0 * 2048 * 10;
  const ModelFlops flops = CountFlops(Build("mlp"));
  CHECK(flops.forward == forward);
  CHECK(flops.training == 3 * forward - first);
}

TEST_CASE("ModelFlops: of a sample, so neither the batch, the policy nor normalization matters") {
  for (const char* name : {"alexnet", "vgg"}) {
    INFO(name);
    const ModelFlops one = CountFlops(Build(name));
    for (const ModelFlops& other : {CountFlops(Build(name, v1::POLICY_FLOAT32, false, 7)),
                                    CountFlops(Build(name, v1::POLICY_MIXED_BFLOAT16)),
                                    CountFlops(Build(name, v1::POLICY_MIXED_FLOAT16, true, 3))}) {
      CHECK(other.forward == one.forward);
      CHECK(other.training == one.training);
    }
    CHECK(one.training > 2.9 * one.forward);
  }
}

TEST_CASE("ModelFlops: peaks by device and policy, none for what is not in the table") {
  CHECK(PeakTflops("NVIDIA H200", v1::POLICY_MIXED_BFLOAT16) == 989.4);
  CHECK(PeakTflops("NVIDIA H200", v1::POLICY_MIXED_FLOAT16) == 989.4);
  CHECK(PeakTflops("NVIDIA H200", v1::POLICY_FLOAT32) == 67);
  CHECK_FALSE(PeakTflops("AMD EPYC", v1::POLICY_FLOAT32).has_value());
}

}  // namespace
}  // namespace ringmaster::bench
