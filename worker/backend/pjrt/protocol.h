// The bodies of the messages between the daemon and a plugin's process (host_message.h). Values.
// Every place in shared memory is an offset in bytes; whoever reads one checks it first.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "worker/backend/pjrt/plugin_facts.h"
#include "worker/backend/pjrt/tensor_type.h"

namespace ringmaster::pjrt {

// The program in which a plugin runs. Its one argument is its parent's process id, its file 3 the
// control socket.
inline constexpr const char* kHostProgram = "ringmaster_pjrt_host";
inline constexpr int kControlFile = 3;

// Where a tensor begins.
struct Place {
  TensorType type;
  uint64_t offset = 0;

  template <typename Visit>
  void Fields(Visit& visit) {
    visit(type);
    visit(offset);
  }
};

struct ErrorReply {
  int32_t code = 0;  // absl::StatusCode
  std::string message;

  template <typename Visit>
  void Fields(Visit& visit) {
    visit(code);
    visit(message);
  }
};

struct StartRequest {
  std::string plugin;  // its path
  ClientOptions client;

  template <typename Visit>
  void Fields(Visit& visit) {
    visit(plugin);
    visit(client);
  }
};

// In place of what the lane had.
struct MemoryRequest {
  uint64_t bytes = 0;

  template <typename Visit>
  void Fields(Visit& visit) {
    visit(bytes);
  }
};

// Weights change in groups: each has a version, and a device gets it anew when that is another one.
enum class WeightGroup : uint8_t { kParameters, kFrozen, kStatistics };
inline constexpr size_t kWeightGroups = 3;
using WeightVersions = std::array<uint64_t, kWeightGroups>;

struct WeightPlace {
  WeightGroup group = WeightGroup::kParameters;
  Place place;  // in the weights' memory

  template <typename Visit>
  void Fields(Visit& visit) {
    visit(group);
    visit(place);
  }
};

// All that a daemon's Weights are; every program that is bound with them says it again, and who
// says it first makes it.
struct WeightsTable {
  uint64_t id = 0;     // one for each Weights of a daemon, never used again
  uint64_t bytes = 0;  // of their memory
  std::vector<WeightPlace> tensors;

  template <typename Visit>
  void Fields(Visit& visit) {
    visit(id);
    visit(bytes);
    visit(tensors);
  }
};

struct BoundArgument {
  bool resident = false;  // the weights' tensor `index`; else at `place` in the lane's memory
  uint32_t index = 0;
  Place place;

  template <typename Visit>
  void Fields(Visit& visit) {
    visit(resident);
    visit(index);
    visit(place);
  }
};

struct BindRequest {
  uint32_t device = 0;  // its place in PluginFacts::devices
  uint64_t text_bytes = 0;
  WeightsTable weights;
  std::vector<BoundArgument> arguments;
  std::vector<Place> results;  // in the lane's memory

  template <typename Visit>
  void Fields(Visit& visit) {
    visit(device);
    visit(text_bytes);
    visit(weights);
    visit(arguments);
    visit(results);
  }
};

struct BindReply {
  uint32_t program = 0;  // its name on this lane
  CompiledBytes bytes;

  template <typename Visit>
  void Fields(Visit& visit) {
    visit(program);
    visit(bytes);
  }
};

struct RunRequest {
  uint32_t program = 0;
  uint64_t parameters = 0, frozen = 0, statistics = 0;  // versions

  template <typename Visit>
  void Fields(Visit& visit) {
    visit(program);
    visit(parameters);
    visit(frozen);
    visit(statistics);
  }
};

struct ReleaseRequest {
  uint32_t program = 0;

  template <typename Visit>
  void Fields(Visit& visit) {
    visit(program);
  }
};

}  // namespace ringmaster::pjrt
