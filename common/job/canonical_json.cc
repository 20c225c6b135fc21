#include <absl/strings/str_join.h>
#include <google/protobuf/message.h>

#include <algorithm>
#include <vector>

#include "common/check.h"
#include "common/job/field_names.h"
#include "common/job/resolve.h"

namespace ringmaster::job {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

std::string JsonOf(const Message& message);

std::string Quoted(const std::string& text) {
  std::string json = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      json += '\\';
      json += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      json += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
    } else {
      json += c;
    }
  }
  return json + '"';
}

// Element `index` of a repeated field, or the value of a singular one (index -1). Numbers are
// written by fmt: the shortest decimal that reads back as the same double, whatever the locale.
std::string ValueJson(const Message& message, const FieldDescriptor& field, int index) {
  const Reflection& reflection = *message.GetReflection();
  const auto get = [&](auto singular, auto repeated) {
    return index < 0 ? (reflection.*singular)(message, &field)
                     : (reflection.*repeated)(message, &field, index);
  };
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return fmt::format("{}", get(&Reflection::GetInt32, &Reflection::GetRepeatedInt32));
    case FieldDescriptor::CPPTYPE_INT64:
      return fmt::format("{}", get(&Reflection::GetInt64, &Reflection::GetRepeatedInt64));
    case FieldDescriptor::CPPTYPE_UINT32:
      return fmt::format("{}", get(&Reflection::GetUInt32, &Reflection::GetRepeatedUInt32));
    case FieldDescriptor::CPPTYPE_UINT64:
      return fmt::format("{}", get(&Reflection::GetUInt64, &Reflection::GetRepeatedUInt64));
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return fmt::format("{}", get(&Reflection::GetDouble, &Reflection::GetRepeatedDouble));
    case FieldDescriptor::CPPTYPE_FLOAT:
      return fmt::format("{}", get(&Reflection::GetFloat, &Reflection::GetRepeatedFloat));
    case FieldDescriptor::CPPTYPE_BOOL:
      return get(&Reflection::GetBool, &Reflection::GetRepeatedBool) ? "true" : "false";
    case FieldDescriptor::CPPTYPE_ENUM:
      return Quoted(ShortName(*get(&Reflection::GetEnum, &Reflection::GetRepeatedEnum)));
    case FieldDescriptor::CPPTYPE_STRING:
      return Quoted(get(&Reflection::GetString, &Reflection::GetRepeatedString));
    case FieldDescriptor::CPPTYPE_MESSAGE:
      return JsonOf(index < 0 ? reflection.GetMessage(message, &field)
                              : reflection.GetRepeatedMessage(message, &field, index));
  }
  return "null";
}

// The only map of a ResultSpec. It is read by its own type: protobuf's reflection of maps copies
// them inside a const object.
std::string LibrariesJson(const v1::NumericsClass& numerics) {
  std::vector<std::string> members;
  for (const auto& [name, version] : numerics.libraries()) {
    members.push_back(Quoted(name) + ':' + Quoted(version));
  }
  std::sort(members.begin(), members.end());
  return '{' + absl::StrJoin(members, ",") + '}';
}

std::string FieldJson(const Message& message, const FieldDescriptor& field) {
  const Reflection& reflection = *message.GetReflection();
  if (field.is_map()) {
    const auto* const numerics = dynamic_cast<const v1::NumericsClass*>(&message);
    RING_CHECK(numerics != nullptr, "a new map needs a writer of its own");
    return LibrariesJson(*numerics);
  }
  if (field.is_repeated()) {
    std::vector<std::string> elements;
    for (int i = 0; i < reflection.FieldSize(message, &field); ++i) {
      elements.push_back(ValueJson(message, field, i));
    }
    return '[' + absl::StrJoin(elements, ",") + ']';
  }
  if (field.has_presence() && !reflection.HasField(message, &field)) return "null";
  return ValueJson(message, field, -1);
}

std::string JsonOf(const Message& message) {
  const Descriptor& type = *message.GetDescriptor();
  std::vector<const FieldDescriptor*> fields;
  for (int i = 0; i < type.field_count(); ++i) {
    // Of a oneof only the member that is set: the others are not part of the value.
    const FieldDescriptor* const field = type.field(i);
    const bool absent = field->real_containing_oneof() != nullptr &&
                        !message.GetReflection()->HasField(message, field);
    if (!absent) fields.push_back(field);
  }
  std::sort(fields.begin(), fields.end(), [](const FieldDescriptor* a, const FieldDescriptor* b) {
    return a->name() < b->name();
  });
  std::vector<std::string> members;
  members.reserve(fields.size());
  for (const FieldDescriptor* const field : fields) {
    members.push_back(Quoted(field->name()) + ':' + FieldJson(message, *field));
  }
  return '{' + absl::StrJoin(members, ",") + '}';
}

}  // namespace

std::string CanonicalJson(const v1::ResultSpec& result) {
  if (result.class_maps_size() <= 1) return JsonOf(result);
  v1::ResultSpec first = result;
  first.mutable_class_maps()->DeleteSubrange(1, first.class_maps_size() - 1);
  return JsonOf(first);
}

std::string CanonicalJson(const v1::Graph& graph) { return JsonOf(graph); }

Sha256Digest ModelDigest(const v1::Graph& graph) { return Sha256Of(CanonicalJson(graph)); }

Sha256Digest ResultDigest(const v1::ResultSpec& result) { return Sha256Of(CanonicalJson(result)); }

Sha256Digest MapsDigest(const v1::ResultSpec& result, uint64_t step) {
  std::string maps;
  for (int i = 1; i < result.class_maps_size(); ++i) {
    if (result.class_maps(i).step() == step) maps += JsonOf(result.class_maps(i));
  }
  return maps.empty() ? Sha256Digest{} : Sha256Of(maps);
}

Sha256Digest StatesDigest(const v1::ResultSpec& result) {
  const v1::Schedule& schedule = result.optimizer().schedule();
  v1::ResultSpec states = result;
  if (!schedule.has_cosine() && !schedule.has_polynomial()) states.clear_total_steps();
  if (states.watches().empty()) states.clear_evaluation_steps();
  return ResultDigest(states);
}

}  // namespace ringmaster::job
