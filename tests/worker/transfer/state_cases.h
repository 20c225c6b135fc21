// States to send, and what a test needs around them. Thread-safe (free functions).
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "common/status.h"
#include "ringmaster/v1/states.pb.h"
#include "worker/state/checkpoint.h"
#include "worker/transfer/state_pieces.h"

namespace ringmaster::worker {

inline constexpr size_t kMiB = size_t{1} << 20;

// Files of these sizes with arbitrary bytes; everything optional is there.
inline StateCopy MakeState(uint64_t step, const std::vector<size_t>& sizes) {
  std::mt19937_64 random(step);
  StateCopy copy;
  copy.step = step;
  copy.digest.fill(static_cast<uint8_t>(step));
  for (const size_t size : sizes) {
    CheckpointFile& file = copy.files.emplace_back();
    file.name = "file" + std::to_string(copy.files.size()) + ".safetensors";
    file.bytes.resize(size);
    for (char& byte : file.bytes) byte = static_cast<char>(random());
  }
  copy.validation = Evaluation{step - 1, {{"loss", 1.5}, {"accuracy", 0.25}}};
  copy.test = Evaluation{step, {{"accuracy", 0.5}}};
  return copy;
}

inline bool Same(const std::optional<Evaluation>& a, const std::optional<Evaluation>& b) {
  if (!a || !b) return !a && !b;
  return a->step == b->step && a->metrics == b->metrics;
}

inline bool Same(const StateCopy& a, const StateCopy& b) {
  if (a.files.size() != b.files.size()) return false;
  for (size_t i = 0; i < a.files.size(); ++i) {
    if (a.files[i].name != b.files[i].name || a.files[i].bytes != b.files[i].bytes) return false;
  }
  return a.step == b.step && a.digest == b.digest && Same(a.validation, b.validation) &&
         Same(a.test, b.test);
}

inline std::vector<v1::StatePiece> PiecesOf(const StateCopy& copy) {
  StatePieces pieces(std::make_shared<const StateCopy>(copy));
  std::vector<v1::StatePiece> all;
  for (v1::StatePiece piece; pieces.Next(&piece);) all.push_back(piece);
  return all;
}

inline std::chrono::steady_clock::time_point In(std::chrono::milliseconds span) {
  return std::chrono::steady_clock::now() + span;
}
inline std::chrono::steady_clock::time_point Soon() { return In(std::chrono::seconds(30)); }

inline bool Says(const Status& status, const std::string& words) {
  return Message(status).find(words) != std::string::npos;
}

// What `attempt(span)` returned when it said so, with a span that was long enough for it: how long
// that is depends on the machine.
template <typename Attempt>
Status UntilItSays(const std::string& words, Attempt attempt) {
  Status status;
  for (std::chrono::milliseconds span(50); span < std::chrono::seconds(20); span *= 2) {
    status = attempt(span);
    if (Says(status, words)) break;
  }
  return status;
}

}  // namespace ringmaster::worker
