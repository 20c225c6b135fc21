// Models of the zoo as tests name them, and what of a program they count. Thread-safe (free
// functions).
#pragma once

#include <cstdint>
#include <string>

#include "common/graph/program.h"
#include "ringmaster/v1/job.pb.h"

namespace ringmaster::zoo {

// With the options that the zoo gives it.
[[nodiscard]] inline v1::Model Model(const std::string& name) {
  v1::Model model;
  model.set_name(name);
  return model;
}

[[nodiscard]] inline int64_t ParameterCount(const graph::Program& program) {
  int64_t count = 0;
  for (const auto& parameter : program.parameters) count += graph::Elements(parameter.shape);
  return count;
}

}  // namespace ringmaster::zoo
