// ringctl init [FILE]: a commented job file to begin with.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

#include "cli/commands/commands.h"
#include "cli/show/terminal.h"
#include "common/check.h"
#include "common/files.h"
#include "common/job/field_names.h"
#include "common/job/keys.h"
#include "common/job/rules.h"
#include "common/yaml/yaml_tree.h"
#include "common/zoo/model_table.h"
#include "ringmaster/v1/job.pb.h"

namespace ringmaster::cli {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::OneofDescriptor;
using job::Key;

constexpr char kHeader[] = R"(# A training job: ringctl submit THIS-FILE --watch
#
# What stands in a comment is a default, or another choice. Any value can be replaced when the job is
# submitted: --set batch=64 --set optimizer.adam.learning_rate=0.01
)";

// What is no comment, beside the keys that every job needs.
constexpr char kChosen[] = R"(data: {format: cifar10}
epochs: 3
precision: {policy: float32}
optimizer: {adam: {learning_rate: 0.001}}
augment: [{random_crop: {padding: 4}}, {random_flip: {}}, {per_image_standardization: {}}]
checkpoint: {every_steps: 100}
)";

constexpr size_t kCommentColumn = 27, kColumns = 100;

// Where the keys of a mapping stand.
struct Level {
  std::string indent;
  bool commented = false;  // the indent has the comment's sign
};

const YamlNode* FindKey(const YamlNode* map, const std::string& key) {
  if (map == nullptr) return nullptr;
  for (const YamlNode::Member& member : map->members) {
    if (member.key == key) return &member.value;
  }
  return nullptr;
}

const YamlNode* FindInList(const YamlNode* list, const std::string& key) {
  if (list == nullptr) return nullptr;
  for (const YamlNode& item : list->items) {
    if (const YamlNode* const value = FindKey(&item, key)) return value;
  }
  return nullptr;
}

// What the line of a key says beside its value: what it is for, what is allowed, the default.
std::string Words(const Key& key, const std::string& value) {
  std::string words = key.help;
  if (!key.limits.empty()) words += " (" + key.limits + ")";
  const bool silent = key.by_default.empty() || key.by_default == value;
  return silent ? words : words + "; default: " + key.by_default;
}

class TemplateWriter {
 public:
  std::string Write() {
    const StatusOr<YamlNode> chosen = ParseYaml("template", kChosen);
    RING_CHECK(chosen.ok(), "the template's own choices are no YAML");
    text_ = kHeader;
    WriteMapping(*v1::JobSpec::descriptor(), &*chosen, {});
    return text_;
  }

 private:
  // How a key is written: as it is, in a comment, or in one as another choice.
  enum class Form { kPlain, kComment, kOther };

  void WriteMapping(const Descriptor& type, const YamlNode* chosen, const Level& level) {
    if (&type == v1::Model::descriptor()) return WriteModel(level);
    for (int i = 0; i < type.field_count(); ++i) {
      const FieldDescriptor& field = *type.field(i);
      if (!job::IsKey(field)) continue;
      const OneofDescriptor* const oneof = field.real_containing_oneof();
      if (oneof == nullptr) {
        const YamlNode* const value = FindKey(chosen, field.name());
        const bool plain = value != nullptr || job::RulesOf(field).required();
        WriteKey(field, value, level, plain ? Form::kPlain : Form::kComment, "");
      } else if (oneof->field(0) == &field) {
        WriteOneof(*oneof, chosen, level);
      }
    }
  }

  // The name, then this model's options and what may stand instead.
  void WriteModel(const Level& level) {
    const auto models = zoo::ListModels();
    std::string named;
    for (const Key& key : job::ModelKeys()) {
      if (key.path == "name") named = key.example;
      const auto model = std::ranges::find(models, named, &zoo::ModelDescription::name);
      const bool option = model != models.end() &&
                          std::ranges::count(model->options, key.path, &FieldDescription::name) > 0;
      if (key.path != "name" && key.path != "file" && !option) continue;
      const char* const sign = key.path == "name" ? "" : key.path == "file" ? "# or " : "# ";
      WriteLine(level.indent + sign + key.path + ": " + key.example, Words(key, key.example));
    }
  }

  // First the member that is chosen, or the first; then the other choices.
  void WriteOneof(const OneofDescriptor& oneof, const YamlNode* chosen, const Level& level) {
    std::vector<const FieldDescriptor*> members;
    for (int i = 0; i < oneof.field_count(); ++i) members.push_back(oneof.field(i));
    const auto is_chosen = [&](const FieldDescriptor* member) {
      return FindKey(chosen, member->name()) != nullptr;
    };
    std::stable_partition(members.begin(), members.end(), is_chosen);
    for (const FieldDescriptor* const member : members) {
      WriteKey(*member, FindKey(chosen, member->name()), level,
               member == members.front() ? Form::kPlain : Form::kOther, "");
    }
  }

