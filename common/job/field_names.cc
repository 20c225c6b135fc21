#include "common/job/field_names.h"

#include <absl/strings/ascii.h>

#include <algorithm>
#include <limits>
#include <numeric>

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

size_t EditDistance(const std::string& a, const std::string& b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i + 1;
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t replaced = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, row[j] + 1, diagonal + 1});
    }
  }
  return row.back();
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

std::string Nearest(const std::string& name, const std::vector<std::string>& names) {
  constexpr size_t kLongest = 64;  // of what a user typed: the rest changes nothing
  const std::string typed = name.substr(0, kLongest);
  std::string nearest;
  size_t best = std::numeric_limits<size_t>::max();
  for (const std::string& candidate : names) {
    const size_t distance = EditDistance(typed, candidate);
    if (distance >= best) continue;
    best = distance;
    nearest = candidate;
  }
  return nearest;
}

}  // namespace ringmaster::job
