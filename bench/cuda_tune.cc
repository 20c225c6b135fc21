// Writes the kernel table of this host's GPU: the quickest kernels for the shards of models of the
// zoo, found by timing. Jobs read the table and time nothing. A table that is there is kept, and
// only shapes that it lacks are timed.
//
//   cuda_tune --model alexnet --samples 1024 --policy mixed_bfloat16 --table kernel_table.txt
#include <CLI/CLI.hpp>
#include <filesystem>
#include <fstream>

#include "common/zoo/zoo.h"
#include "worker/backend/cuda/tune.h"

namespace ringmaster {
namespace {

struct Options {
  std::vector<std::string> models = {"alexnet", "vgg", "mlp"};
  std::vector<int64_t> samples = {256};
  std::vector<std::string> policies = {"float32", "mixed_bfloat16", "mixed_float16"};
  std::vector<int64_t> images = {32, 32, 3};
  int64_t classes = 10;
  bool batch_norm = false;
  bool narrow = false;
  std::string table = "kernel_table.txt";
};

StatusOr<v1::Policy> PolicyOf(const std::string& name) {
  if (name == "float32") return v1::POLICY_FLOAT32;
  if (name == "mixed_bfloat16") return v1::POLICY_MIXED_BFLOAT16;
  if (name == "mixed_float16") return v1::POLICY_MIXED_FLOAT16;
  return InvalidArgument("`{}` is no policy; expected float32, mixed_bfloat16 or mixed_float16",
                         name);
}

StatusOr<graph::Program> ProgramOf(const Options& options, const std::string& model_name,
                                   const std::string& policy, int64_t samples) {
  v1::Model model;
  model.set_name(model_name);
  if (options.batch_norm && model_name != "mlp") model.set_batch_norm(true);
  RING_ASSIGN_OR_RETURN(const v1::Model resolved, zoo::ResolveModel(model));
  RING_ASSIGN_OR_RETURN(const v1::Policy compute, PolicyOf(policy));
  return zoo::BuildProgram(resolved, {.mode = graph::Mode::kTraining,
                                      .samples = samples,
                                      .height = options.images[0],
                                      .width = options.images[1],
                                      .channels = options.images[2],
                                      .classes = options.classes,
                                      .policy = compute});
}

Status Save(const cuda::PlanTable& table, const std::string& path) {
  const std::string fresh = path + ".new";
  std::ofstream file(fresh);
  file << table.Print();
  file.close();
  std::error_code error;
  if (file) std::filesystem::rename(fresh, path, error);
  if (file && !error) return absl::OkStatus();
  return Error(absl::StatusCode::kUnavailable, "{}: cannot be written", path);
}

void Report(const cuda::Tuned& tuned) {
  fmt::print("{:9.1f} us, {:9.1f} us untuned, {:3} candidates: {} {}\n", tuned.microseconds,
             tuned.untuned, tuned.candidates, tuned.key.op, tuned.key.shape);
  std::fflush(stdout);
}

Status TuneAll(const Options& options) {
  RING_ASSIGN_OR_RETURN(const auto devices, cuda::FindDevices());
  RING_ASSIGN_OR_RETURN(const auto device, cuda::Device::Open(devices.front()));
  const auto gradient_bits =
      options.narrow ? cuda::GradientBits::kMayBeRounded : cuda::GradientBits::kKept;
  cuda::PlanTable table;
  if (std::filesystem::exists(options.table)) {
    RING_ASSIGN_OR_RETURN(table, cuda::PlanTable::Load(options.table));
  }
  for (const std::string& model : options.models) {
    for (const std::string& policy : options.policies) {
      for (const int64_t samples : options.samples) {
        fmt::print("{}, {}, {} samples on {}\n", model, policy, samples, device->facts().name);
        RING_ASSIGN_OR_RETURN(const auto program, ProgramOf(options, model, policy, samples));
        RING_RETURN_IF_ERROR(cuda::Tune(program, *device, gradient_bits, &table, Report));
        RING_RETURN_IF_ERROR(Save(table, options.table));
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace ringmaster

int main(int argc, char** argv) {
  ringmaster::Options options;
  CLI::App app("Writes the kernel table of this host's GPU.");
  app.add_option("--model", options.models, "models of the zoo")->delimiter(',');
  app.add_option("--samples", options.samples, "samples of a shard")->delimiter(',');
  app.add_option("--policy", options.policies, "policies")->delimiter(',');
  app.add_option("--images", options.images, "height, width, channels")
      ->delimiter(',')
      ->expected(3);
  app.add_option("--classes", options.classes, "classes");
  app.add_flag("--batch-norm", options.batch_norm, "models with batch normalization");
  app.add_flag("--narrow", options.narrow,
               "lets gradients of weights be rounded to 16 bits where that is quicker");
  app.add_option("--table", options.table, "the file to write, or to add to");
  CLI11_PARSE(app, argc, argv);
  const ringmaster::Status status = ringmaster::TuneAll(options);
  if (!status.ok()) fmt::print(stderr, "cuda_tune: {}\n", ringmaster::Message(status));
  return status.ok() ? 0 : 1;
}
