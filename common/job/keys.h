// The keys of a job file, described: the fields of JobSpec with their (rules), and the names and
// options that data formats and models of the zoo have. What `ringctl keys`, `ringctl init`,
// completion and docs/job_file.md are made of. Thread-safe (free functions).
#pragma once

#include <google/protobuf/descriptor.h>

#include <string>
#include <vector>

namespace ringmaster::job {

struct Key {
  std::string path;                  // `optimizer.adam.beta_1`; N for a position in a list
  std::string type;                  // `whole number`, `mapping`
  std::string limits;                // `1 to 4096`, `float32, mixed_bfloat16`; empty: any value
  std::string by_default;            // as in a job file or in words; empty: there is none
  std::string help;                  // one short sentence
  std::vector<std::string> choices;  // all values there are; empty: too many
  bool required = false;
  std::string example;  // a value; empty: of a mapping
};

// In the order of the proto: a mapping stands before its keys.
[[nodiscard]] std::vector<Key> Keys();
// Those of `model`: of its message, of every model of the zoo, and of layers.
[[nodiscard]] std::vector<Key> ModelKeys();
// One of them; its path is its name alone.
[[nodiscard]] Key Describe(const google::protobuf::FieldDescriptor& field);

// `whole number, 1 to 4096`.
[[nodiscard]] std::string ValueWords(const Key& key);
// `required`, the default, or `-`.
[[nodiscard]] std::string DefaultWords(const Key& key);

}  // namespace ringmaster::job
