// ringctl evaluate JOB: submits the job that evaluates another one's weights, and shows what came
// of it. ringctl predict JOB: likewise the one that predicts, whose rows it fetches into a file.
#include <fmt/ranges.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cli/checkpoint_download.h"
#include "cli/commands/commands.h"
#include "cli/follow.h"
#include "cli/show/json.h"
#include "cli/show/names.h"
#include "common/data/formats/npy.h"
#include "common/files.h"
#include "common/job/field_names.h"
#include "common/job/metrics.h"
#include "common/job/resolve.h"
#include "common/safetensors.h"

namespace ringmaster::cli {
namespace {

constexpr char kPredictions[] = "predictions.safetensors";

struct WeightsOptions {
  std::string job;
  std::optional<uint64_t> step;
  std::string data, format, split;
  bool detach = false;
  // Of predict.
  std::vector<std::string> outputs;
  std::string out;
};

// How many classes that job's labels have, where it has such: other data may not show them all.
Status SetClasses(Client& client, const std::string& trained, v1::DataSource* data) {
  RING_ASSIGN_OR_RETURN(const v1::Graph graph, client.GetGraph(trained));
  std::optional<int64_t> classes;
  for (const v1::Node& node : graph.nodes()) {
    if (node.op() != "softmax_cross_entropy" || node.inputs_size() != 2) continue;
    for (const v1::Column& column : graph.columns()) {
      if (column.name() != node.inputs(1)) continue;
      if (classes && *classes != column.limit()) return absl::OkStatus();  // of several targets
      classes = column.limit();
    }
  }
  if (classes) data->set_classes(static_cast<uint32_t>(*classes));
  return absl::OkStatus();
}

// Which job to name instead of one without training.
std::string WhoseWeights(const v1::JobSpec& spec) {
  return spec.init().job().empty() ? "a job that trains" : spec.init().job();
}

// Everything that a job without training depends on, so that it gives `trained`'s own numbers.
StatusOr<v1::JobSpec> SpecOf(Client& client, const v1::JobStatus& trained, v1::JobKind kind,
                             const WeightsOptions& options) {
  constexpr size_t kMostName = 88;
  const bool predicts = kind == v1::JOB_KIND_PREDICT;
  v1::JobSpec spec = trained.spec();
  if (spec.kind() == v1::JOB_KIND_EVALUATE || spec.kind() == v1::JOB_KIND_PREDICT) {
    return FailedPrecondition("{} has no weights of its own; name {}, whose weights it has",
                              trained.job_id(), WhoseWeights(spec));
  }
  if (spec.has_script()) {
    return FailedPrecondition(
        "{0} runs a script, which alone knows how to use its weights: `ringctl checkpoint get {0} "
        "FOLDER`, then model.load_state_dict(ringmaster.torch.load(\"FOLDER\"))",
        trained.job_id());
  }
  if (trained.folds_size() > 0) {
    return FailedPrecondition("{} is a cross-validation; name one of its folds, as {}",
                              trained.job_id(), trained.folds(0).job_id());
  }
  const bool average = job::WithDefaults(spec).optimizer().ema().evaluate();
  spec.set_kind(kind);
  spec.set_name(spec.name().substr(0, kMostName) + (predicts ? "-predictions" : "-evaluation"));
  spec.clear_length();
  spec.clear_optimizer();
  spec.clear_checkpoint();
  spec.clear_freeze();
  spec.clear_continue_();
  spec.clear_stop();
  spec.mutable_evaluate()->clear_every_steps();
  v1::Init init;
  init.set_job(trained.job_id());
  if (options.step) init.set_step(*options.step);
  if (average) init.set_average(true);
  *spec.mutable_init() = init;
  if (!options.data.empty()) {
    spec.mutable_data()->set_path(options.data);
    spec.mutable_data()->set_format(options.format);
    spec.mutable_data()->clear_take();
    spec.mutable_data()->clear_take_test();
    RING_RETURN_IF_ERROR(SetClasses(client, trained.job_id(), spec.mutable_data()));
    spec.clear_validation();
  }
  if (predicts) {
    *spec.mutable_predict()->mutable_outputs() = {options.outputs.begin(), options.outputs.end()};
  }
  if (!options.split.empty()) {
    const auto* const value = job::FindByShortName(*v1::SampleSplit_descriptor(), options.split);
    if (value == nullptr) {
      return InvalidArgument("--split: expected train, validation or test, got {}", options.split);
    }
    const auto split = static_cast<v1::SampleSplit>(value->number());
    predicts ? spec.mutable_predict()->set_split(split) : spec.mutable_evaluate()->set_split(split);
  }
  RING_RETURN_IF_ERROR(job::Validate(spec));
  return spec;
}

// Submits it and waits for its end. A job of predictions is waited for as it is.
StatusOr<v1::JobStatus> RunOnWeights(Client& client, v1::JobKind kind,
                                     const WeightsOptions& options) {
  RING_ASSIGN_OR_RETURN(const std::string trained, client.IdOf(options.job));
  RING_ASSIGN_OR_RETURN(const v1::JobStatus status, client.Get(trained));
  const bool predicts = kind == v1::JOB_KIND_PREDICT;
  std::string job_id = trained;
  if (predicts && status.spec().kind() == v1::JOB_KIND_PREDICT &&
      (options.step || !options.data.empty() || !options.split.empty() ||
       !options.outputs.empty())) {
    return InvalidArgument(
        "{} is a job of predictions, whose rows are fetched as they are: name {} to predict anew, "
        "or leave --split, --step, --data and --outputs out",
        trained, WhoseWeights(status.spec()));
  }
  if (!predicts || status.spec().kind() != v1::JOB_KIND_PREDICT) {
    v1::SubmitRequest request;
    RING_ASSIGN_OR_RETURN(*request.mutable_spec(), SpecOf(client, status, kind, options));
    RING_ASSIGN_OR_RETURN(job_id, SubmitOnce(client, request));
    Say(fmt::format("{} {} {}; `ringctl watch {}` shows it", job_id,
                    predicts ? "predicts with the weights of" : "evaluates", trained, job_id));
  }
  return Follow(client, job_id, {}, [](const auto&) {});
}

StatusOr<ExitCode> Detach(const Common& common, Client& client, v1::JobKind kind,
                          const WeightsOptions& options) {
  RING_ASSIGN_OR_RETURN(const std::string trained, client.IdOf(options.job));
  RING_ASSIGN_OR_RETURN(const v1::JobStatus status, client.Get(trained));
  Submission submission;
  RING_ASSIGN_OR_RETURN(*submission.request.mutable_spec(), SpecOf(client, status, kind, options));
  return SubmitJob(common, submission);
}

Status CheckOptions(const WeightsOptions& options) {
  if (!options.data.empty() || options.format.empty()) return absl::OkStatus();
  return InvalidArgument("--format: it says how the files of --data are laid out; give both");
}

ExitCode SayHowItEnded(const v1::JobStatus& ended) {
  Say(fmt::format("{}: {}", StateName(ended.state()), ended.reason()));
  return ExitCodeOf(ended.state());
}

// ---- evaluate -----------------------------------------------------------------------------------

void PrintMetrics(const v1::JobStatus& status) {
  std::string text;
  for (const v1::Metric& metric : status.metrics()) {
    text += fmt::format("{}/{} {}\n", job::NameOf(metric.split()), metric.name(), metric.value());
  }
  Print(text);
}

StatusOr<ExitCode> Evaluate(const Common& common, const WeightsOptions& options) {
  RING_RETURN_IF_ERROR(CheckOptions(options));
  RING_ASSIGN_OR_RETURN(Client client, Client::Create(common.coordinator));
  if (options.detach) return Detach(common, client, v1::JOB_KIND_EVALUATE, options);
  RING_ASSIGN_OR_RETURN(const v1::JobStatus ended,
                        RunOnWeights(client, v1::JOB_KIND_EVALUATE, options));
  if (common.json()) {
    Print(ToJson(ended).dump() + "\n");
    return ExitCodeOf(ended.state());
  }
  if (ended.state() != v1::JOB_STATE_SUCCEEDED) return SayHowItEnded(ended);
  PrintMetrics(ended);
  return ExitCode::kOk;
}

// ---- predict ------------------------------------------------------------------------------------

// The whole file of the job's one checkpoint, which was verified.
StatusOr<std::string> FetchPredictions(Client& client, const std::string& job_id,
                                       const std::string& folder) {
  RING_ASSIGN_OR_RETURN(const v1::ListCheckpointsResponse checkpoints,
                        client.ListCheckpoints(job_id));
  if (checkpoints.checkpoints().empty()) {
    return Error(absl::StatusCode::kNotFound, "job {} has no predictions any more", job_id);
  }
  const v1::CheckpointRef& last = *checkpoints.checkpoints().rbegin();
  RING_ASSIGN_OR_RETURN(CheckpointDownload download,
                        CheckpointDownload::Create(folder, last.sha256()));
  RING_RETURN_IF_ERROR(client.GetCheckpoint(
      job_id, last.step(), [&](const v1::FilePiece& piece) { return download.Add(piece); }));
  RING_RETURN_IF_ERROR(download.Commit().status());
  return ReadNamedFile("predictions", (std::filesystem::path(folder) / kPredictions).string());
}

// A new one, on the disk of `out`.
StatusOr<std::string> FolderBeside(const std::string& out) {
  std::error_code ignored;
  const std::filesystem::path above = std::filesystem::path(out).parent_path();
  if (!above.empty()) std::filesystem::create_directories(above, ignored);
  std::string folder = out + ".partial-XXXXXX";
  if (mkdtemp(folder.data()) != nullptr) return folder;
  return InvalidArgument("--out: cannot make a folder beside {}: {}; choose another place", out,
                         std::strerror(errno));
}

StatusOr<std::string> AsNpy(const TensorViews& rows) {
  if (rows.size() != 1) {
    return InvalidArgument(
        "--out: a .npy file holds one array, and the job has {}; write a .safetensors file, or "
        "choose one with --outputs",
        rows.size());
  }
  const TensorView& values = rows.begin()->second;
  const std::vector<uint64_t> shape(values.shape.begin(), values.shape.end());
  const std::vector<uint8_t> header = data::WriteNpyHeader(data::Number::kFloat32, shape);
  std::string file(header.begin(), header.end());
  file.append(reinterpret_cast<const char*>(values.bytes.data()), values.bytes.size());
  return file;
}

// A line a sample; of probabilities also the class that has the largest.
std::string AsCsv(const TensorViews& rows) {
  struct Part {
    std::string name;
    std::vector<float> values;
    size_t elements = 1;
    bool classes = false;
  };
  std::vector<Part> parts;
  std::string csv = "sample";
  size_t samples = 0;
  for (const auto& [name, view] : rows) {
    Part& part = parts.emplace_back();
    part.name = name;
    samples = static_cast<size_t>(view.shape.at(0));
    for (size_t i = 1; i < view.shape.size(); ++i) {
      part.elements *= static_cast<size_t>(view.shape[i]);
    }
    part.values.resize(view.bytes.size() / sizeof(float));
    std::memcpy(part.values.data(), view.bytes.data(), view.bytes.size());
    part.classes = name.ends_with("probabilities") && view.shape.size() == 2 && part.elements > 1;
    if (part.classes)
      csv += "," + (parts.size() > 1 || rows.size() > 1 ? name + "_" : "") + "class";
    for (size_t i = 0; i < part.elements; ++i) {
      csv += part.elements == 1 ? "," + name : fmt::format(",{}_{}", name, i);
    }
  }
  csv += '\n';
  for (size_t sample = 0; sample < samples; ++sample) {
    csv += fmt::format("{}", sample);
    for (const Part& part : parts) {
      const auto row = std::span(part.values).subspan(sample * part.elements, part.elements);
      if (part.classes) csv += fmt::format(",{}", std::ranges::max_element(row) - row.begin());
      for (const float value : row) fmt::format_to(std::back_inserter(csv), ",{}", value);
    }
    csv += '\n';
  }
  return csv;
}

StatusOr<std::string> As(const std::string& extension, const std::string& file) {
  if (extension == ".safetensors") return file;
  RING_ASSIGN_OR_RETURN(const TensorViews rows, ReadSafetensors(file));
  if (extension == ".npy") return AsNpy(rows);
  return AsCsv(rows);
}

StatusOr<ExitCode> Predict(const Common& common, const WeightsOptions& options) {
  RING_RETURN_IF_ERROR(CheckOptions(options));
  const std::string extension = std::filesystem::path(options.out).extension();
  const bool known = extension == ".safetensors" || extension == ".npy" || extension == ".csv";
  if (!options.detach && !known) {
    return InvalidArgument(
        "--out: expected a name that ends in .safetensors, .npy or .csv, got \"{}\"", options.out);
  }
  RING_ASSIGN_OR_RETURN(Client client, Client::Create(common.coordinator));
  if (options.detach) return Detach(common, client, v1::JOB_KIND_PREDICT, options);
  RING_ASSIGN_OR_RETURN(const v1::JobStatus ended,
                        RunOnWeights(client, v1::JOB_KIND_PREDICT, options));
  if (ended.state() != v1::JOB_STATE_SUCCEEDED) return SayHowItEnded(ended);
  RING_ASSIGN_OR_RETURN(const std::string folder, FolderBeside(options.out));
  const StatusOr<std::string> fetched = FetchPredictions(client, ended.job_id(), folder);
  std::error_code ignored;
  std::filesystem::remove_all(folder, ignored);
  RING_RETURN_IF_ERROR(fetched.status());
  RING_ASSIGN_OR_RETURN(const std::string content, As(extension, *fetched));
  RING_RETURN_IF_ERROR(WriteDurably(options.out, content, 0644));
  RING_ASSIGN_OR_RETURN(const TensorViews rows, ReadSafetensors(*fetched));
  std::vector<std::string> words;
  Json outputs = Json::object();
  for (const auto& [name, view] : rows) {
    words.push_back(fmt::format("{} ({})", name, fmt::join(view.shape, ", ")));
    outputs[name] = view.shape;
  }
  if (common.json()) {
    Print(Json{{"job_id", ended.job_id()}, {"path", options.out}, {"outputs", outputs}}.dump() +
          "\n");
  } else {
    Say(fmt::format("{}: {}", options.out, fmt::join(words, ", ")));
  }
  return ExitCode::kOk;
}

// What both have. `split`: what --split is when it is absent.
void AddOptions(CLI::App* command, WeightsOptions* options, const std::string& split) {
  command->add_option("--split", options->split, "train, validation or test; when absent " + split)
      ->type_name("SPLIT");
  command->add_option("--step", options->step, "that of this step");
  command
      ->add_option(
          "--data", options->data,
          "other data of the same columns: a folder, relative to the workers' --data-root, or an "
          "address")
      ->type_name("PATH");
  command->add_option("--format", options->format, "of --data; when absent it is found")
      ->type_name("FORMAT");
  command->add_flag("--detach", options->detach, "print the new job's id and return");
}

}  // namespace

void AddEvaluate(CommandLine& line) {
  const auto options = std::make_shared<WeightsOptions>();
  CLI::App* const command =
      line.Add("evaluate",
               "evaluate the weights of a job, on its own held-out samples or on other data; waits "
               "and prints the metrics",
               Examples("ringctl evaluate j0001 --split test",
                        "ringctl evaluate j0001 --data other/pictures --split train -o json"),
               [&line, options] { return Evaluate(line.common(), *options); });
  command->add_option("JOB", options->job, "whose checkpoint: its best, else its newest")
      ->required();
  AddOptions(command, options.get(), "all that is held out");
}

void AddPredict(CommandLine& line) {
  const auto options = std::make_shared<WeightsOptions>();
  CLI::App* const command =
      line.Add("predict",
               "write what the weights of a job say of each sample, in the data's order, to a "
               "file; waits for it",
               Examples("ringctl predict j0001 --data new/pictures --out classes.csv",
                        "ringctl predict j0001 --split validation --out held_out.safetensors",
                        "ringctl predict j0001 --outputs features --out features.npy"),
               [&line, options] { return Predict(line.common(), *options); });
  command
      ->add_option("JOB", options->job,
                   "whose checkpoint: its best, else its newest; or a job of predictions, whose "
                   "rows are fetched")
      ->required();
  command
      ->add_option("--out", options->out, "a file, .safetensors, .npy or .csv, which is replaced")
      ->type_name("FILE");
  command
      ->add_option("--outputs", options->outputs,
                   "layers whose values are wanted; when absent what the losses read, as "
                   "probabilities where they are of classes")
      ->type_name("LAYER")
      ->delimiter(',');
  AddOptions(command, options.get(), "test, or train where there is none");
}

}  // namespace ringmaster::cli
