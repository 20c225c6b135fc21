#include "common/job/job_file.h"

#include <google/protobuf/message.h>

#include <algorithm>
#include <filesystem>

#include "common/files.h"
#include "common/job/field_names.h"
#include "common/job/keys.h"
#include "common/job/overrides.h"
#include "common/job/script_files.h"
#include "common/model/item.h"
#include "common/model/read_model.h"
#include "common/text.h"
#include "common/yaml/scalar.h"

namespace ringmaster::job {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::EnumDescriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

StatusOr<std::string> ReadString(const YamlNode& node, const std::string& what) {
  if (node.kind == YamlNode::Kind::kScalar) return node.text;
  return WrongType(node, what, "a string");
}

StatusOr<int> ReadEnum(const YamlNode& node, const std::string& what, const EnumDescriptor& type) {
  const std::vector<std::string> names = ShortNames(type);
  const std::string expected = fmt::format("one of {}", fmt::join(names, ", "));
  if (node.kind != YamlNode::Kind::kScalar) return WrongType(node, what, expected);
  if (const auto* value = FindByShortName(type, node.text)) return value->number();
  const std::string guess = Nearest(node.text, names);
  return InvalidArgument("{}: {}: unknown value {}; expected {}{}", node.where, what,
                         Describe(node), expected,
                         guess.empty() ? "" : fmt::format("; did you mean \"{}\"?", guess));
}

// ---- messages -----------------------------------------------------------------------------------

Status ReadMessage(const YamlNode& node, const std::string& what, Message* message,
                   const model::ReadFile& files);

// One value of a field: sets it, or adds it to a repeated one. `what` is its name in errors.
Status ReadValue(const YamlNode& node, const std::string& what, const FieldDescriptor& field,
                 Message* message, const model::ReadFile& files) {
  const Reflection& reflection = *message->GetReflection();
  const auto store = [&](auto value, auto set, auto add) -> Status {
    if (!value.ok()) return value.status();
    (reflection.*(field.is_repeated() ? add : set))(message, &field, *std::move(value));
    return absl::OkStatus();
  };
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_UINT32:
      return store(ReadInteger<uint32_t>(node, what), &Reflection::SetUInt32,
                   &Reflection::AddUInt32);
    case FieldDescriptor::CPPTYPE_UINT64:
      return store(ReadInteger<uint64_t>(node, what), &Reflection::SetUInt64,
                   &Reflection::AddUInt64);
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return store(ReadDouble(node, what), &Reflection::SetDouble, &Reflection::AddDouble);
    case FieldDescriptor::CPPTYPE_BOOL:
      return store(ReadBool(node, what), &Reflection::SetBool, &Reflection::AddBool);
    case FieldDescriptor::CPPTYPE_STRING:
      return store(ReadString(node, what), &Reflection::SetString, &Reflection::AddString);
    case FieldDescriptor::CPPTYPE_ENUM:
      return store(ReadEnum(node, what, *field.enum_type()), &Reflection::SetEnumValue,
                   &Reflection::AddEnumValue);
    case FieldDescriptor::CPPTYPE_MESSAGE:
      return ReadMessage(node, what,
                         field.is_repeated() ? reflection.AddMessage(message, &field)
                                             : reflection.MutableMessage(message, &field),
                         files);
    default:
      return Internal("{}: fields of type {} have no form in a job file", what,
                      field.cpp_type_name());
  }
}

Status ReadList(const YamlNode& node, const FieldDescriptor& field, const std::string& what,
                Message* message, const model::ReadFile& files) {
  if (node.kind != YamlNode::Kind::kList) {
    return InvalidArgument("{}: {}: expected a list, got {}", node.where, what, Describe(node));
  }
  for (const YamlNode& item : node.items) {
    RING_RETURN_IF_ERROR(ReadValue(item, what, field, message, files));
  }
  return absl::OkStatus();
}

