#include "common/job/rules.h"

#include <fmt/ranges.h>

#include <cmath>
#include <map>
#include <memory>
#include <vector>

#include "common/check.h"
#include "common/job/field_names.h"
#include "common/job/job_file.h"

namespace ringmaster::job {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::EnumDescriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::MessageFactory;
using google::protobuf::OneofDescriptor;
using google::protobuf::Reflection;

bool IsMessage(const FieldDescriptor& field) {
  return field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE;
}

// ---- defaults -----------------------------------------------------------------------------------

// A message of each type of a job file, with its defaults and nothing else.
class DefaultTable {
 public:
  DefaultTable() { Add(*v1::JobSpec::descriptor()); }

  // nullptr: no part of a job file.
  const Message* Find(const Descriptor& type) const {
    const auto at = defaults_.find(&type);
    return at == defaults_.end() ? nullptr : at->second.get();
  }

 private:
  void Add(const Descriptor& type) {
    if (defaults_.contains(&type)) return;
    Message* const defaults = MessageFactory::generated_factory()->GetPrototype(&type)->New();
    defaults_[&type].reset(defaults);
    std::string text;
    for (int i = 0; i < type.field_count(); ++i) {
      const FieldDescriptor& field = *type.field(i);
      const std::string& value = RulesOf(field).by_default();
      if (!value.empty()) text += fmt::format("{}: {}\n", field.name(), value);
      if (IsMessage(field)) Add(*field.message_type());
    }
    const Status read = text.empty() ? absl::OkStatus() : ReadYaml(type.name(), text, defaults);
    RING_CHECK(read.ok(), "a default of job.proto is none of its field's values");
  }

  std::map<const Descriptor*, std::unique_ptr<Message>> defaults_;
};

// A list that was written replaces the default: merging would append to it.
void ClearLists(const Message& written, Message* filled) {
  std::vector<const FieldDescriptor*> present;
  written.GetReflection()->ListFields(written, &present);
  for (const FieldDescriptor* const field : present) {
    const bool list =
        field->is_repeated() || (IsMessage(*field) && ListField(*field->message_type()) != nullptr);
    if (list) filled->GetReflection()->ClearField(filled, field);
  }
}

// ---- ranges -------------------------------------------------------------------------------------

bool IsPowerOfTwo(double value) {
  int exponent = 0;
  return value > 0 && std::frexp(value, &exponent) == 0.5;
}

bool InRange(const v1::FieldRules& rules, double value) {
  if (!std::isfinite(value)) return false;
  if (rules.has_min() && (rules.above_min() ? value <= rules.min() : value < rules.min())) {
    return false;
  }
  if (rules.has_max() && (rules.below_max() ? value >= rules.max() : value > rules.max())) {
    return false;
  }
  return !rules.power_of_two() || IsPowerOfTwo(value);
}

template <typename Number>
Status CheckNumber(const std::string& path, const v1::FieldRules& rules, Number value) {
  if (InRange(rules, static_cast<double>(value))) return absl::OkStatus();
  const std::string words = RangeWords(rules);
  return InvalidArgument("{}: expected {}, got {}", path, words.empty() ? "a number" : words,
                         value);
}

// ---- values -------------------------------------------------------------------------------------

// Keys of `message` stand behind `prefix`: empty, or `optimizer.adam.`.
Status CheckKeys(const Message& message, const std::string& prefix);

// Whether it is, or stands in, a job that trains.
bool Trains(const Message& message) {
  if (message.GetDescriptor() != v1::JobSpec::descriptor()) return true;
  const auto kind = static_cast<const v1::JobSpec&>(message).kind();
  return kind == v1::JOB_KIND_TRAIN || kind == v1::JOB_KIND_UNSPECIFIED;
}

// Whether it is a job whose gradients a script computes.
bool IsOfScript(const Message& message) {
  return message.GetDescriptor() == v1::JobSpec::descriptor() &&
         static_cast<const v1::JobSpec&>(message).has_script();
}

Status CheckEnum(const std::string& path, const EnumDescriptor& type, int number) {
  if (type.FindValueByNumber(number) != nullptr) return absl::OkStatus();
  return InvalidArgument("{}: expected one of {}, got {}", path, fmt::join(ShortNames(type), ", "),
                         number);
}

Status CheckText(const std::string& path, const v1::FieldRules& rules, const std::string& text) {
  if (rules.max_bytes() == 0 || text.size() <= rules.max_bytes()) return absl::OkStatus();
  return InvalidArgument("{}: expected {}, got {}", path, RangeWords(rules), text.size());
}

constexpr uint32_t kMostItems = 1024;  // of a list whose rules say no other number

Status CheckPart(const Message& part, const std::string& path, const v1::FieldRules& rules);

// Element `index` of a repeated field, or the value of a singular one (index -1).
Status CheckValue(const Message& message, const FieldDescriptor& field, int index,
                  const std::string& path, const v1::FieldRules& rules) {
  const Reflection& reflection = *message.GetReflection();
  const auto get = [&](auto singular, auto repeated) {
    return index < 0 ? (reflection.*singular)(message, &field)
                     : (reflection.*repeated)(message, &field, index);
  };
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_UINT32:
      return CheckNumber(path, rules, get(&Reflection::GetUInt32, &Reflection::GetRepeatedUInt32));
    case FieldDescriptor::CPPTYPE_UINT64:
      return CheckNumber(path, rules, get(&Reflection::GetUInt64, &Reflection::GetRepeatedUInt64));
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return CheckNumber(path, rules, get(&Reflection::GetDouble, &Reflection::GetRepeatedDouble));
    case FieldDescriptor::CPPTYPE_STRING:
      return CheckText(path, rules, get(&Reflection::GetString, &Reflection::GetRepeatedString));
    case FieldDescriptor::CPPTYPE_ENUM:
      return CheckEnum(path, *field.enum_type(),
                       get(&Reflection::GetEnumValue, &Reflection::GetRepeatedEnumValue));
    case FieldDescriptor::CPPTYPE_MESSAGE:
      return CheckPart(index < 0 ? reflection.GetMessage(message, &field)
                                 : reflection.GetRepeatedMessage(message, &field, index),
                       path, rules);
    default:
      return absl::OkStatus();
  }
}

