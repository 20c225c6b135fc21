// S(k) as one row of bytes, in which it goes from worker to worker. Two workers of a job agree
// about it, since their layouts follow from the ResultSpec. Who receives a row hashes it anew and
// compares that with the chain of digests. It knows no network.
//
//   numbers   state.safetensors of a checkpoint, and moving means and variances
//   ranges    of elements: their parameters and each of their slots, as they lie in their arenas,
//             range after range
//   the rest  what is frozen, and rows of predictions
//   numbers   once more
//
// A row is read in pieces, each of one state. They need not all be of the same one where the reader
// knows what every step adds to an element: a piece has all that an update of its elements reads,
// but for numbers, of which those at the beginning are of the first state, those at the end of the
// last.
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

// Of a piece, at most.
inline constexpr size_t kStatePieceBytes = size_t{1} << 20;

// Whether who gets a row has the sums of every step from that of its facts on, and can use pieces
// of later states.
enum class Follows : uint8_t { kNo, kYes };

// Where a row comes from, and where it goes. The two seams between a job and the network; one
// thread at a time.
class StateSource {
 public:
  virtual ~StateSource() = default;
  [[nodiscard]] virtual const StateFacts& facts() const = 0;
  // The end of the piece that begins at `offset`, which is in the row.
  [[nodiscard]] virtual uint64_t PieceEnd(uint64_t offset) const {
    return std::min<uint64_t>(offset + kStatePieceBytes, facts().bytes);
  }
  // Bytes of the row from `offset` on, within a piece, and of which state they are: that of the
  // facts, or to who follows a later one. FAILED_PRECONDITION: the state went on, or was replaced.
  virtual StatusOr<uint64_t> Read(uint64_t offset, std::span<uint8_t> to) = 0;
};
class StateSink {
 public:
  virtual ~StateSink() = default;
  // Before all Write. DATA_LOSS: a row of so many bytes is none of this job.
  virtual Status Begin(const StateFacts& facts) = 0;
  // Of S(step). `offset` and all of `from` are within facts.bytes. DATA_LOSS: a step that cannot
  // be.
  virtual Status Write(uint64_t offset, uint64_t step, std::span<const uint8_t> from) = 0;
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

// Where the bytes of a state lie in its row, and where pieces end.
template <typename Byte>
struct StateRow {
  SpanRow<Byte> bytes;
  std::vector<uint64_t> ends;  // ascending
  uint64_t numbers = 0;        // bytes of them, at the beginning and at the end

  [[nodiscard]] uint64_t last_numbers() const { return bytes.bytes() - numbers; }
};

// The row of a state that somebody else keeps where it is, and as it is while a piece is read; its
// numbers are copied at once. Thread-compatible.
class StateReader {
 public:
  // `most`: bytes of a piece; both sides must know the same.
  [[nodiscard]] static StatusOr<StateReader> Create(const State& state,
                                                    size_t most = kStatePieceBytes);
  [[nodiscard]] uint64_t bytes() const { return row_.bytes.bytes(); }
  [[nodiscard]] uint64_t last_numbers() const { return row_.last_numbers(); }  // where they begin
  [[nodiscard]] uint64_t PieceEnd(uint64_t offset) const;
  void Read(uint64_t offset, std::span<uint8_t> to) const;
  // Those at the end are of the state as it is now.
  Status TakeLastNumbers(const State& state);

 private:
  StateReader() = default;
  std::unique_ptr<std::string> first_, last_;  // where they stay when the reader moves
  StateRow<const uint8_t> row_;
};

// A row on its way into a state, without another copy of it. Thread-compatible.
class StateWriter {
 public:
  // `state`, of the job's layout, outlives it.
  explicit StateWriter(State* state, size_t most = kStatePieceBytes) : state_(state), most_(most) {}
  StateWriter(const StateWriter&) = delete;
  StateWriter& operator=(const StateWriter&) = delete;

  // As of a StateSink.
  Status Begin(const StateFacts& facts);
  [[nodiscard]] const StateFacts& facts() const { return facts_; }
  [[nodiscard]] uint64_t first_numbers_end() const { return row_.numbers; }
  void Write(uint64_t offset, std::span<const uint8_t> from);
  // From now on into that one, with the numbers that are there; Begin was called.
  void MoveTo(State* state);
  // Once they are there. DATA_LOSS: they are none of this layout.
  Status SetFirstNumbers();
  Status SetLastNumbers();

 private:
  State* state_;
  const size_t most_;
  StateFacts facts_;
  std::string first_, last_;
  StateRow<uint8_t> row_;
};

// A state that grows in its place.
class IncomingState : public StateSink {
 public:
  // `empty` as a job begins with it.
  explicit IncomingState(State empty, size_t most = kStatePieceBytes)
      : state_(std::move(empty)), writer_(&state_, most) {}
  IncomingState(const IncomingState&) = delete;
  IncomingState& operator=(const IncomingState&) = delete;

  Status Begin(const StateFacts& facts) override { return writer_.Begin(facts); }
  Status Write(uint64_t offset, uint64_t step, std::span<const uint8_t> from) override;
  // Once all bytes are written.
  [[nodiscard]] const StateFacts& facts() const { return writer_.facts(); }
  // Once. DATA_LOSS: it is not a state of this layout, or not one of its own digest, or of another
  // step or digest than the facts say. `for_each` hashes it.
  [[nodiscard]] StatusOr<State> Finish(const ForEachPiece& for_each);

 private:
  State state_;
  StateWriter writer_;
};

}  // namespace ringmaster::worker
