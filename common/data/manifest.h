// `ringmaster-data.json`: what files there are beside it, for whoever fetches them from an address:
// name, size and SHA-256 of each piece of 8 MiB. Written by `ringctl dataset manifest`; read as the
// text of a stranger. Thread-safe (free functions).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/sha256.h"
#include "common/status.h"

namespace ringmaster::data {

inline constexpr char kDataManifestName[] = "ringmaster-data.json";
inline constexpr uint64_t kManifestPieceBytes = uint64_t{8} << 20;
inline constexpr size_t kMaxDataManifestBytes = size_t{256} << 20;

struct ManifestFile {
  std::string name;  // relative to the manifest's folder (CheckFileName)
  uint64_t bytes = 0;
  std::vector<Sha256Digest> pieces;  // each of kManifestPieceBytes, the last of what is left
  bool operator==(const ManifestFile&) const = default;
};

// Sorted by name.
using DataManifest = std::vector<ManifestFile>;

// INVALID_ARGUMENT: longer than kMaxDataManifestBytes, no JSON of this one shape, names that are
// none (CheckFileNames), a size with another number of pieces, sizes that together overflow. Memory
// is linear in what is kept.
[[nodiscard]] StatusOr<DataManifest> ParseDataManifest(const std::string& text);

// Canonical JSON: a file a line. The same bytes for the same manifest, on every host.
[[nodiscard]] std::string PrintDataManifest(const DataManifest& manifest);

// Reads every file beneath `folder`, also those in folders of it, but for the manifest itself and
// what begins with a dot. Symbolic links are followed while they stay inside. INVALID_ARGUMENT: a
// name that may not stand in a manifest, or too many of them; UNAVAILABLE: what cannot be read.
[[nodiscard]] StatusOr<DataManifest> MakeDataManifest(const std::string& folder);

// What differs between what a manifest says and what is there, a line each; empty: nothing.
[[nodiscard]] std::vector<std::string> Differences(const DataManifest& said,
                                                   const DataManifest& there);

}  // namespace ringmaster::data
