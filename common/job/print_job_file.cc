#include <absl/strings/str_join.h>
#include <google/protobuf/message.h>

#include <vector>

#include "common/job/field_names.h"
#include "common/job/job_file.h"
#include "common/model/print_model.h"
#include "common/yaml/scalar.h"

namespace ringmaster::job {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

std::string FlowOf(const Message& message);

// Element `index` of a repeated field, or the value of a singular one (index -1).
std::string ValueYaml(const Message& message, const FieldDescriptor& field, int index) {
  const Reflection& reflection = *message.GetReflection();
  const auto get = [&](auto singular, auto repeated) {
    return index < 0 ? (reflection.*singular)(message, &field)
                     : (reflection.*repeated)(message, &field, index);
  };
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_UINT32:
      return fmt::format("{}", get(&Reflection::GetUInt32, &Reflection::GetRepeatedUInt32));
    case FieldDescriptor::CPPTYPE_UINT64:
      return fmt::format("{}", get(&Reflection::GetUInt64, &Reflection::GetRepeatedUInt64));
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return fmt::format("{}", get(&Reflection::GetDouble, &Reflection::GetRepeatedDouble));
    case FieldDescriptor::CPPTYPE_BOOL:
      return get(&Reflection::GetBool, &Reflection::GetRepeatedBool) ? "true" : "false";
    case FieldDescriptor::CPPTYPE_STRING:
      return PrintWord(get(&Reflection::GetString, &Reflection::GetRepeatedString));
    case FieldDescriptor::CPPTYPE_ENUM:
      return ShortName(*get(&Reflection::GetEnum, &Reflection::GetRepeatedEnum));
    case FieldDescriptor::CPPTYPE_MESSAGE:
      return FlowOf(index < 0 ? reflection.GetMessage(message, &field)
                              : reflection.GetRepeatedMessage(message, &field, index));
    default:
      return "null";
  }
}

// Of an element of a list that is written as a mapping.
std::string MemberYaml(const Message& element) {
  const auto& type = *element.GetDescriptor();
  return ValueYaml(element, *type.field(0), -1) + ": " + ValueYaml(element, *type.field(1), -1);
}

std::string FieldYaml(const Message& message, const FieldDescriptor& field) {
  if (!field.is_repeated()) return ValueYaml(message, field, -1);
  const Reflection& reflection = *message.GetReflection();
  const bool by_name = IsByName(field);
  std::vector<std::string> items;
  for (int i = 0; i < reflection.FieldSize(message, &field); ++i) {
    items.push_back(by_name ? MemberYaml(reflection.GetRepeatedMessage(message, &field, i))
                            : ValueYaml(message, field, i));
  }
  if (by_name) return '{' + absl::StrJoin(items, ", ") + '}';
  return '[' + absl::StrJoin(items, ", ") + ']';
}

// `key: value` of each field that is set, in the proto's order.
std::vector<std::string> Members(const Message& message) {
  std::vector<std::string> members;
  for (int i = 0; i < message.GetDescriptor()->field_count(); ++i) {
    const FieldDescriptor& field = *message.GetDescriptor()->field(i);
    const Reflection& reflection = *message.GetReflection();
    const bool present = field.is_repeated() ? reflection.FieldSize(message, &field) > 0
                                             : reflection.HasField(message, &field);
    if (present && IsKey(field)) members.push_back(field.name() + ": " + FieldYaml(message, field));
  }
  return members;
}

std::string FlowOf(const Message& message) {
  if (const auto* model = google::protobuf::DynamicCastToGenerated<v1::Model>(&message)) {
    return model::PrintInline(*model);
  }
  if (const auto* output = google::protobuf::DynamicCastToGenerated<v1::Layer>(&message)) {
    return model::PrintOutput(*output);
  }
  if (const FieldDescriptor* const list = ListField(*message.GetDescriptor())) {
    return FieldYaml(message, *list);
  }
  return '{' + absl::StrJoin(Members(message), ", ") + '}';
}

}  // namespace

std::string PrintValue(const Message& message, const FieldDescriptor& field) {
  return FieldYaml(message, field);
}

std::string PrintJobFile(const v1::JobSpec& spec) {
  std::string text;
  for (const std::string& member : Members(spec)) text += member + '\n';
  return text.empty() ? "{}\n" : text;  // nothing at all is no mapping
}

}  // namespace ringmaster::job