// `{a: 1, b: 2}`, of which each member is a message of two fields.
Status ReadByName(const YamlNode& node, const FieldDescriptor& field, Message* message,
                  const model::ReadFile& files) {
  if (node.kind != YamlNode::Kind::kMap) {
    return InvalidArgument("{}: {}: expected a mapping, got {}", node.where, field.name(),
                           Describe(node));
  }
  const Descriptor& type = *field.message_type();
  for (const YamlNode::Member& member : node.members) {
    Message* const part = message->GetReflection()->AddMessage(message, &field);
    part->GetReflection()->SetString(part, type.field(0), member.key);
    RING_RETURN_IF_ERROR(ReadValue(member.value, member.key, *type.field(1), part, files));
  }
  return absl::OkStatus();
}

StatusOr<const FieldDescriptor*> FieldOf(const std::string& key, const std::string& where,
                                         const Descriptor& type) {
  const FieldDescriptor* const field = type.FindFieldByName(key);
  if (field != nullptr && IsKey(*field)) return field;
  std::vector<std::string> known;
  for (int i = 0; i < type.field_count(); ++i) {
    if (IsKey(*type.field(i))) known.push_back(type.field(i)->name());
  }
  if (!known.empty()) return model::UnknownKey({key, where, {}}, known);
  return InvalidArgument("{}: unknown key \"{}\"; there are no keys here: write {{}}", where,
                         OneLine(key, kMaxNameText));
}

Status ReadMember(const YamlNode::Member& member, Message* message, const model::ReadFile& files) {
  const Descriptor& type = *message->GetDescriptor();
  RING_ASSIGN_OR_RETURN(const FieldDescriptor* const field,
                        FieldOf(member.key, member.where, type));
  if (const auto* oneof = field->real_containing_oneof()) {
    const Reflection& reflection = *message->GetReflection();
    if (const auto* other = reflection.GetOneofFieldDescriptor(*message, oneof)) {
      return InvalidArgument("{}: both \"{}\" and \"{}\" are given; only one is allowed",
                             member.where, other->name(), field->name());
    }
  }
  if (field->message_type() == v1::Layer::descriptor()) {
    const bool loss = field->number() == v1::JobSpec::kLossFieldNumber;
    using Role = graph::Output::Role;
    RING_ASSIGN_OR_RETURN(const auto outputs,
                          model::ReadOutputs(member.value, loss ? Role::kLoss : Role::kMeasure));
    auto* const spec = google::protobuf::DynamicCastToGenerated<v1::JobSpec>(message);
    *(loss ? spec->mutable_loss() : spec->mutable_metrics()) = outputs;
    return absl::OkStatus();
  }
  if (IsByName(*field)) return ReadByName(member.value, *field, message, files);
  if (field->is_repeated()) return ReadList(member.value, *field, field->name(), message, files);
  return ReadValue(member.value, field->name(), *field, message, files);
}

Status ReadMessage(const YamlNode& node, const std::string& what, Message* message,
                   const model::ReadFile& files) {
  if (auto* const model = google::protobuf::DynamicCastToGenerated<v1::Model>(message)) {
    RING_ASSIGN_OR_RETURN(*model, model::ReadModel(node, files));
    return absl::OkStatus();
  }
  if (const FieldDescriptor* const list = ListField(*message->GetDescriptor())) {
    // A list of one number may be written without brackets: `resize: 224`.
    if (node.kind == YamlNode::Kind::kScalar) return ReadValue(node, what, *list, message, files);
    return ReadList(node, *list, what, message, files);
  }
  const FieldDescriptor* const alone = AloneField(*message->GetDescriptor());
  if (alone != nullptr && node.kind == YamlNode::Kind::kScalar) {
    return ReadValue(node, what, *alone, message, files);
  }
  if (node.kind != YamlNode::Kind::kMap) {
    return InvalidArgument("{}: {}: expected a mapping{}, got {}", node.where, what,
                           node.kind == YamlNode::Kind::kNull ? " (an empty one is {})" : "",
                           Describe(node));
  }
  for (const YamlNode::Member& member : node.members) {
    RING_RETURN_IF_ERROR(ReadMember(member, message, files));
  }
  return absl::OkStatus();
}

