// A state on its way in: takes the pieces of a States stream, in their order and no others. Memory
// grows with the bytes that arrived, 64 MiB or four times as much, not with what a length says. A
// value for one thread; it knows no network.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "common/sha256.h"
#include "common/status.h"
#include "ringmaster/v1/states.pb.h"
#include "worker/state/checkpoint.h"

namespace ringmaster::worker {

// Names of files as peers send them: part of no path before they were looked at; and how many are
// taken. Thread-safe (free functions).
inline constexpr size_t kMaxFiles = 64;  // of one state or checkpoint

// A name without folders that a checkpoint may have: letters, digits, `.`, `_`, `-`, not hidden.
[[nodiscard]] inline bool IsPlainFileName(const std::string& name) {
  const auto allowed = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '_' || c == '-';
  };
  return !name.empty() && name.size() <= 128 && name.front() != '.' &&
         std::all_of(name.begin(), name.end(), allowed);
}

class StateReceiver {
 public:
  // Of S(step), with at most so many bytes in all files.
  StateReceiver(uint64_t step, uint64_t max_bytes);

  // DATA_LOSS says what differs; the receiver is spent then.
  [[nodiscard]] Status Take(const v1::StatePiece& piece);
  [[nodiscard]] bool begun() const { return begun_; }  // the header is there
  // The end came, and everything is there with its SHA-256.
  [[nodiscard]] bool complete() const { return complete_; }
  [[nodiscard]] uint64_t received() const { return received_; }
  [[nodiscard]] uint64_t expected() const { return expected_; }

  // Once complete.
  [[nodiscard]] StateCopy Release() && { return std::move(copy_); }

 private:
  [[nodiscard]] Status TakeHeader(const v1::StateHeader& header);
  [[nodiscard]] Status TakeFiles(const v1::StateHeader& header);
  [[nodiscard]] Status TakeBytes(const v1::StateBytes& bytes);
  [[nodiscard]] Status TakeEnd(const v1::StateEnd& end);
  void Append(const std::string& data);

  const uint64_t step_;
  const uint64_t max_bytes_;
  StateCopy copy_;
  std::vector<uint64_t> sizes_;  // of its files
  bool begun_ = false;
  bool complete_ = false;
  size_t file_ = 0;  // that grows
  uint64_t received_ = 0;
  uint64_t expected_ = 0;
  Sha256 hash_;
};

}  // namespace ringmaster::worker
