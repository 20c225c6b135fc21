// job::Validate: what can be checked about a JobSpec without a cluster. What a key may be by itself
// stands in job.proto and is checked by rules.cc; here is what several keys say together, and what
// is no range.
#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "common/data/columns.h"
#include "common/data/data_url.h"
#include "common/data/format.h"
#include "common/ids.h"
#include "common/job/image_rules.h"
#include "common/job/metrics.h"
#include "common/job/resolve.h"
#include "common/job/rules.h"
#include "common/job/sample_use.h"
#include "common/job/script_files.h"
#include "common/job/update_rules.h"
#include "common/model/build.h"
#include "common/model/fine_tuning.h"
#include "common/text.h"
#include "common/zoo/model_table.h"

namespace ringmaster::job {
namespace {

bool IsNameCharacter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '.' || c == '_' || c == '-';
}

Status CheckName(const std::string& name) {
  const bool starts =
      IsNameCharacter(name[0]) && name[0] != '.' && name[0] != '_' && name[0] != '-';
  if (starts && std::all_of(name.begin(), name.end(), IsNameCharacter)) return absl::OkStatus();
  return InvalidArgument(
      "name: \"{}\" is not allowed: a to z and 0 to 9 first, then also . _ and -", name);
}

Status CheckPath(const std::string& path) {
  if (path.find('\0') != std::string::npos) {
    return InvalidArgument("data.path: there is a zero byte in it");
  }
  if (data::IsDataUrl(path)) return Annotate(data::ParseDataUrl(path).status(), "data.path");
  if (path[0] == '/') {
    return InvalidArgument("data.path: {} is absolute; it must be relative to --data-root", path);
  }
  for (size_t begin = 0; begin <= path.size();) {
    const size_t end = std::min(path.find('/', begin), path.size());
    if (path.substr(begin, end - begin) == "..") {
      return InvalidArgument("data.path: {} leaves --data-root by `..`", path);
    }
    begin = end + 1;
  }
  return absl::OkStatus();
}

Status CheckFormat(const std::string& format) {
  if (format.empty()) return absl::OkStatus();  // the workers look what is there
  const std::vector<std::string> known = data::FormatNames();
  if (std::find(known.begin(), known.end(), format) != known.end()) return absl::OkStatus();
  return InvalidArgument("data.format: \"{}\" is not known; known: {}",
                         OneLine(format, kMaxNameText), fmt::join(known, ", "));
}

Status CheckData(const v1::DataSource& data) {
  RING_RETURN_IF_ERROR(CheckFormat(data.format()));
  const int sides = data.resize().values_size();
  if (data.has_resize() && (sides < 1 || sides > 2)) {
    return InvalidArgument(
        "data.resize: {} numbers; expected [height, width], or one number for both", sides);
  }
  RING_RETURN_IF_ERROR(data::CsvDelimiter(data).status());
  return CheckPath(data.path());
}

// Layers, losses and metrics that somebody wrote, and what of a model is frozen, on what such data
// usually are; who resolves the job knows.
Status CheckLayers(const v1::JobSpec& spec) {
  const bool written = spec.model().layers_size() > 0 || !spec.loss().empty() ||
                       !spec.metrics().empty() || spec.freeze_size() > 0;
  if (!written || spec.data().format().empty()) return absl::OkStatus();
  const auto facts = data::UsualFacts(spec.data());
  if (!facts.ok()) return absl::OkStatus();
  if (!ResolveColumns(spec, *facts).ok()) return absl::OkStatus();
  RING_ASSIGN_OR_RETURN(v1::Graph graph, GraphOf(spec, *facts));
  return model::Freeze(spec.freeze(), &graph);
}

Status CheckModel(const v1::JobSpec& spec) {
  RING_RETURN_IF_ERROR(model::Resolve(spec.model()).status());
  const bool named = spec.model().layers_size() == 0;
  const bool compares = spec.kind() != v1::JOB_KIND_PREDICT;
  return named && compares ? zoo::CheckLoss(spec.model()) : absl::OkStatus();
}

Status CheckPrecision(const v1::Precision& precision) {
  if (precision.policy() == v1::POLICY_MIXED_FLOAT16) return absl::OkStatus();
  if (!precision.has_initial_loss_scale() && !precision.has_growth_steps()) return absl::OkStatus();
  return InvalidArgument("precision.{}: only policy mixed_float16 scales the loss; leave it out",
                         precision.has_growth_steps() ? "growth_steps" : "initial_loss_scale");
}

Status CheckValidation(const v1::JobSpec& spec) {
  RING_RETURN_IF_ERROR(WatchesOf(spec).status());
  return spec.has_validation() ? ParseValidation(spec.validation()).status() : absl::OkStatus();
}

Status CheckJobKind(const v1::JobSpec& spec) {
  const v1::EvaluationOptions& evaluate = spec.evaluate();
  const bool evaluates = spec.kind() == v1::JOB_KIND_EVALUATE;
  const bool predicts = spec.kind() == v1::JOB_KIND_PREDICT;
  if (!evaluates && evaluate.split() != v1::SAMPLE_SPLIT_UNSPECIFIED) {
    return InvalidArgument("evaluate.split: only a job of kind evaluate has it; {}",
                           predicts ? "write predict.split" : "leave it out");
  }
  if (!predicts && spec.has_predict()) {
    return InvalidArgument("predict: only a job of kind predict has it; leave it out");
  }
  if (!evaluates && !predicts) return absl::OkStatus();
  if (spec.validation().has_folds()) {
    return InvalidArgument("validation.folds: only a job that trains has it; leave it out");
  }
  if (evaluate.has_every_steps()) {
    return InvalidArgument("evaluate.every_steps: only a job that trains has it; leave it out");
  }
  if (!spec.has_init()) {
    return InvalidArgument("init: missing: the weights that {}; for example init: {{job: j0001}}",
                           evaluates ? "are evaluated" : "predict");
  }
  const v1::SampleSplit split = evaluates ? evaluate.split() : spec.predict().split();
  if (split != v1::SAMPLE_SPLIT_VALIDATION || spec.has_validation()) return absl::OkStatus();
  return InvalidArgument(
      "{}.split: there is no validation set: add validation: {{split: 0.1}}, or choose test or "
      "train",
      evaluates ? "evaluate" : "predict");
}

Status CheckBegin(const v1::JobSpec& spec) {
  if (spec.validation().has_folds() && spec.has_continue_()) {
    return InvalidArgument(
        "validation.folds, continue: a state is of one fold; continue each fold's job, with "
        "validation.fold");
  }
  if (spec.has_init() && spec.has_continue_()) {
    return InvalidArgument(
        "init, continue: a job that goes on with another one's state has its weights; leave one of "
        "them out");
  }
  return spec.has_init() ? model::CheckInit(spec.init()) : absl::OkStatus();
}

Status CheckClasses(const v1::JobSpec& complete) {
  const v1::WorkerRange& workers = complete.workers();
  if (workers.classes().empty() || !complete.has_shards()) return absl::OkStatus();
  if (workers.mix() == v1::MIX_NONE) {
    return InvalidArgument(
        "workers.classes: with workers.mix none one class computes all shards; add mix: fixed or "
        "mix: fallback, or leave the classes out");
  }
  std::set<std::string> names;
  uint64_t sum = 0;
  for (const v1::ClassShards& each : workers.classes()) {
    sum += each.shards();
    if (names.insert(each.class_()).second) continue;
    return InvalidArgument("workers.classes: {} stands there twice", each.class_());
  }
  if (sum != complete.shards()) {
    return InvalidArgument("workers.classes: {} shards in all, but the job has {}", sum,
                           complete.shards());
  }
  if (names.size() <= workers.max()) return absl::OkStatus();
  return InvalidArgument("workers.max {} is smaller than the number of workers.classes, {}",
                         workers.max(), names.size());
}

// Of a job of a script that does not say them they are known at its attach.
Status CheckShards(const v1::JobSpec& complete) {
  const v1::WorkerRange& workers = complete.workers();
  if (complete.has_shards() && complete.has_batch() && complete.batch() < complete.shards()) {
    return InvalidArgument(
        "batch {} is smaller than shards {}: each shard needs a sample; lower shards or raise "
        "batch",
        complete.batch(), complete.shards());
  }
  if (complete.has_shards() && workers.min() > complete.shards()) {
    return InvalidArgument(
        "workers.min {} is larger than shards {}: each worker needs a shard; lower workers.min or "
        "raise shards",
        workers.min(), complete.shards());
  }
  if (workers.has_max() && workers.max() < workers.min()) {
    return InvalidArgument("workers.max {} is smaller than workers.min {}", workers.max(),
                           workers.min());
  }
  return CheckClasses(complete);
}

bool IsVariableName(const std::string& name) {
  const auto letter = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
  };
  return !name.empty() && letter(name[0]) &&
         std::ranges::all_of(name, [&](char c) { return letter(c) || (c >= '0' && c <= '9'); });
}

