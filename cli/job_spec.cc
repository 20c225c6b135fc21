#include "cli/job_spec.h"

#include <filesystem>

#include <absl/strings/ascii.h>
#include <absl/strings/str_join.h>

#include "common/data/format.h"
#include "common/job/field_names.h"
#include "common/job/job_file.h"
#include "common/job/resolve.h"
#include "common/job/rules.h"
#include "common/model/read_model.h"
#include "common/yaml/scalar.h"

namespace ringmaster::cli {
namespace {

constexpr const char* kUsualOptimizer = "adam";

std::string LastFolder(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path.substr(path.rfind('/') + 1);
}

// Of a model file, without its folder and its ending.
std::string StemOf(const std::string& file) { return std::filesystem::path(file).stem().string(); }

// What a name must not hold becomes a dash.
std::string NameOf(std::string name) {
  for (char& c : name) {
    c = absl::ascii_tolower(static_cast<unsigned char>(c));
    if (!absl::ascii_isalnum(static_cast<unsigned char>(c)) && c != '.' && c != '_') c = '-';
  }
  return name.substr(0,
                     job::RulesOf(*v1::JobSpec::descriptor()->FindFieldByName("name")).max_bytes());
}

// MODEL-FORMAT, or with the folder in place of a format that only the workers will know.
std::string NameOf(const std::string& model, const v1::DataSource& data) {
  return NameOf(model + '-' + (data.format().empty() ? LastFolder(data.path()) : data.format()));
}

// NAME of NAME.py; a job's name begins with a letter or a digit.
std::string NameOfScript(const std::string& file) {
  const std::string name = NameOf(StemOf(file));
  const size_t begin = name.find_first_of("abcdefghijklmnopqrstuvwxyz0123456789");
  return begin == std::string::npos ? "script" : name.substr(begin);
}

std::vector<std::string> FieldNames(const google::protobuf::Descriptor& type) {
  std::vector<std::string> names;
  for (int i = 0; i < type.field_count(); ++i) names.push_back(type.field(i)->name());
  return names;
}

// The member of `message` with that name is there then; nullptr when it has none.
google::protobuf::Message* AddMember(const std::string& name, google::protobuf::Message* message) {
  const auto* const field = message->GetDescriptor()->FindFieldByName(name);
  if (field == nullptr) return nullptr;
  return message->GetReflection()->MutableMessage(message, field);
}

Status SetOptimizer(const RunOptions& options, v1::Optimizer* optimizer) {
  google::protobuf::Message* const kind =
      AddMember(options.optimizer.empty() ? kUsualOptimizer : options.optimizer, optimizer);
  const auto* const rate =
      kind == nullptr ? nullptr : kind->GetDescriptor()->FindFieldByName("learning_rate");
  if (rate == nullptr) {
    return InvalidArgument("--optimizer {}: expected {}", options.optimizer,
                           absl::StrJoin(OptimizerNames(), ", "));
  }
  if (options.learning_rate) kind->GetReflection()->SetDouble(kind, rate, *options.learning_rate);
  return absl::OkStatus();
}

void SetLength(const RunOptions& options, v1::JobSpec* spec) {
  if (options.steps) {
    spec->set_steps(*options.steps);
  } else {
    spec->set_epochs(options.epochs.value_or(1));
  }
}

Status AddAugmentations(const RunOptions& options, v1::JobSpec* spec) {
  for (const std::string& name : options.augment) {
    if (AddMember(name, spec->add_augment()) == nullptr) {
      return InvalidArgument("--augment {}: expected {}", name,
                             absl::StrJoin(AugmentationNames(), ", "));
    }
  }
  return absl::OkStatus();
}

// What is of models alone.
Status CheckForScript(const RunOptions& options) {
  const char* const given = !options.data.empty()        ? "--data"
                            : !options.optimizer.empty() ? "--optimizer"
                            : options.learning_rate      ? "--learning-rate"
                            : !options.augment.empty()   ? "--augment"
                                                         : nullptr;
  if (given == nullptr) return absl::OkStatus();
  return InvalidArgument("{}: {} says it itself; leave it out", given, options.model);
}

Status CheckForModel(const RunOptions& options) {
  if (options.data.empty()) {
    return InvalidArgument("--data: missing: where a worker finds the data of {}", options.model);
  }
  if (!options.batch) return InvalidArgument("--batch: missing: samples of one step");
  if (options.arguments.empty() && options.include.empty()) return absl::OkStatus();
  return InvalidArgument("{}: only a script, NAME.py, has it; {} is a model",
                         options.include.empty() ? "--" : "--include", options.model);
}

Status SetPrecision(const std::string& precision, v1::JobSpec* spec) {
  const auto* const policy = job::FindByShortName(*v1::Policy_descriptor(), precision);
  if (policy == nullptr) return InvalidArgument("--precision {} is not known", precision);
  spec->mutable_precision()->set_policy(static_cast<v1::Policy>(policy->number()));
  return absl::OkStatus();
}

ScriptOptions ScriptOf(const RunOptions& options) {
  ScriptOptions script = {.file = options.model,
                          .arguments = options.arguments,
                          .include = options.include,
                          .batch = options.batch,
                          .epochs = options.epochs,
                          .workers_min = options.workers_min,
                          .steps = options.steps,
                          .overrides = options.overrides,
                          .name = options.name};
  script.overrides.insert(script.overrides.begin(),
                          fmt::format("precision.policy={}", options.precision));
  return script;
}

}  // namespace

bool IsScript(const std::string& file) { return file.ends_with(".py"); }

StatusOr<v1::JobSpec> SpecOf(const ScriptOptions& options) {
  v1::JobSpec spec;
  spec.set_name(options.name.empty() ? NameOfScript(options.file) : options.name);
  v1::Script& script = *spec.mutable_script();
  script.set_file(std::filesystem::path(options.file).filename());
  script.mutable_include()->Assign(options.include.begin(), options.include.end());
  script.mutable_args()->Assign(options.arguments.begin(), options.arguments.end());
  if (options.batch) spec.set_batch(*options.batch);
  if (options.epochs) spec.set_epochs(*options.epochs);
  if (options.steps) spec.set_steps(*options.steps);
  if (options.workers_min) spec.mutable_workers()->set_min(*options.workers_min);
  RING_ASSIGN_OR_RETURN(
      spec, job::ParseJobFile(options.file, job::PrintJobFile(spec), options.overrides,
                              job::FilesBeside(options.file), job::ScriptBeside(options.file)));
  RING_RETURN_IF_ERROR(job::Validate(spec));
  return spec;
}

StatusOr<v1::DataSource> ParseData(const std::string& text) {
  v1::DataSource data;
  const bool address = text.find(':') == text.find("://");  // https: is no format
  const size_t colon = address ? std::string::npos : text.find(':');
  data.set_path(text.substr(colon == std::string::npos ? 0 : colon + 1));
  if (colon == std::string::npos) return data;
  data.set_format(text.substr(0, colon));
  const Status known = data::FindFormat(data.format()).status();
  if (!known.ok()) return Annotate(known, "--data " + text);
  return data;
}

std::vector<std::string> AugmentationNames() { return FieldNames(*v1::Augmentation::descriptor()); }

std::vector<std::string> OptimizerNames() {
  const auto* const rule = v1::Optimizer::descriptor()->FindOneofByName("kind");
  std::vector<std::string> names;
  for (int i = 0; i < rule->field_count(); ++i) names.push_back(rule->field(i)->name());
  return names;
}

StatusOr<v1::JobSpec> SpecOf(const RunOptions& options) {
  if (IsScript(options.model)) {
    RING_RETURN_IF_ERROR(CheckForScript(options));
    return SpecOf(ScriptOf(options));
  }
  RING_RETURN_IF_ERROR(CheckForModel(options));
  v1::JobSpec spec;
  RING_ASSIGN_OR_RETURN(*spec.mutable_data(), ParseData(options.data));
  const bool is_file = model::IsFileName(options.model);
  const std::string model = is_file ? StemOf(options.model) : options.model;
  spec.set_name(options.name.empty() ? NameOf(model, spec.data()) : options.name);
  std::vector<std::string> overrides = options.overrides;
  if (is_file) {
    overrides.insert(overrides.begin(),
                     fmt::format("model={{file: {}}}", PrintWord(options.model)));
  } else {
    spec.mutable_model()->set_name(options.model);
  }
  spec.set_batch(*options.batch);
  SetLength(options, &spec);
  RING_RETURN_IF_ERROR(SetPrecision(options.precision, &spec));
  RING_RETURN_IF_ERROR(SetOptimizer(options, spec.mutable_optimizer()));
  RING_RETURN_IF_ERROR(AddAugmentations(options, &spec));
  if (options.workers_min) spec.mutable_workers()->set_min(*options.workers_min);
  RING_ASSIGN_OR_RETURN(spec, job::ParseJobFile("ringctl run", job::PrintJobFile(spec), overrides,
                                                job::FilesBeside("")));
  RING_RETURN_IF_ERROR(job::Validate(spec));
  return spec;
}

}  // namespace ringmaster::cli
