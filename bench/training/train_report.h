// What was measured of one job, as text for people and as JSON for vs_pytorch.py. Values and pure
// functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bench/training/train_options.h"
#include "common/graph/program.h"
#include "ringmaster/v1/job.pb.h"
#include "worker/train/progress.h"

namespace ringmaster::bench {

// What a training step of a model costs by the usual count, whatever kernels really do: 2 FLOPs for
// each multiply-add of convolutions and dense layers, windows counted whole where they hang over
// the border; nothing for the rest. Of one sample.
struct ModelFlops {
  double forward = 0;
  double training = 0;  // forward and backward: 3 x forward, less the first layer's input gradient
};

// `training`: a program of that mode.
[[nodiscard]] ModelFlops CountFlops(const graph::Program& training);

// Dense peak in TFLOP/s by the device's data sheet, nothing when it is not in the table: for
// bfloat16 and float16 that of tensor cores, for float32 that of plain FMA.
[[nodiscard]] std::optional<double> PeakTflops(const std::string& device_model, v1::Policy policy);

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
