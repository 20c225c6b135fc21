#include "common/job/field_names.h"

#include <absl/strings/ascii.h>

#include "common/job/rules.h"

namespace ringmaster::job {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::EnumDescriptor;
using google::protobuf::EnumValueDescriptor;
using google::protobuf::FieldDescriptor;

// Policy -> POLICY_, JobState -> JOB_STATE_.
std::string Prefix(const std::string& type) {
  std::string prefix;
  for (const char c : type) {
    if (absl::ascii_isupper(static_cast<unsigned char>(c)) && !prefix.empty()) prefix += '_';
    prefix += absl::ascii_toupper(static_cast<unsigned char>(c));
  }
  return prefix + '_';
}

}  // namespace

std::string ShortName(const EnumValueDescriptor& value) {
  std::string name = value.name();
  const std::string prefix = Prefix(value.type()->name());
  if (name.starts_with(prefix)) name.erase(0, prefix.size());
  absl::AsciiStrToLower(&name);
  return name;
}

std::vector<std::string> ShortNames(const EnumDescriptor& type) {
  std::vector<std::string> names;
  for (int i = 0; i < type.value_count(); ++i) {
    if (type.value(i)->number() != 0) names.push_back(ShortName(*type.value(i)));
  }
  return names;
}

const EnumValueDescriptor* FindByShortName(const EnumDescriptor& type, const std::string& name) {
  for (int i = 0; i < type.value_count(); ++i) {
    if (type.value(i)->number() != 0 && ShortName(*type.value(i)) == name) return type.value(i);
  }
  return nullptr;
}

const FieldDescriptor* ListField(const Descriptor& type) {
  if (type.field_count() != 1) return nullptr;
  const FieldDescriptor* const field = type.field(0);
  return field->is_repeated() && field->name() == "values" ? field : nullptr;
}

bool IsKey(const FieldDescriptor& field) { return !RulesOf(field).no_key(); }

bool IsByName(const FieldDescriptor& field) { return RulesOf(field).by_name(); }

const FieldDescriptor* AloneField(const Descriptor& type) {
  for (int i = 0; i < type.field_count(); ++i) {
    if (RulesOf(*type.field(i)).alone()) return type.field(i);
  }
  return nullptr;
}

}  // namespace ringmaster::job