Status CheckEnvironment(const v1::Script& script) {
  constexpr const char* kOurs = "RINGMASTER_";
  std::set<std::string> names;
  for (const v1::ScriptVariable& variable : script.env()) {
    const std::string name = OneLine(variable.name(), kMaxNameText);
    if (!IsVariableName(variable.name())) {
      return InvalidArgument(
          "script.env: \"{}\" is no name of a variable: letters, digits and _, no digit first",
          name);
    }
    if (name.starts_with(kOurs)) {
      return InvalidArgument("script.env: {}: names that begin with {} are the worker's", name,
                             kOurs);
    }
    if (!names.insert(variable.name()).second) {
      return InvalidArgument("script.env: {} stands there twice", name);
    }
    if (variable.value().find('\0') != std::string::npos) {
      return InvalidArgument("script.env: {}: there is a zero byte in it", name);
    }
  }
  return absl::OkStatus();
}

Status CheckScript(const v1::JobSpec& spec) {
  const v1::Script& script = spec.script();
  if (script.files_size() > 0) RING_RETURN_IF_ERROR(CheckScriptFiles(script));
  for (const std::string& argument : script.args()) {
    if (argument.find('\0') == std::string::npos) continue;
    return InvalidArgument("script.args: there is a zero byte in one of them");
  }
  if (!script.python().empty() && !IsName(script.python())) {
    return InvalidArgument(
        "script.python: \"{}\" is no name of an interpreter: letters, digits, '.', '_' and '-'; "
        "ringworker --python NAME=PATH gives it one",
        OneLine(script.python(), kMaxNameText));
  }
  if (spec.has_optimizer()) {
    return InvalidArgument("optimizer: the script says it, and its rates; leave it out");
  }
  if (!spec.checkpoint().best().empty()) {
    return InvalidArgument("checkpoint.best: a job of a script evaluates nothing; leave it out");
  }
  if (spec.init().layout() > v1::TENSOR_LAYOUT_RINGMASTER) {
    return InvalidArgument(
        "init.layout: the tensors of a script have the names and axes of its module; leave it out");
  }
  RING_RETURN_IF_ERROR(CheckBegin(spec));
  RING_RETURN_IF_ERROR(CheckEnvironment(script));
  return CheckPrecision(spec.precision());
}

}  // namespace

Status Validate(const v1::JobSpec& spec) {
  RING_RETURN_IF_ERROR(CheckRules(spec));
  RING_RETURN_IF_ERROR(CheckName(spec.name()));
  const v1::JobSpec complete = WithDefaults(spec);
  if (spec.has_script()) {
    RING_RETURN_IF_ERROR(CheckScript(spec));
    return CheckShards(complete);
  }
  RING_RETURN_IF_ERROR(CheckModel(spec));
  RING_RETURN_IF_ERROR(CheckData(spec.data()));
  RING_RETURN_IF_ERROR(CheckAugment(spec, complete));
  RING_RETURN_IF_ERROR(CheckLayers(spec));
  RING_RETURN_IF_ERROR(CheckBegin(spec));
  RING_RETURN_IF_ERROR(CheckPrecision(spec.precision()));
  RING_RETURN_IF_ERROR(CheckJobKind(spec));
  RING_RETURN_IF_ERROR(CheckValidation(spec));
  if (spec.has_optimizer()) RING_RETURN_IF_ERROR(CheckOptimizer(spec));
  return CheckShards(complete);
}

}  // namespace ringmaster::job
