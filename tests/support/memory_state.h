// A state's row of bytes in memory, to be sent and to be received. A value; thread-compatible.
#pragma once

#include <algorithm>
#include <cstring>
#include <span>
#include <string>
#include <utility>

#include "common/status.h"
#include "worker/state/state_row.h"

namespace ringmaster::testing {

struct MemoryState : worker::StateSink {
  worker::StateFacts its;  // bytes: those below
  std::string bytes;

  Status Begin(const worker::StateFacts& facts) override {
    if (facts.bytes > uint64_t{1} << 32) return DataLoss("no room for {} bytes", facts.bytes);
    its = facts;
    bytes.assign(facts.bytes, '\0');
    return absl::OkStatus();
  }
  Status Write(uint64_t offset, uint64_t step, std::span<const uint8_t> from) override {
    if (step != its.step) return DataLoss("bytes of step {}, expected {}", step, its.step);
    std::memcpy(bytes.data() + offset, from.data(), from.size());
    return absl::OkStatus();
  }
  bool operator==(const MemoryState& other) const {
    return its == other.its && bytes == other.bytes;
  }
};

// Offers one that outlives it.
class MemorySource : public worker::StateSource {
 public:
  explicit MemorySource(const MemoryState* state) : state_(state) {}
  [[nodiscard]] const worker::StateFacts& facts() const override { return state_->its; }
  StatusOr<uint64_t> Read(uint64_t offset, std::span<uint8_t> to) override {
    std::memcpy(to.data(), state_->bytes.data() + offset, to.size());
    return state_->its.step;
  }

 private:
  const MemoryState* const state_;
};

// All of what a source has, in pieces.
inline StatusOr<MemoryState> ReadAll(worker::StateSource* source, size_t piece = size_t{1} << 20) {
  MemoryState state;
  RING_RETURN_IF_ERROR(state.Begin(source->facts()));
  const std::span<uint8_t> bytes(reinterpret_cast<uint8_t*>(state.bytes.data()),
                                 state.bytes.size());
  for (size_t at = 0; at < bytes.size(); at += piece) {
    const size_t size = std::min(piece, bytes.size() - at);
    RING_RETURN_IF_ERROR(source->Read(at, bytes.subspan(at, size)).status());
  }
  return state;
}

// Writes all of it, as it is.
inline Status WriteAll(const MemoryState& state, worker::StateSink* sink) {
  RING_RETURN_IF_ERROR(sink->Begin(state.its));
  return sink->Write(0, state.its.step,
                     {reinterpret_cast<const uint8_t*>(state.bytes.data()), state.bytes.size()});
}

}  // namespace ringmaster::testing
