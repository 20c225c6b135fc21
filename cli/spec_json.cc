// ToJson of a job's settings: the keys and values of a job file, read by reflection.
#include <google/protobuf/message.h>

#include "cli/json.h"
#include "common/job/field_names.h"

namespace ringmaster::cli {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

Json OfSettings(const Message& message);

// Element `index` of a repeated field, or the value of a singular one (index -1).
Json OfValue(const Message& message, const FieldDescriptor& field, int index) {
  const Reflection& reflection = *message.GetReflection();
  const auto get = [&](auto singular, auto repeated) {
    return index < 0 ? (reflection.*singular)(message, &field)
                     : (reflection.*repeated)(message, &field, index);
  };
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_UINT32:
      return get(&Reflection::GetUInt32, &Reflection::GetRepeatedUInt32);
    case FieldDescriptor::CPPTYPE_UINT64:
      return get(&Reflection::GetUInt64, &Reflection::GetRepeatedUInt64);
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return get(&Reflection::GetDouble, &Reflection::GetRepeatedDouble);
    case FieldDescriptor::CPPTYPE_BOOL:
      return get(&Reflection::GetBool, &Reflection::GetRepeatedBool);
    case FieldDescriptor::CPPTYPE_STRING:
      return get(&Reflection::GetString, &Reflection::GetRepeatedString);
    case FieldDescriptor::CPPTYPE_ENUM:
      return job::ShortName(*get(&Reflection::GetEnum, &Reflection::GetRepeatedEnum));
    case FieldDescriptor::CPPTYPE_MESSAGE:
      return OfSettings(index < 0 ? reflection.GetMessage(message, &field)
                                  : reflection.GetRepeatedMessage(message, &field, index));
    default:
      return nullptr;
  }
}

Json OfField(const Message& message, const FieldDescriptor& field) {
  if (!field.is_repeated()) return OfValue(message, field, -1);
  Json list = Json::array();
  for (int i = 0; i < message.GetReflection()->FieldSize(message, &field); ++i) {
    list.push_back(OfValue(message, field, i));
  }
  return list;
}

// What is set; a list that is empty is not, as in a job file.
Json OfSettings(const Message& message) {
  if (const auto* const list = job::ListField(*message.GetDescriptor())) {
    return OfField(message, *list);
  }
  Json object = Json::object();
  for (int i = 0; i < message.GetDescriptor()->field_count(); ++i) {
    const FieldDescriptor& field = *message.GetDescriptor()->field(i);
    const Reflection& reflection = *message.GetReflection();
    const bool set = field.is_repeated() ? reflection.FieldSize(message, &field) > 0
                                         : reflection.HasField(message, &field);
    if (set) object[field.name()] = OfField(message, field);
  }
  return object;
}

}  // namespace

Json ToJson(const v1::JobSpec& spec) { return OfSettings(spec); }

}  // namespace ringmaster::cli
