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

std::string LastFolder(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path.substr(path.rfind('/') + 1);
}

// Of a model file, without its folder and its ending.
std::string StemOf(const std::string& file) { return std::filesystem::path(file).stem().string(); }

// MODEL-FORMAT, or with the folder in place of a format that only the workers will know; what a
// name must not hold becomes a dash.
std::string NameOf(const std::string& model, const v1::DataSource& data) {
  std::string name =
      model + '-' + (data.format().empty() ? LastFolder(data.path()) : data.format());
  for (char& c : name) {
    c = absl::ascii_tolower(static_cast<unsigned char>(c));
    if (!absl::ascii_isalnum(static_cast<unsigned char>(c)) && c != '.' && c != '_') c = '-';
  }
  return name.substr(0,
                     job::RulesOf(*v1::JobSpec::descriptor()->FindFieldByName("name")).max_bytes());
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
  google::protobuf::Message* const kind = AddMember(options.optimizer, optimizer);
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

}  // namespace

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
  spec.set_batch(options.batch);
  SetLength(options, &spec);
  const auto* const policy = job::FindByShortName(*v1::Policy_descriptor(), options.precision);
  if (policy == nullptr) return InvalidArgument("--precision {} is not known", options.precision);
  spec.mutable_precision()->set_policy(static_cast<v1::Policy>(policy->number()));
  RING_RETURN_IF_ERROR(SetOptimizer(options, spec.mutable_optimizer()));
  RING_RETURN_IF_ERROR(AddAugmentations(options, &spec));
  if (options.workers_min) spec.mutable_workers()->set_min(*options.workers_min);
  RING_ASSIGN_OR_RETURN(spec, job::ParseJobFile("ringctl run", job::PrintJobFile(spec), overrides,
                                                job::FilesBeside("")));
  RING_RETURN_IF_ERROR(job::Validate(spec));
  return spec;
}

}  // namespace ringmaster::cli
