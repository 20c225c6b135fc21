// The job file: strict YAML, read by the proto's own fields. Thread-safe (free functions).
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "common/model/read_model.h"
#include "common/status.h"
#include "ringmaster/v1/job.pb.h"

namespace ringmaster::job {

// Parses `text` (of file `name`, used in messages) and applies `overrides` ("optimizer.adam.
// learning_rate=0.01"). Unknown and duplicate keys, wrong types and out-of-range values are
// INVALID_ARGUMENT: `job.yaml:4:3: unknown key "btach"; did you mean "batch"?` Values of enums and
// lists are written as `reduction: exact`, `policy: mixed_bfloat16`, `resize: [32, 32]`. A model
// file that it names is read by `files`; without, it may name none. The files of its script are
// those that `script_files` fills in; without, it has none, and no coordinator takes it.
using ReadScript = std::function<Status(v1::Script* script)>;
[[nodiscard]] StatusOr<v1::JobSpec> ParseJobFile(const std::string& name, const std::string& text,
                                                 const std::vector<std::string>& overrides,
                                                 const model::ReadFile& files = nullptr,
                                                 const ReadScript& script_files = nullptr);

// Model files beside that job file, or at absolute paths.
[[nodiscard]] model::ReadFile FilesBeside(const std::string& job_file);
// A script and what goes with it, beneath the folder of that job file (script_files.h).
[[nodiscard]] ReadScript ScriptBeside(const std::string& job_file);

// Likewise any message by the names of its fields.
[[nodiscard]] Status ReadYaml(const std::string& name, const std::string& text,
                              google::protobuf::Message* message);

// The spec as a job file that parses to the same spec; a value of it as it stands there.
[[nodiscard]] std::string PrintJobFile(const v1::JobSpec& spec);
[[nodiscard]] std::string PrintValue(const google::protobuf::Message& message,
                                     const google::protobuf::FieldDescriptor& field);

}  // namespace ringmaster::job