Status CheckEach(const Message& message, const FieldDescriptor& field, const std::string& path,
                 const v1::FieldRules& rules) {
  const int size = message.GetReflection()->FieldSize(message, &field);
  const uint32_t most = rules.max_items() > 0 ? rules.max_items() : kMostItems;
  const bool of_rules = !rules.help().empty();  // layers have checks of their own
  if (of_rules && static_cast<uint32_t>(size) > most) {
    return InvalidArgument("{}: expected at most {} of them, got {}", path, most, size);
  }
  for (int i = 0; i < size; ++i) {
    const std::string element = IsMessage(field) ? fmt::format("{}.{}", path, i) : path;
    RING_RETURN_IF_ERROR(CheckValue(message, field, i, element, rules));
  }
  return absl::OkStatus();
}

Status CheckPart(const Message& part, const std::string& path, const v1::FieldRules& rules) {
  const FieldDescriptor* const list = ListField(*part.GetDescriptor());
  return list != nullptr ? CheckEach(part, *list, path, rules) : CheckKeys(part, path + '.');
}

// A message that is missing lacks what is required in it: that says more.
Status Missing(const Message& message, const std::string& path, const FieldDescriptor& field) {
  const v1::FieldRules& rules = RulesOf(field);
  if (IsMessage(field)) RING_RETURN_IF_ERROR(CheckValue(message, field, -1, path, rules));
  if (rules.example().empty()) return InvalidArgument("{}: missing: {}", path, rules.help());
  return InvalidArgument("{}: missing: {}; for example {}: {}", path, rules.help(), field.name(),
                         rules.example());
}

