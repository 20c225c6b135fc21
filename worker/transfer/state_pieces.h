// A state on its way out: cut into the pieces of a States stream, with their checksums. A value for
// one thread; it knows no network.
#pragma once

#include <cstdint>
#include <memory>

#include "common/sha256.h"
#include "ringmaster/v1/states.pb.h"
#include "worker/state/checkpoint.h"

namespace ringmaster::worker {

inline constexpr size_t kStatePieceBytes = size_t{1} << 20;

class StatePieces {
 public:
  explicit StatePieces(std::shared_ptr<const StateCopy> copy) : copy_(std::move(copy)) {}

  // Replaces `*piece` by the next one: the header, bytes of the files, the end. False after the
  // end.
  [[nodiscard]] bool Next(v1::StatePiece* piece);

 private:
  enum class At : uint8_t { kHeader, kBytes, kOver };

  void FillHeader(v1::StateHeader* header) const;
  void FillBytes(v1::StateBytes* bytes);
  // Whether bytes are left; skips files that are sent.
  [[nodiscard]] bool FindBytes();

  const std::shared_ptr<const StateCopy> copy_;
  At at_ = At::kHeader;
  size_t file_ = 0;      // the one that is sent
  size_t sent_ = 0;      // bytes of it
  uint64_t offset_ = 0;  // in all files
  Sha256 hash_;
};

}  // namespace ringmaster::worker
