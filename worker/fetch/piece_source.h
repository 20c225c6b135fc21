// Where a worker gets files of a dataset that it lacks: another worker, the coordinator, a web
// server, an object store. The interface alone; who asks which source for what is the fetcher's.
// Nothing that comes from a source is trusted: the dataset is surveyed once it is whole, and must
// be the job's.
#pragma once

#include <chrono>
#include <cstdint>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "common/sha256.h"
#include "common/status.h"

namespace ringmaster::worker {

// What is fetched, checked and written at a time; of a file's last piece as much as there is.
inline constexpr uint64_t kPieceBytes = uint64_t{8} << 20;

// One file of the dataset. A value.
struct SourceFile {
  std::string name;  // relative, with `/` between parts
  uint64_t bytes = 0;
  std::vector<Sha256Digest> pieces;  // of each; empty: the source does not know them
  std::string version;  // an ETag or the like: reads are of this one or fail; empty: none known
};

struct FetchLimits {
  std::chrono::steady_clock::time_point deadline;
  std::stop_token stop;
};

// Thread-safe: pieces are read side by side.
class PieceSource {
 public:
  virtual ~PieceSource() = default;
  // For messages: "worker b at 10.0.0.7:4001", "https://host/data".
  [[nodiscard]] virtual std::string name() const = 0;
  // All files of the dataset, by name. NOT_FOUND: it has none of it, so ask another; UNAVAILABLE:
  // ask again; anything else names what is wrong.
  [[nodiscard]] virtual StatusOr<std::vector<SourceFile>> List(const FetchLimits& limits) = 0;
  // Fills `out` with the file's bytes from `offset` on: all of them, or an error. UNAVAILABLE: ask
  // again; FAILED_PRECONDITION: the file is not of that version any more.
  [[nodiscard]] virtual Status Read(const SourceFile& file, uint64_t offset, std::span<uint8_t> out,
                                    const FetchLimits& limits) = 0;
};

}  // namespace ringmaster::worker
