#include "bench/training/train_report.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "bench/quantile.h"
#include "common/graph/cost.h"

namespace ringmaster::bench {
namespace {

struct Peak {
  const char* device;  // part of its name
  double bits16, float32;
};
constexpr Peak kPeaks[] = {{"H200", 989.4, 67}};

std::string Bytes(uint64_t bytes) {
  constexpr double kMiB = 1 << 20;
  const double mib = static_cast<double>(bytes) / kMiB;
  return mib < 1024 ? fmt::format("{:.1f}M", mib) : fmt::format("{:.2f}G", mib / 1024);
}

v1::Policy PolicyOf(const std::string& name) {
  if (name == "mixed_bfloat16") return v1::POLICY_MIXED_BFLOAT16;
  if (name == "mixed_float16") return v1::POLICY_MIXED_FLOAT16;
  return v1::POLICY_FLOAT32;
}

double Ring(const worker::PhaseTimes& phases) { return phases.ring_wait + phases.ring_transfer; }

// Of a step: what no phase names.
double Rest(const worker::PhaseTimes& phases, double step) {
  return step - phases.input - phases.compute - Ring(phases) - phases.update;
}

std::string MemoryLine(const TrainOptions& options, const MemoryFigures& memory) {
  const std::string& device = options.device;
  std::string line =
      fmt::format("planned: core {} x {}, host {}; host {} predicted, {} seen (VmHWM)",
                  Bytes(memory.planned_core), options.cores, Bytes(memory.planned_host),
                  Bytes(PredictedHost(memory, device, options.cores)), Bytes(memory.host_peak));
  if (memory.device_used) {
    line += fmt::format(
        "; device {} predicted, {} of it weights, state and input, {} seen (nvidia-smi, with its "
        "context)",
        Bytes(PredictedDevice(memory, options.cores)), Bytes(memory.planned_device),
        Bytes(*memory.device_used));
  }
  return line;
}

std::string FlopsLine(const TrainMeasurement& measured, const TrainSpeed& speed) {
  const std::string counted = fmt::format("{:.3f} GFLOP a sample, {:.3f} TFLOP/s",
                                          measured.flops.training / 1e9, speed.tflops);
  if (!speed.mfu) return counted + "; MFU unknown: give the device's peak with --peak-tflops";
  return fmt::format("{}: MFU {:.1f}% of {:.1f} TFLOP/s", counted, 100 * *speed.mfu,
                     *speed.peak_tflops);
}

template <typename T>
nlohmann::json OrNull(const std::optional<T>& value) {
  return value ? nlohmann::json(*value) : nlohmann::json(nullptr);
}

nlohmann::json MemoryJson(const TrainOptions& options, const MemoryFigures& memory) {
  return {{"planned_host", memory.planned_host},
          {"planned_core", memory.planned_core},
          {"planned_device", memory.planned_device},
          {"device_predicted", PredictedDevice(memory, options.cores)},
          {"host_predicted", PredictedHost(memory, options.device, options.cores)},
          {"host_seen", memory.host_peak},
          {"device_seen", OrNull(memory.device_used)}};
}

nlohmann::json PhasesJson(const worker::PhaseTimes& phases, double step) {
  return {{"input", phases.input},
          {"compute", phases.compute},
          {"ring", Ring(phases)},
          {"update", phases.update},
          {"rest", Rest(phases, step)}};
}

}  // namespace

ModelFlops CountFlops(const graph::Program& training) {
  ModelFlops flops;
  for (const graph::Node& node : training.graph.nodes()) {
    const double amount =
        2 * graph::MultiplyAdds(training.graph, node) / static_cast<double>(training.samples);
    flops.training += amount;
    const bool forward = node.as<graph::Conv2d>() != nullptr || node.as<graph::Dense>() != nullptr;
    if (forward) flops.forward += amount;
  }
  return flops;
}

std::optional<double> PeakTflops(const std::string& device_model, v1::Policy policy) {
  for (const Peak& peak : kPeaks) {
    if (device_model.find(peak.device) == std::string::npos) continue;
    return policy == v1::POLICY_FLOAT32 ? peak.float32 : peak.bits16;
  }
  return std::nullopt;
}

uint64_t PredictedHost(const MemoryFigures& memory, const std::string& device, uint32_t cores) {
  const uint64_t arenas = device == "cpu" ? memory.planned_core * cores : 0;
  return memory.host_before + memory.planned_host + arenas;
}

uint64_t PredictedDevice(const MemoryFigures& memory, uint32_t cores) {
  return memory.planned_core * cores + memory.planned_device;
}

TrainSpeed SpeedOf(const TrainOptions& options, const TrainCase& one,
                   const TrainMeasurement& measured) {
  const std::vector<double>& steps = measured.step_seconds;
  const double batch = one.batch;
  TrainSpeed speed;
  for (const double seconds : steps) speed.step_mean += seconds;
  speed.step_mean /= static_cast<double>(steps.size());
  speed.mean = batch / speed.step_mean;
  speed.median = batch / Quantile(steps, 0.5);
  speed.p10 = batch / Quantile(steps, 0.9);
  speed.p90 = batch / Quantile(steps, 0.1);
  speed.us_per_sample = 1e6 / speed.median;
  speed.tflops = speed.median * measured.flops.training / 1e12;
  speed.peak_tflops = options.peak_tflops > 0
                          ? std::optional(options.peak_tflops)
                          : PeakTflops(measured.device_model, PolicyOf(one.policy));
  if (speed.peak_tflops) speed.mfu = speed.tflops / *speed.peak_tflops;
  return speed;
}

std::string TextReport(const TrainOptions& options, const TrainCase& one,
                       const TrainMeasurement& measured) {
  const TrainSpeed speed = SpeedOf(options, one, measured);
  const worker::PhaseTimes& phases = measured.phases;
  std::string text = fmt::format(
      "{}, {}, batch {} in {} shards on {} ({}), {} x {} threads: {} steps after {}\n",
      options.model, one.policy, one.batch, one.shards, options.device, measured.device_model,
      options.cores, options.threads, measured.step_seconds.size(), options.warm_up);
  text += fmt::format(
      "  images/s  median {:.1f}, p10 {:.1f}, p90 {:.1f}, mean {:.1f}; {:.2f} us a sample\n",
      speed.median, speed.p10, speed.p90, speed.mean, speed.us_per_sample);
  text += fmt::format(
      "  step      {:.2f} ms: input {:.2f}, compute {:.2f}, ring {:.2f}, update {:.2f}, rest "
      "{:.2f}; {:.2f} ms of CPU\n",
      1e3 * speed.step_mean, 1e3 * phases.input, 1e3 * phases.compute, 1e3 * Ring(phases),
      1e3 * phases.update, 1e3 * Rest(phases, speed.step_mean), 1e3 * measured.step_cpu_seconds);
  if (measured.update_bound > 0) {
    text += fmt::format("  update    {:.2f} of a plain pass over its bytes, {:.2f} ms\n",
                        phases.update / measured.update_bound, 1e3 * measured.update_bound);
  }
  text += fmt::format("  model     {} parameters, {}\n", measured.parameters,
                      FlopsLine(measured, speed));
  text += fmt::format("  memory    {}\n", MemoryLine(options, measured.memory));
  text += fmt::format("  start     {:.2f} s to prepare, first step {:.2f} s; loss {:.4f}\n",
                      measured.prepare_seconds, measured.first_step_seconds, measured.loss);
  return text;
}

std::string JsonReport(const TrainOptions& options, const TrainCase& one,
                       const TrainMeasurement& measured) {
  const TrainSpeed speed = SpeedOf(options, one, measured);
  const nlohmann::json report = {
      {"model", options.model},
      {"policy", one.policy},
      {"batch", one.batch},
      {"shards", one.shards},
      {"device", options.device},
      {"device_model", measured.device_model},
      {"cores", options.cores},
      {"threads", options.threads},
      {"steps", measured.step_seconds.size()},
      {"warm_up", options.warm_up},
      {"parameters", measured.parameters},
      {"images_per_second",
       {{"median", speed.median}, {"mean", speed.mean}, {"p10", speed.p10}, {"p90", speed.p90}}},
      {"us_per_sample", speed.us_per_sample},
      {"step_seconds", speed.step_mean},
      {"step_cpu_seconds", measured.step_cpu_seconds},
      {"update_bound_seconds", measured.update_bound},
      {"phases", PhasesJson(measured.phases, speed.step_mean)},
      {"flops_per_sample", measured.flops.training},
      {"tflops", speed.tflops},
      {"peak_tflops", OrNull(speed.peak_tflops)},
      {"mfu", OrNull(speed.mfu)},
      {"memory", MemoryJson(options, measured.memory)},
      {"prepare_seconds", measured.prepare_seconds},
      {"first_step_seconds", measured.first_step_seconds},
      {"loss", measured.loss}};
  return report.dump();
}

}  // namespace ringmaster::bench
