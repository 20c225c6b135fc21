// The `model` of a job file, or a model file: a model of the zoo with its options, the name of a
// file with options for it, or layers. Thread-safe (free functions).
#pragma once

#include <functional>
#include <string>

#include "common/model/build.h"
#include "common/status.h"
#include "common/yaml/yaml_tree.h"
#include "ringmaster/v1/job.pb.h"

namespace ringmaster::model {

// What a job file says of its model in other keys.
struct AroundModel {
  Outputs outputs;  // loss, metrics
  google::protobuf::RepeatedPtrField<std::string> freeze;
};

// The text of a file that a job file names, by the name that it gives; errors say what is wrong.
using ReadFile = std::function<StatusOr<std::string>(const std::string& path)>;

// INVALID_ARGUMENT: `job.yaml:3:8: ...`. A model of the zoo that there is not stays as it is
// written: whoever checks the job says so. Without `files` a file cannot be named.
[[nodiscard]] StatusOr<v1::Model> ReadModel(const YamlNode& node, const ReadFile& files);

// The model of a file of `text`: a model file, or a job file, whose model it then is, with what
// is `around` it where that is asked for; `given` are options, KEY: VALUE.
[[nodiscard]] StatusOr<v1::Model> ReadModelFile(const std::string& name, const std::string& text,
                                                const std::vector<YamlNode::Member>& given,
                                                const ReadFile& files,
                                                AroundModel* around = nullptr);

// A job's `loss` or `metrics`: one of them, or a list.
[[nodiscard]] StatusOr<google::protobuf::RepeatedPtrField<v1::Layer>> ReadOutputs(
    const YamlNode& node, graph::Output::Role role);

// Whether that names a file, and no model of the zoo.
[[nodiscard]] bool IsFileName(const std::string& name);

}  // namespace ringmaster::model
