// What was measured of one job, as text for people and as JSON for vs_pytorch.py. Values and pure
// functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bench/training/model_flops.h"
#include "bench/training/train_options.h"
#include "worker/train/progress.h"

namespace ringmaster::bench {

struct MemoryFigures {
  uint64_t planned_host = 0;            // host, once: state, copies, samples
  uint64_t planned_core = 0;            // of each core: arena, the host's or the device's
  uint64_t planned_device = 0;          // of a device with its own memory, beside its cores
  uint64_t host_before = 0;             // resident before the job was prepared
  uint64_t host_peak = 0;               // VmHWM of the job's time
  std::optional<uint64_t> device_used;  // more than before the backend was made; GPUs only
};

// Of a job with `cores` arenas, on the host where they are the host's.
[[nodiscard]] uint64_t PredictedHost(const MemoryFigures& memory, const std::string& device,
                                     uint32_t cores);

// Of the memory of one device that has all the cores; what CUDA itself takes comes on top.
[[nodiscard]] uint64_t PredictedDevice(const MemoryFigures& memory, uint32_t cores);

struct TrainMeasurement {
  std::string device_model;
  uint64_t parameters = 0;
  ModelFlops flops;
  std::vector<double> step_seconds;  // at least one
  double step_cpu_seconds = 0;       // of the process, mean of these steps
  worker::PhaseTimes phases;         // likewise
  double update_bound = 0;           // UpdateBound of it; 0 where a device updates
  double prepare_seconds = 0;        // programs, kernels, S(0), the known shard
  double first_step_seconds = 0;
  double loss = 0;  // mean of the epoch so far, at the end
  MemoryFigures memory;
};

// What follows from the times.
struct TrainSpeed {
  double median = 0, mean = 0, p10 = 0, p90 = 0;  // images a second
  double us_per_sample = 0;                       // of the median step
  double step_mean = 0;                           // seconds
  double tflops = 0;                              // of the median step, by the model's count
  std::optional<double> peak_tflops;
  std::optional<double> mfu;  // 0 to 1
};
[[nodiscard]] TrainSpeed SpeedOf(const TrainOptions& options, const TrainCase& one,
                                 const TrainMeasurement& measured);

[[nodiscard]] std::string TextReport(const TrainOptions& options, const TrainCase& one,
                                     const TrainMeasurement& measured);
// One line.
[[nodiscard]] std::string JsonReport(const TrainOptions& options, const TrainCase& one,
                                     const TrainMeasurement& measured);

}  // namespace ringmaster::bench
