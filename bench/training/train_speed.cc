// How quick training is on this host or its GPU: images a second of a model of the zoo, through the
// real trainer with one worker, beside where a step's time goes, the share of the device's peak,
// and memory planned and seen. `bench/train --help` lists the options.
#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <optional>

#include "bench/process_memory.h"
#include "bench/training/train_options.h"
#include "bench/training/train_report.h"
#include "bench/training/training_run.h"
#include "common/files.h"
#include "worker/flags.h"

namespace ringmaster::bench {
namespace {

void Print(const TrainOptions& options, const TrainCase& one, const TrainMeasurement& measured) {
  if (options.json) {
    fmt::print("{}\n", JsonReport(options, one, measured));
  } else {
    fmt::print("{}", TextReport(options, one, measured));
  }
  std::fflush(stdout);
}

// The backend reads the table when it is first asked for a kernel or its numerics class.
Status Prepare(const TrainOptions& options, const SampleImages& images, Backend* backend) {
  if (!options.tune) return absl::OkStatus();
  for (const TrainCase& one : options.cases) {
    RING_RETURN_IF_ERROR(
        Annotate(TuneTraining(options, one, images, backend), "--tune " + options.kernel_table));
  }
  return absl::OkStatus();
}

// A case that does not fit, or fails, does not end a sweep; its error is the result when any
// failed.
Status MeasureAll(const TrainOptions& options) {
  const std::optional<uint64_t> device_before =
      options.device == "cpu" ? std::nullopt : DeviceBytesUsed();
  if (!options.kernel_table.empty()) {
    setenv("RINGMASTER_KERNEL_TABLE", options.kernel_table.c_str(), 1);
  }
  RING_ASSIGN_OR_RETURN(const worker::DeviceChoice device, worker::ParseDevice(options.device));
  RING_ASSIGN_OR_RETURN(const auto backend, MakeBackend(device.kind, device.options));
  if (!options.keep.empty()) {
    RING_RETURN_IF_ERROR(MakePrivateFolder(options.keep, IfThere::kKeep));
    backend->KeepIn(options.keep);
  }
  RING_ASSIGN_OR_RETURN(const auto images, SampleImages::Open(options));
  RING_RETURN_IF_ERROR(Prepare(options, *images, backend.get()));
  Status first = absl::OkStatus();
  for (const TrainCase& one : options.cases) {
    StatusOr<TrainMeasurement> measured = MeasureTraining(options, one, *images, backend.get());
    if (measured.ok()) {
      std::optional<uint64_t>& used = measured->memory.device_used;
      if (device_before && used) {
        *used -= std::min(*used, *device_before);
      } else {
        used.reset();
      }
      Print(options, one, *measured);
      continue;
    }
    const Status failed =
        Annotate(measured.status(),
                 fmt::format("{}, batch {} in {} shards", one.policy, one.batch, one.shards));
    if (options.cases.size() > 1) fmt::print(stderr, "train_speed: {}\n", Message(failed));
    first.Update(failed);
  }
  return options.cases.size() > 1 ? Annotate(first, "not every case was measured") : first;
}

}  // namespace
}  // namespace ringmaster::bench

int main(int argc, char** argv) {
  using namespace ringmaster;
  spdlog::set_level(spdlog::level::warn);  // stdout is the report's
  const bench::ParsedTrainOptions parsed = bench::ParseTrainOptions(argc, argv);
  if (parsed.exit) return parsed.exit_code;
  const Status status = bench::MeasureAll(parsed.options);
  if (status.ok()) return 0;
  fmt::print(stderr, "train_speed: {}\n", Message(status));
  return 1;
}