  // An item for each kind that an element of the list can be, or one that is a mapping.
  void WriteItems(const Descriptor& element, const YamlNode* chosen, const Level& level) {
    const bool mapping = element.real_oneof_decl_count() == 0;
    for (int i = 0; mapping && i < element.field_count(); ++i) {
      WriteKey(*element.field(i), nullptr, level, Form::kComment, i == 0 ? "- " : "  ");
    }
    for (int i = 0; !mapping && i < element.field_count(); ++i) {
      const YamlNode* const value = FindInList(chosen, element.field(i)->name());
      WriteKey(*element.field(i), value, level, value != nullptr ? Form::kPlain : Form::kComment,
               "- ");
    }
  }

  void WriteKey(const FieldDescriptor& field, const YamlNode* chosen, const Level& level, Form form,
                const std::string& dash) {
    if (job::IsByName(field)) form = Form::kOther;  // no mapping without names is right
    const Key key = job::Describe(field);
    const Descriptor* const part = field.message_type();
    const bool nested = part != nullptr && part->field_count() > 0 &&
                        job::ListField(*part) == nullptr && part != v1::Layer::descriptor();
    if (level.indent.empty()) Separate(nested);
    const bool scalar = chosen != nullptr && chosen->kind == YamlNode::Kind::kScalar;
    std::string value = scalar ? chosen->text : key.example;
    if (part != nullptr && part->field_count() == 0) value = "{}";
    // Another choice stays a comment, with what stands in it, when the comment around it goes.
    const bool comment = (form == Form::kOther && nested) || !level.commented;
    const std::string sign = form != Form::kPlain && comment ? "# " : "";
    const std::string other = form == Form::kOther ? "or " : "";
    WriteLine(level.indent + sign + other + dash + key.path + (nested ? ":" : ": ") + value,
              Words(key, value));
    if (!nested) return;
    const Level below{level.indent + sign + std::string(dash.size() + 2, ' '),
                      level.commented || form != Form::kPlain};
    if (job::IsByName(field)) {
      const Key each = job::Describe(*part->field(1));
      WriteLine(below.indent + "NAME: " + each.example, Words(each, each.example));
    } else if (field.is_repeated()) {
      WriteItems(*part, chosen, below);
    } else {
      WriteMapping(*part, chosen, below);
    }
  }

  // An empty line around each mapping of the job.
  void Separate(bool nested) {
    if (nested || after_mapping_) text_ += '\n';
    after_mapping_ = nested;
  }

  void WriteLine(const std::string& line, const std::string& words) {
    const size_t column = std::max(kCommentColumn, line.size() + 2);
    std::string begin = line + std::string(column - line.size(), ' ');
    for (const std::string& part : WrapTo(std::max(kColumns, column + 30) - 2 - column, words)) {
      text_ += begin + "# " + part + '\n';
      begin = std::string(column, ' ');
    }
  }

  std::string text_;
  bool after_mapping_ = true;
};

// Every key with its default, its range and what it is for, from the rules of job.proto. Parses and
// validates as it stands. A line `# key: value` is a key that may be uncommented, a mapping with
// the lines below it; `# or key: value` another choice, in place of the key above.
std::string JobTemplate() { return TemplateWriter().Write(); }

// O_EXCL: a file that is there stays as it is.
Status WriteNew(const std::string& file, const std::string& text) {
  const OwnedFile opened(open(file.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
  if (!opened.valid() && errno == EEXIST) {
    return Error(absl::StatusCode::kAlreadyExists,
                 "{} exists and stays as it is; name another file, or - for stdout", file);
  }
  if (!opened.valid()) return InvalidArgument("cannot create {}: {}", file, std::strerror(errno));
  if (WriteAll(opened.get(), text)) return absl::OkStatus();
  const Status status = Internal("cannot write {}: {}", file, std::strerror(errno));
  unlink(file.c_str());  // of a part nobody has anything
  return status;
}

StatusOr<ExitCode> Init(const std::string& file) {
  if (file == "-") {
    Print(JobTemplate());
    return ExitCode::kOk;
  }
  RING_RETURN_IF_ERROR(WriteNew(file, JobTemplate()));
  Say(fmt::format("wrote {0}: edit it, then `ringctl submit {0} --watch`", file));
  return ExitCode::kOk;
}

}  // namespace

void AddInit(CommandLine& line) {
  const auto file = std::make_shared<std::string>("job.yaml");
  line.Add("init", "write a job file with every key, its default and its range",
           Examples("ringctl init", "ringctl init - | less"), [file] { return Init(*file); })
      ->add_option("FILE", *file, "new file; - is stdout")
      ->default_str("job.yaml");
}

}  // namespace ringmaster::cli
