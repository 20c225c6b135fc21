// Writes one training step of alexnet to a folder, for alexnet_parity.py to repeat in PyTorch:
// parameters, images, labels, and what came out: loss, batch statistics, every gradient before
// quantization. Runs on the worker's CPU backend in float32, or on the float64 reference.
//   alexnet_step cpu|reference plain|batch_norm SAMPLES FOLDER
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "common/graph/ops/reference_executor.h"
#include "common/zoo/zoo.h"
#include "tests/support/model_option.h"
#include "tests/support/program_feeds.h"
#include "worker/backend/backend.h"

namespace ringmaster {
namespace {

// What a step yields, in float64 whatever computed it; in the program's order.
struct StepResult {
  double loss_sum = 0;
  double correct = 0;
  std::vector<std::vector<double>> gradients;
  std::vector<double> batch_means, batch_variances;
};

StatusOr<graph::Program> BuildAlexnet(bool batch_norm, int64_t samples) {
  v1::Model model;
  model.set_name("alexnet");
  testing::SetOption("batch_norm", batch_norm, &model);
  return zoo::BuildProgram(
      model, {.samples = samples, .height = 32, .width = 32, .channels = 3, .classes = 10});
}

StatusOr<StepResult> RunOnReference(const graph::Program& program,
                                    const graph::ReferenceFeeds& feeds) {
  RING_ASSIGN_OR_RETURN(const auto values,
                        graph::RunReference(program.graph, feeds, testing::KeysOf(program)));
  const auto at = [&](graph::ValueId id) { return values[static_cast<size_t>(id)]; };
  StepResult result = {
      at(program.scalars[0].value)[0], at(program.scalars[1].value)[0], {}, {}, {}};
  for (const auto& parameter : program.parameters) {
    result.gradients.push_back(at(parameter.gradient));
  }
  for (const auto& normalization : program.normalizations) {
    const auto mean = at(normalization.batch_mean);
    const auto variance = at(normalization.batch_variance);
    result.batch_means.insert(result.batch_means.end(), mean.begin(), mean.end());
    result.batch_variances.insert(result.batch_variances.end(), variance.begin(), variance.end());
  }
  return result;
}

std::vector<float> Floats(const std::vector<double>& values) {
  return {values.begin(), values.end()};
}

// The master arena of the step loop, in the program's gradient order.
StatusOr<exact::BlockLayout> MakeLayout(const graph::Program& program) {
  std::vector<exact::BlockLayout::Tensor> tensors;
  for (uint32_t number : program.gradient_order) {
    const auto elements = graph::Elements(program.parameters[number].shape);
    tensors.push_back({number, static_cast<uint64_t>(elements)});
  }
  return exact::BlockLayout::Create(tensors);
}

StatusOr<StepResult> RunOnBackend(const graph::Program& program,
                                  const graph::ReferenceFeeds& feeds) {
  RING_ASSIGN_OR_RETURN(const auto layout, MakeLayout(program));
  std::vector<float> arena(layout.arena_elements(), 0);
  for (uint32_t i = 0; i < program.parameters.size(); ++i) {
    const std::vector<double>& values = feeds.at(program.parameters[i].value);
    std::copy(values.begin(), values.end(),
              arena.begin() + static_cast<std::ptrdiff_t>(layout.tensor(i).offset()));
  }
  size_t channels = 0;
  for (const auto& normalization : program.normalizations) {
    channels += static_cast<size_t>(normalization.channels);
  }
  const std::vector<float> moving_means(channels, 0), moving_variances(channels, 1);

  RING_ASSIGN_OR_RETURN(auto backend, MakeBackend("cpu"));
  RING_ASSIGN_OR_RETURN(auto core, backend->MakeCore({.name = "core0", .cpus = {}}));
  RING_ASSIGN_OR_RETURN(auto weights, backend->MakeWeights(program));
  RING_ASSIGN_OR_RETURN(auto executable, core->Bind(program, *weights, nullptr));
  RING_RETURN_IF_ERROR(weights->Refresh(layout, arena, moving_means, moving_variances));

  const std::vector<float> images = Floats(feeds.at(program.fed("image")));
  const std::vector<double>& drawn = feeds.at(program.fed("label"));
  const std::vector<int32_t> labels(drawn.begin(), drawn.end());
  const graph::RandomKeys keys = testing::KeysOf(program);
  const ShardInput input = {.seed = keys.seed,
                            .step = keys.step,
                            .samples = keys.samples,
                            .columns = testing::Columns(images, labels),
                            .loss_seed = static_cast<float>(feeds.at(program.seeds[0].value)[0])};
  StepResult result;
  result.gradients.resize(program.parameters.size());
  ShardOutput output;
  RING_RETURN_IF_ERROR(
      executable->Run(input,
                      {.take =
                           [&](uint32_t parameter, std::span<const float> gradient) {
                             result.gradients[parameter].assign(gradient.begin(), gradient.end());
                           }},
                      &output));
  result.loss_sum = output.scalars[0];
  result.correct = output.scalars[1];
  result.batch_means.assign(output.batch_means.begin(), output.batch_means.end());
  result.batch_variances.assign(output.batch_variances.begin(), output.batch_variances.end());
  return result;
}

// A folder of raw little-endian float64 tensors, and `manifest`: a line `name file extents` each.
class Dump {
 public:
  explicit Dump(std::filesystem::path folder)
      : folder_(std::move(folder)), manifest_(folder_ / "manifest") {}