// ---- what --set removes that is not there -------------------------------------------------------

// A file's own options are keys, too: what they are the file says.
Status CheckModelKey(const std::string& key, const std::string& where, const YamlNode& root) {
  const YamlNode* const given = model::FindKey(root, "model");
  const bool is_file = given != nullptr && model::FindKey(*given, "file") != nullptr;
  std::vector<std::string> known;
  for (const Key& one : ModelKeys()) known.push_back(one.path);
  if (is_file || std::ranges::find(known, key) != known.end()) return absl::OkStatus();
  return model::UnknownKey({key, where, {}}, known);
}

// A job may do without it, but there is such a key. Below layers and names anything may stand.
Status CheckAbsentKey(const std::vector<std::string>& path, const std::string& where,
                      const YamlNode& root) {
  const Descriptor* type = v1::JobSpec::descriptor();
  for (size_t at = 0; at < path.size(); ++at) {
    if (type == v1::Model::descriptor()) return CheckModelKey(path[at], where, root);
    if (type == nullptr) {
      return InvalidArgument("{}: \"{}\" is under \"{}\", which is neither a mapping nor a list",
                             where, path[at], path[at - 1]);
    }
    RING_ASSIGN_OR_RETURN(const FieldDescriptor* field, FieldOf(path[at], where, *type));
    type = field->message_type();
    if (type == v1::Layer::descriptor() || IsByName(*field)) return absl::OkStatus();
    const FieldDescriptor* const list = type == nullptr ? nullptr : ListField(*type);
    if (list != nullptr) type = list->message_type();
    if (list == nullptr && !field->is_repeated()) continue;
    if (++at == path.size()) return absl::OkStatus();
    if (path[at].empty() || path[at].find_first_not_of("0123456789") != std::string::npos) {
      return InvalidArgument("{}: \"{}\" is not a position of a list", where, path[at]);
    }
  }
  return absl::OkStatus();
}

}  // namespace

model::ReadFile FilesBeside(const std::string& job_file) {
  const auto folder = std::filesystem::path(job_file).parent_path();
  return [folder](const std::string& path) -> StatusOr<std::string> {
    if (path.empty() || path == "-" || path.find('\0') != std::string::npos) {
      return InvalidArgument("model: expected the name of a file");
    }
    return ReadNamedFile("model file", folder / path);
  };
}

ReadScript ScriptBeside(const std::string& job_file) {
  const std::string folder = std::filesystem::path(job_file).parent_path();
  return [folder](v1::Script* script) { return ReadScriptFiles(folder, script); };
}

Status ReadYaml(const std::string& name, const std::string& text, Message* message) {
  RING_ASSIGN_OR_RETURN(const YamlNode root, ParseYaml(name, text));
  return ReadMessage(root, name, message, nullptr);
}

StatusOr<v1::JobSpec> ParseJobFile(const std::string& name, const std::string& text,
                                   const std::vector<std::string>& overrides,
                                   const model::ReadFile& files, const ReadScript& script_files) {
  RING_ASSIGN_OR_RETURN(YamlNode root, ParseYaml(name, text));
  if (root.kind == YamlNode::Kind::kNull) return InvalidArgument("{}: empty", name);
  for (const std::string& override : overrides) {
    RING_RETURN_IF_ERROR(
        ApplyOverride(override, &root, "--set",
                      [&root](const std::vector<std::string>& path, const std::string& where) {
                        return CheckAbsentKey(path, where, root);
                      }));
  }
  v1::JobSpec spec;
  RING_RETURN_IF_ERROR(ReadMessage(root, "job", &spec, files));
  if (spec.has_script() && script_files != nullptr) {
    RING_RETURN_IF_ERROR(Annotate(script_files(spec.mutable_script()), name));
  }
  return spec;
}

}  // namespace ringmaster::job