Status CheckKey(const Message& message, const std::string& path, const FieldDescriptor& field) {
  const v1::FieldRules& rules = RulesOf(field);
  if (rules.no_key()) return absl::OkStatus();
  const Reflection& reflection = *message.GetReflection();
  const bool present = field.is_repeated() ? reflection.FieldSize(message, &field) > 0
                                           : reflection.HasField(message, &field);
  if (rules.only_train() && !Trains(message)) {
    if (!present) return absl::OkStatus();
    return InvalidArgument("{}: only a job that trains has it; leave it out", path);
  }
  if (rules.no_script() && IsOfScript(message)) {
    if (!present) return absl::OkStatus();
    return InvalidArgument("{}: a job of a script has none: the script says it; leave it out",
                           path);
  }
  if (field.is_repeated()) return CheckEach(message, field, path, rules);
  if (present) return CheckValue(message, field, -1, path, rules);
  const bool required = rules.required() && !(rules.script_says() && IsOfScript(message));
  return required ? Missing(message, path, field) : absl::OkStatus();
}

Status CheckOneof(const Message& message, const std::string& prefix, const OneofDescriptor& oneof) {
  const bool absent =
      oneof.options().GetExtension(v1::may_be_empty) ||
      (oneof.options().GetExtension(v1::of_training) && (!Trains(message) || IsOfScript(message)));
  if (absent || message.GetReflection()->HasOneof(message, &oneof)) return absl::OkStatus();
  std::vector<std::string> members;
  for (int i = 0; i < oneof.field_count(); ++i) members.push_back(oneof.field(i)->name());
  const std::string where = prefix.empty() ? "" : prefix.substr(0, prefix.size() - 1) + ": ";
  return InvalidArgument("{}expected one of {}, got none", where, fmt::join(members, ", "));
}

Status CheckKeys(const Message& message, const std::string& prefix) {
  const Descriptor& type = *message.GetDescriptor();
  for (int i = 0; i < type.field_count(); ++i) {
    const FieldDescriptor& field = *type.field(i);
    RING_RETURN_IF_ERROR(CheckKey(message, prefix + field.name(), field));
  }
  for (int i = 0; i < type.real_oneof_decl_count(); ++i) {
    RING_RETURN_IF_ERROR(CheckOneof(message, prefix, *type.oneof_decl(i)));
  }
  return absl::OkStatus();
}

}  // namespace

const v1::FieldRules& RulesOf(const FieldDescriptor& field) {
  return field.options().GetExtension(v1::rules);
}

std::string RangeWords(const v1::FieldRules& rules) {
  if (rules.max_bytes() > 0) return fmt::format("at most {} bytes", rules.max_bytes());
  const bool closed =
      rules.has_min() && rules.has_max() && !rules.above_min() && !rules.below_max();
  std::string words;
  if (closed && rules.min() == rules.max()) {
    words = fmt::format("{}", rules.min());
  } else if (closed) {
    words = fmt::format("{} to {}", rules.min(), rules.max());
  } else {
    std::vector<std::string> ends;
    if (rules.has_min()) {
      ends.push_back(fmt::format("{} {}", rules.above_min() ? "above" : "at least", rules.min()));
    }
    if (rules.has_max()) {
      ends.push_back(fmt::format("{} {}", rules.below_max() ? "under" : "at most", rules.max()));
    }
    words = fmt::format("{}", fmt::join(ends, ", "));
  }
  return rules.power_of_two() ? "a power of two, " + words : words;
}

void FillDefaults(Message* message) {
  static const DefaultTable table;
  if (const Message* const defaults = table.Find(*message->GetDescriptor())) {
    const std::unique_ptr<Message> filled(defaults->New());
    filled->CopyFrom(*defaults);
    ClearLists(*message, filled.get());
    filled->MergeFrom(*message);
    message->GetReflection()->Swap(message, filled.get());
  }
  const Reflection& reflection = *message->GetReflection();
  std::vector<const FieldDescriptor*> present;
  reflection.ListFields(*message, &present);
  for (const FieldDescriptor* const field : present) {
    if (!IsMessage(*field)) continue;
    if (!field->is_repeated()) {
      FillDefaults(reflection.MutableMessage(message, field));
      continue;
    }
    for (int i = 0; i < reflection.FieldSize(*message, field); ++i) {
      FillDefaults(reflection.MutableRepeatedMessage(message, field, i));
    }
  }
}

Status CheckRules(const Message& message) { return CheckKeys(message, ""); }

}  // namespace ringmaster::job