  void Add(const std::string& name, const graph::Shape& shape, const std::vector<double>& values) {
    const std::string file = fmt::format("tensor{}", count_++);
    std::ofstream out(folder_ / file, std::ios::binary);
    out.write(reinterpret_cast<const char*>(values.data()),
              static_cast<std::streamsize>(values.size() * sizeof(double)));
    failed_ = failed_ || !out.flush();
    manifest_ << name << ' ' << file;
    for (int64_t extent : shape) manifest_ << ' ' << extent;
    manifest_ << '\n';
  }

  Status Finish() {
    if (failed_ || !manifest_.flush()) return Internal("cannot write to {}", folder_.string());
    return absl::OkStatus();
  }

 private:
  std::filesystem::path folder_;
  std::ofstream manifest_;
  int count_ = 0;
  bool failed_ = false;
};

Status WriteStep(const graph::Program& program, const graph::ReferenceFeeds& feeds,
                 const StepResult& result, const std::string& folder) {
  Dump dump(folder);
  const auto shape = [&](graph::ValueId id) { return program.graph.value(id).shape; };
  dump.Add("images", shape(program.fed("image")), feeds.at(program.fed("image")));
  dump.Add("labels", shape(program.fed("label")), feeds.at(program.fed("label")));
  dump.Add("loss_seed", {}, feeds.at(program.seeds[0].value));
  dump.Add("loss_sum", {}, {result.loss_sum});
  dump.Add("correct", {}, {result.correct});
  dump.Add("batch_means", {static_cast<int64_t>(result.batch_means.size())}, result.batch_means);
  dump.Add("batch_variances", {static_cast<int64_t>(result.batch_variances.size())},
           result.batch_variances);
  for (size_t i = 0; i < program.parameters.size(); ++i) {
    const graph::Parameter& parameter = program.parameters[i];
    dump.Add("parameter:" + parameter.name, parameter.shape, feeds.at(parameter.value));
    dump.Add("gradient:" + parameter.name, parameter.shape, result.gradients[i]);
  }
  return dump.Finish();
}

Status RunStep(const std::string& engine, const std::string& variant, int64_t samples,
               const std::string& folder) {
  RING_ASSIGN_OR_RETURN(const graph::Program program,
                        BuildAlexnet(variant == "batch_norm", samples));
  // The seed of the loss is that of a global batch four times as large as this shard.
  const graph::ReferenceFeeds feeds = testing::FeedProgram(
      program, {.loss_seed = static_cast<float>(0.25 / static_cast<double>(samples))});
  RING_ASSIGN_OR_RETURN(const StepResult result, engine == "cpu" ? RunOnBackend(program, feeds)
                                                                 : RunOnReference(program, feeds));
  return WriteStep(program, feeds, result, folder);
}

}  // namespace
}  // namespace ringmaster

int main(int argc, char** argv) {
  if (argc != 5) {
    std::fputs("usage: alexnet_step cpu|reference plain|batch_norm SAMPLES FOLDER\n", stderr);
    return 2;
  }
  const ringmaster::Status status =
      ringmaster::RunStep(argv[1], argv[2], std::atoll(argv[3]), argv[4]);
  if (status.ok()) return 0;
  std::fprintf(stderr, "alexnet_step: %s\n", ringmaster::Message(status).c_str());
  return 1;
}
