// States to send, and what a test needs around them. Thread-safe (free functions).
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "common/check.h"
#include "common/status.h"
#include "tests/support/memory_state.h"
#include "worker/transfer/state_pieces.h"

namespace ringmaster::worker {

using testing::MemorySource;
using testing::MemoryState;

inline constexpr size_t kMiB = size_t{1} << 20;

// A row of so many arbitrary bytes; everything optional is there.
inline MemoryState MakeState(uint64_t step, size_t size) {
  std::mt19937_64 random(step);
  MemoryState state;
  state.bytes.resize(size);
  for (char& byte : state.bytes) byte = static_cast<char>(random());
  state.its.step = step;
  state.its.digest.fill(static_cast<uint8_t>(step));
  state.its.bytes = size;
  state.its.validation = Evaluation{step - 1, {{"loss", 1.5}, {"accuracy", 0.25}}};
  state.its.test = Evaluation{step, {{"accuracy", 0.5}}};
  return state;
}

inline grpc::ByteBuffer MessageOf(const std::string& bytes) {
  const grpc::Slice slice(bytes);
  return {&slice, 1};
}
inline std::string BytesOf(const grpc::ByteBuffer& message) {
  std::vector<grpc::Slice> slices;
  RING_CHECK(message.Dump(&slices).ok(), "a readable message");
  std::string bytes;
  for (const grpc::Slice& slice : slices) {
    bytes.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  }
  return bytes;
}

// The messages of its stream.
inline std::vector<std::string> MessagesOf(const MemoryState& state) {
  MemorySource source(&state);
  std::vector<std::string> all = {BytesOf(HeaderMessage(state.its))};
  for (uint64_t at = 0; at < state.bytes.size(); at += kStatePieceBytes) {
    all.push_back(BytesOf(*PieceMessage(&source, at)));
  }
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
