#include "common/rpc/clean_strings.h"

#include <google/protobuf/descriptor.h>

#include <string>
#include <utility>
#include <vector>

#include "common/text.h"

namespace ringmaster {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Reflection;

std::vector<const FieldDescriptor*> FieldsOf(const google::protobuf::Message& message) {
  std::vector<const FieldDescriptor*> fields;
  message.GetReflection()->ListFields(message, &fields);
  return fields;
}

int Times(const google::protobuf::Message& message, const FieldDescriptor* field) {
  return field->is_repeated() ? message.GetReflection()->FieldSize(message, field) : 1;
}

const std::string& TextOf(const google::protobuf::Message& message, const FieldDescriptor* field,
                          int i, std::string* scratch) {
  const Reflection* const reflection = message.GetReflection();
  return field->is_repeated() ? reflection->GetRepeatedStringReference(message, field, i, scratch)
                              : reflection->GetStringReference(message, field, scratch);
}

void SetText(google::protobuf::Message* message, const FieldDescriptor* field, int i,
             std::string text) {
  const Reflection* const reflection = message->GetReflection();
  if (field->is_repeated()) {
    reflection->SetRepeatedString(message, field, i, std::move(text));
  } else {
    reflection->SetString(message, field, std::move(text));
  }
}

const google::protobuf::Message& PartOf(const google::protobuf::Message& message,
                                        const FieldDescriptor* field, int i) {
  const Reflection* const reflection = message.GetReflection();
  return field->is_repeated() ? reflection->GetRepeatedMessage(message, field, i)
                              : reflection->GetMessage(message, field);
}

google::protobuf::Message* MutablePartOf(google::protobuf::Message* message,
                                         const FieldDescriptor* field, int i) {
  const Reflection* const reflection = message->GetReflection();
  return field->is_repeated() ? reflection->MutableRepeatedMessage(message, field, i)
                              : reflection->MutableMessage(message, field);
}

bool IsClean(const google::protobuf::Message& message, size_t max_bytes) {
  std::string scratch;
  for (const FieldDescriptor* const field : FieldsOf(message)) {
    for (int i = 0; i < Times(message, field); ++i) {
      if (field->type() == FieldDescriptor::TYPE_STRING) {
        const std::string& text = TextOf(message, field, i, &scratch);
        if (OneLine(text, max_bytes) != text) return false;
      } else if (field->type() == FieldDescriptor::TYPE_MESSAGE) {
        if (!IsClean(PartOf(message, field, i), max_bytes)) return false;
      }
    }
  }
  return true;
}

}  // namespace

// As deep as a message was parsed, which protobuf bounds (100).
void CleanStrings(google::protobuf::Message* message, size_t max_bytes) {
  if (IsClean(*message, max_bytes)) return;  // which it nearly always is
  std::string scratch;
  for (const FieldDescriptor* const field : FieldsOf(*message)) {
    for (int i = 0; i < Times(*message, field); ++i) {
      if (field->type() == FieldDescriptor::TYPE_STRING) {
        SetText(message, field, i, OneLine(TextOf(*message, field, i, &scratch), max_bytes));
      } else if (field->type() == FieldDescriptor::TYPE_MESSAGE) {
        CleanStrings(MutablePartOf(message, field, i), max_bytes);
      }
    }
  }
}

}  // namespace ringmaster
