// S(k) as one row of bytes, in which it goes from worker to worker: every float32 tensor of a
// checkpoint by file and name, once, dense, and then its state.safetensors. Two
// workers of a job agree about it, since their layouts follow from the ResultSpec. Who receives a
// row hashes it anew and compares that with the chain of digests. It knows no network.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/sha256.h"
#include "common/status.h"
#include "worker/state/state.h"

namespace ringmaster::worker {

// What goes before the row.
struct StateFacts {
  uint64_t step = 0;
  Sha256Digest digest{};  // digest(step)
  uint64_t bytes = 0;     // of the row
  // What is derived from the past and stands in no checkpoint: the newest.
  std::optional<Evaluation> validation, test;
  bool operator==(const StateFacts&) const = default;
};

// Where a row comes from, and where it goes. The two seams between a job and the network; one
// thread at a time.
class StateSource {
 public:
  virtual ~StateSource() = default;
  [[nodiscard]] virtual const StateFacts& facts() const = 0;
  // Bytes of the row from `offset` on, which are there. FAILED_PRECONDITION: the state went on.
  virtual Status Read(uint64_t offset, std::span<uint8_t> to) = 0;
};
class StateSink {
 public:
  virtual ~StateSink() = default;
  // Before all Write. DATA_LOSS: a row of so many bytes is none of this job.
  virtual Status Begin(const StateFacts& facts) = 0;
  // `offset` and all of `from` are within facts.bytes.
  virtual void Write(uint64_t offset, std::span<const uint8_t> from) = 0;
};

// Spans of memory as one row.
template <typename Byte>
class SpanRow {
 public:
  void Add(std::span<Byte> part) {
    if (part.empty()) return;
    parts_.push_back({bytes_, part});
    bytes_ += part.size();
  }
  [[nodiscard]] uint64_t bytes() const { return bytes_; }
  // Calls visit(span) for what lies there, in order. Within bytes().
  template <typename Visit>
  void At(uint64_t offset, size_t size, Visit visit) const {
    auto part = std::ranges::upper_bound(parts_, offset, {}, &Part::begin);
    while (size > 0) {
      const size_t skipped = offset - (part - 1)->begin;
      const size_t count = std::min<size_t>(size, (part - 1)->memory.size() - skipped);
      visit((part - 1)->memory.subspan(skipped, count));
      offset += count;
      size -= count;
      ++part;
    }
  }

 private:
  struct Part {
    uint64_t begin;
    std::span<Byte> memory;
  };
  std::vector<Part> parts_;
  uint64_t bytes_ = 0;
};

// The row of a state that somebody else keeps as it is meanwhile, but for its numbers and
// exponents, which are copied at once. Thread-compatible.
class StateReader {
 public:
  [[nodiscard]] static StatusOr<StateReader> Create(const State& state);
  [[nodiscard]] uint64_t bytes() const { return row_.bytes(); }
  void Read(uint64_t offset, std::span<uint8_t> to) const;

 private:
  StateReader() = default;
  std::unique_ptr<const std::string> rest_;  // where it stays when the reader moves
  SpanRow<const uint8_t> row_;
};

// A state that grows in its place, without another copy of it.
class IncomingState : public StateSink {
 public:
  // `empty` as a job begins with it.
  explicit IncomingState(State empty) : state_(std::move(empty)) {}
  IncomingState(const IncomingState&) = delete;
  IncomingState& operator=(const IncomingState&) = delete;

  Status Begin(const StateFacts& facts) override;
  void Write(uint64_t offset, std::span<const uint8_t> from) override;
  // Once all bytes are written.
  [[nodiscard]] const StateFacts& facts() const { return facts_; }
  // Once. DATA_LOSS: it is not a state of this layout, or not one of its own digest, or of another
  // step or digest than the facts say. `for_each` hashes it.
  [[nodiscard]] StatusOr<State> Finish(const ForEachPiece& for_each);

 private:
  State state_;
  StateFacts facts_;
  std::string rest_;
  SpanRow<uint8_t> row_;
};

}  // namespace ringmaster::worker
