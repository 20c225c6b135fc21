// manifest.json of a checkpoint, as far as the coordinator reads it. Pure; thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "common/job/class_map.h"
#include "common/status.h"

namespace ringmaster::coordinator {

inline constexpr char kManifestName[] = "manifest.json";
inline constexpr size_t kMaxManifestBytes = 1 << 20;

struct Manifest {
  struct File {
    uint64_t bytes = 0;
    std::string sha256;  // lower-case hex
    bool operator==(const File&) const = default;
  };
  uint64_t step = 0;
  std::string result_digest;  // hex
  std::string digest;         // hex, of the state
  job::ClassMaps class_maps;  // that led to it, with names of classes alone
  std::map<std::string, File> files;
};

// INVALID_ARGUMENT says what is wrong with the text.
[[nodiscard]] StatusOr<Manifest> ParseManifest(const std::string& text);

}  // namespace ringmaster::coordinator
