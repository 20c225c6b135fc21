#include "common/job/job_file.h"

#include <google/protobuf/message.h>

#include <charconv>
#include <cmath>
#include <limits>
#include <type_traits>

#include "common/job/field_names.h"
#include "common/job/overrides.h"
#include "common/job/yaml_tree.h"
#include "common/text.h"

namespace ringmaster::job {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::EnumDescriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

Status WrongType(const YamlNode& node, const std::string& what, const std::string& expected) {
  return InvalidArgument("{}: {}: expected {}, got {}", node.where, what, expected, Describe(node));
}

// ---- scalars ------------------------------------------------------------------------------------

bool IsPlain(const YamlNode& node) { return node.kind == YamlNode::Kind::kScalar && !node.quoted; }

template <typename Integer>
StatusOr<Integer> ReadInteger(const YamlNode& node, const std::string& what) {
  const std::string& text = node.text;
  const size_t digits = std::is_signed_v<Integer> && text.starts_with('-') ? 1 : 0;
  Integer value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  // A leading zero would be octal in older YAML and decimal in newer: refused instead.
  const bool ambiguous = text.size() > digits + 1 && text[digits] == '0';
  const bool negative = text.size() > 1 && text[0] == '-' &&
                        text.find_first_not_of("0123456789", 1) == std::string::npos;
  if (IsPlain(node) && !ambiguous &&
      (error == std::errc::result_out_of_range || (negative && digits == 0))) {
    return InvalidArgument("{}: {}: {} is not in {} to {}", node.where, what, text,
                           std::numeric_limits<Integer>::min(),
                           std::numeric_limits<Integer>::max());
  }
  if (!IsPlain(node) || ambiguous || error != std::errc() || end != text.data() + text.size()) {
    return WrongType(node, what, "a whole number");
  }
  return value;
}

StatusOr<double> ReadDouble(const YamlNode& node, const std::string& what) {
  const std::string& text = node.text;
  const char* const begin = text.data() + (text.starts_with('+') ? 1 : 0);
  const char* const last = text.data() + text.size();
  double value = 0;
  const auto [end, error] = std::from_chars(begin, last, value);
  if (!IsPlain(node) || end != last || error == std::errc::invalid_argument ||
      (error == std::errc() && !std::isfinite(value))) {
    return WrongType(node, what, "a number");
  }
  if (error == std::errc::result_out_of_range) {
    return InvalidArgument("{}: {}: {} does not fit into a double", node.where, what, text);
  }
  return value;
}

StatusOr<bool> ReadBool(const YamlNode& node, const std::string& what) {
  if (IsPlain(node) && node.text == "true") return true;
  if (IsPlain(node) && node.text == "false") return false;
  return WrongType(node, what, "true or false");
}

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

Status ReadMessage(const YamlNode& node, const std::string& what, Message* message);

// One value of a field: sets it, or adds it to a repeated one. `what` is its name in errors.
Status ReadValue(const YamlNode& node, const std::string& what, const FieldDescriptor& field,
                 Message* message) {
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
                                             : reflection.MutableMessage(message, &field));
    default:
      return Internal("{}: fields of type {} have no form in a job file", what,
                      field.cpp_type_name());
  }
}

Status ReadList(const YamlNode& node, const FieldDescriptor& field, const std::string& what,
                Message* message) {
  if (node.kind != YamlNode::Kind::kList) {
    return InvalidArgument("{}: {}: expected a list, got {}", node.where, what, Describe(node));
  }
  for (const YamlNode& item : node.items) {
    RING_RETURN_IF_ERROR(ReadValue(item, what, field, message));
  }
  return absl::OkStatus();
}

Status UnknownKey(const YamlNode::Member& member, const Descriptor& type) {
  std::vector<std::string> known;
  for (int i = 0; i < type.field_count(); ++i) known.push_back(type.field(i)->name());
  YamlNode key;
  key.kind = YamlNode::Kind::kScalar;
  key.text = member.key;
  if (known.empty()) {
    return InvalidArgument("{}: unknown key {}; there are no keys here: write {{}}", member.where,
                           Describe(key));
  }
  const std::string guess = Nearest(member.key, known);
  return InvalidArgument("{}: unknown key {}; {}", member.where, Describe(key),
                         guess.empty() ? fmt::format("the keys here are {}", fmt::join(known, ", "))
                                       : fmt::format("did you mean \"{}\"?", guess));
}

Status ReadMember(const YamlNode::Member& member, Message* message) {
  const Descriptor& type = *message->GetDescriptor();
  const FieldDescriptor* const field = type.FindFieldByName(member.key);
  if (field == nullptr) return UnknownKey(member, type);
  if (const auto* oneof = field->real_containing_oneof()) {
    const Reflection& reflection = *message->GetReflection();
    if (const auto* other = reflection.GetOneofFieldDescriptor(*message, oneof)) {
      return InvalidArgument("{}: both \"{}\" and \"{}\" are given; only one is allowed",
                             member.where, other->name(), field->name());
    }
  }
  if (field->is_repeated()) return ReadList(member.value, *field, field->name(), message);
  return ReadValue(member.value, field->name(), *field, message);
}

Status ReadMessage(const YamlNode& node, const std::string& what, Message* message) {
  if (const FieldDescriptor* const list = ListField(*message->GetDescriptor())) {
    // A list of one number may be written without brackets: `resize: 224`.
    if (node.kind == YamlNode::Kind::kScalar) return ReadValue(node, what, *list, message);
    return ReadList(node, *list, what, message);
  }
  if (node.kind != YamlNode::Kind::kMap) {
    return InvalidArgument("{}: {}: expected a mapping{}, got {}", node.where, what,
                           node.kind == YamlNode::Kind::kNull ? " (an empty one is {})" : "",
                           Describe(node));
  }
  for (const YamlNode::Member& member : node.members) {
    RING_RETURN_IF_ERROR(ReadMember(member, message));
  }
  return absl::OkStatus();
}

}  // namespace

Status ReadYaml(const std::string& name, const std::string& text, Message* message) {
  RING_ASSIGN_OR_RETURN(const YamlNode root, ParseYaml(name, text));
  return ReadMessage(root, name, message);
}

StatusOr<v1::JobSpec> ParseJobFile(const std::string& name, const std::string& text,
                                   const std::vector<std::string>& overrides) {
  RING_ASSIGN_OR_RETURN(YamlNode root, ParseYaml(name, text));
  if (root.kind == YamlNode::Kind::kNull) return InvalidArgument("{}: empty", name);
  for (const std::string& override : overrides) {
    RING_RETURN_IF_ERROR(ApplyOverride(override, &root));
  }
  v1::JobSpec spec;
  RING_RETURN_IF_ERROR(ReadMessage(root, "job", &spec));
  return spec;
}

}  // namespace ringmaster::job
