// How the values of a proto enum are written in job files and canonical JSON: POLICY_FLOAT32 of
// enum Policy is `float32`. Thread-safe (free functions).
#pragma once

#include <google/protobuf/descriptor.h>

#include <string>
#include <vector>

namespace ringmaster::job {

[[nodiscard]] std::string ShortName(const google::protobuf::EnumValueDescriptor& value);
// Names of all values but the unspecified one, in the enum's order.
[[nodiscard]] std::vector<std::string> ShortNames(const google::protobuf::EnumDescriptor& type);
// The value with this short name; null when there is none, and for `unspecified`.
[[nodiscard]] const google::protobuf::EnumValueDescriptor* FindByShortName(
    const google::protobuf::EnumDescriptor& type, const std::string& name);

// A message whose only field is a repeated one called `values`: written as a plain list.
[[nodiscard]] const google::protobuf::FieldDescriptor* ListField(
    const google::protobuf::Descriptor& type);
// The key that a mapping may be written as, when it has no other one (its rules say `alone`); null:
// there is none.
[[nodiscard]] const google::protobuf::FieldDescriptor* AloneField(
    const google::protobuf::Descriptor& type);
// Whether a job file may say it: what programs alone write (its rules say `no_key`) is no key.
[[nodiscard]] bool IsKey(const google::protobuf::FieldDescriptor& field);
// Whether a list is written as a mapping (its rules say `by_name`) from the first field of its
// messages to the second.
[[nodiscard]] bool IsByName(const google::protobuf::FieldDescriptor& field);

}  // namespace ringmaster::job
