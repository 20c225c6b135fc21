// What a serialized CompileOptionsProto of XLA says, as far as the plugin double cares. Strict
// where a protobuf library would not be: a field that is not known is an error, because our own
// writer of these bytes is what is tested here. Free function, thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/status.h"

namespace ringmaster::pjrt::plugin_double {

struct CompileSettings {
  bool portable = false;
  int64_t replicas = 0;
  std::vector<int64_t> devices;  // an id for each replica; empty: the plugin chooses
  std::vector<std::string> overrides;
};

[[nodiscard]] StatusOr<CompileSettings> ReadCompileOptions(std::string_view bytes);

}  // namespace ringmaster::pjrt::plugin_double
