// What a plugin is started with and says of itself. Values; they cross between the daemon and the
// program that has the plugin in it, each with its Fields for host_message.h.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace ringmaster::pjrt {

// What a client is made with; whatever is unset the plugin decides.
struct ClientOptions {
  float memory_fraction = 0;  // of a GPU's memory, taken at once; 0: unset. Only CUDA's knows it

  template <typename Visit>
  void Fields(Visit& visit) {
    visit(memory_fraction);
  }
};

struct DeviceFacts {
  int64_t id = 0;             // by the plugin
  std::string kind;           // TPU v4
  std::string description;    // for people
  uint64_t memory_limit = 0;  // bytes; 0 where the plugin does not say

  template <typename Visit>
  void Fields(Visit& visit) {
    visit(id);
    visit(kind);
    visit(description);
    visit(memory_limit);
  }
};

// stablehlo_current_version: 1.13.0
struct PluginAttribute {
  std::string name, value;

  template <typename Visit>
  void Fields(Visit& visit) {
    visit(name);
    visit(value);
  }
};

struct PluginFacts {
  int32_t major = 0, minor = 0;  // of the C interface
  std::string platform;          // tpu, cuda
  std::string platform_version;
  std::vector<PluginAttribute> attributes;
  std::vector<DeviceFacts> devices;  // those that this process may use

  template <typename Visit>
  void Fields(Visit& visit) {
    visit(major);
    visit(minor);
    visit(platform);
    visit(platform_version);
    visit(attributes);
    visit(devices);
  }
};

// What a compiled program takes of a device's memory, in bytes.
struct CompiledBytes {
  bool known = false;  // some plugins cannot tell
  uint64_t code = 0, arguments = 0, outputs = 0, aliased = 0, temporary = 0;

  template <typename Visit>
  void Fields(Visit& visit) {
    visit(known);
    visit(code);
    visit(arguments);
    visit(outputs);
    visit(aliased);
    visit(temporary);
  }
};

}  // namespace ringmaster::pjrt
