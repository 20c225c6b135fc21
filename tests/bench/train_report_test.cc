#include "bench/training/train_report.h"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "tests/support/model_option.h"
#include "tests/support/zoo_program.h"

namespace ringmaster::bench {
namespace {

using Catch::Contains;

// Batch 100 in steps of 0.1 s to 0.3 s.
TrainMeasurement Measured() {
  TrainMeasurement measured;
  measured.device_model = "AMD EPYC";
  measured.parameters = 1000;
  measured.flops = {1e9, 2e9};
  measured.step_seconds = {0.3, 0.1, 0.2};
  measured.step_cpu_seconds = 0.4;
  measured.phases.input = 0.01;
  measured.phases.compute = 0.15;
  measured.phases.ring_wait = 0.001;
  measured.phases.ring_transfer = 0.002;
  measured.phases.update = 0.02;
  measured.memory = {.planned_host = 5 << 20,
                     .planned_core = 2 << 20,
                     .planned_device = 3 << 20,
                     .host_before = 8 << 20,
                     .host_peak = 32 << 20,
                     .device_used = std::nullopt};
  return measured;
}

TrainOptions Options() {
  TrainOptions options;
  options.cores = 3;
  return options;
}

const TrainCase kCase = {100, 2, "float32"};

TEST_CASE("TrainReport: rates are those of the steps' times") {
  const TrainSpeed speed = SpeedOf(Options(), kCase, Measured());
  CHECK(speed.median == Approx(500));
  CHECK(speed.mean == Approx(500));
  CHECK(speed.p10 == Approx(100 / 0.28));
  CHECK(speed.p90 == Approx(100 / 0.12));
  CHECK(speed.us_per_sample == Approx(2000));
  CHECK(speed.tflops == Approx(1));
  CHECK_FALSE(speed.mfu.has_value());
}

TEST_CASE("TrainReport: MFU is of the peak that is given, else of the device's by policy") {
  TrainOptions options = Options();
  TrainMeasurement measured = Measured();
  measured.device_model = "NVIDIA H200";
  CHECK(*SpeedOf(options, kCase, measured).mfu == Approx(1 / 67.0));
  CHECK(*SpeedOf(options, {100, 2, "mixed_bfloat16"}, measured).mfu == Approx(1 / 989.4));
  CHECK(*SpeedOf(options, {100, 2, "mixed_float16"}, measured).mfu == Approx(1 / 989.4));
  options.peak_tflops = 4;
  CHECK(*SpeedOf(options, kCase, measured).mfu == Approx(0.25));
  CHECK(*SpeedOf(options, kCase, Measured()).mfu == Approx(0.25));
}

TEST_CASE("TrainReport: arenas are the host's memory only on the host") {
  const MemoryFigures memory = Measured().memory;
  CHECK(PredictedHost(memory, "cpu", 3) == 19 << 20);
  CHECK(PredictedHost(memory, "cuda", 3) == 13 << 20);
}

TEST_CASE("TrainReport: the text says what was measured") {
  TrainOptions options = Options();
  const std::string text = TextReport(options, kCase, Measured());
  CHECK_THAT(text, Contains("alexnet, float32, batch 100 in 2 shards on cpu (AMD EPYC)"));
  CHECK_THAT(text, Contains("median 500.0, p10 357.1, p90 833.3, mean 500.0; 2000.00 us"));
  CHECK_THAT(text, Contains("200.00 ms: input 10.00, compute 150.00, ring 3.00, update 20.00, "
                            "rest 17.00; 400.00 ms of CPU"));
  CHECK_THAT(text, Contains("MFU unknown: give the device's peak with --peak-tflops"));
  CHECK_THAT(text, Contains("core 2.0M x 3, host 5.0M;"));
  CHECK_THAT(text, Contains("host 19.0M predicted, 32.0M seen"));
  CHECK_THAT(text, !Contains("nvidia-smi"));
  options.device = "cuda";
  TrainMeasurement measured = Measured();
  measured.memory.device_used = uint64_t{3} << 30;
  CHECK_THAT(TextReport(options, kCase, measured),
             Contains("device 9.0M predicted, 3.0M of it weights, state and input, 3.00G seen "
                      "(nvidia-smi, with its context)"));
}

TEST_CASE("TrainReport: JSON is one line, and what is not known is null") {
  const std::string line = JsonReport(Options(), kCase, Measured());
  CHECK(line.find('\n') == std::string::npos);
  const auto json = nlohmann::json::parse(line);
  CHECK(json["images_per_second"]["median"].get<double>() == Approx(500));
  CHECK(json["phases"]["rest"].get<double>() == Approx(0.017));
  CHECK(json["step_cpu_seconds"] == 0.4);
  CHECK(json["shards"] == 2);
  CHECK(json["steps"] == 3);
  CHECK(json["parameters"] == 1000);
  CHECK(json["mfu"].is_null());
  CHECK(json["memory"]["device_seen"].is_null());
  CHECK(json["memory"]["host_predicted"] == 19 << 20);
}

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
