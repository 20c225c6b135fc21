// A state on the wire: the messages of a States stream, and one that takes them in. They are raw
// bytes, a piece's checksum before it (states.proto says how), so that a state passes through no
// protobuf message. Thread-compatible; it knows no network.
#pragma once

#include <grpcpp/support/byte_buffer.h>

#include <cstdint>

#include "common/status.h"
#include "worker/state/state_row.h"

namespace ringmaster::worker {

// Before the bytes of a piece, little-endian: their offset in the row (8 bytes), the step of their
// state (8), and the CRC-32C of these and of the bytes (4).
inline constexpr size_t kPieceHeaderBytes = 20;

// The first message.
[[nodiscard]] grpc::ByteBuffer HeaderMessage(const StateFacts& facts);
// The piece of the row that begins at `offset`, read from `source`, whose errors it returns.
[[nodiscard]] StatusOr<grpc::ByteBuffer> PieceMessage(StateSource* source, uint64_t offset);

// Takes the messages of one stream, in their order and no others.
class StateReceiver {
 public:
  // S(step); `sink` outlives it.
  StateReceiver(uint64_t step, StateSink* sink) : step_(step), sink_(sink) {}

  // DATA_LOSS says what differs, else it is the sink's error; the receiver is spent then.
  [[nodiscard]] Status Take(const grpc::ByteBuffer& message);
  // All bytes are there.
  [[nodiscard]] bool complete() const { return begun_ && received_ == facts_.bytes; }
  [[nodiscard]] const StateFacts& facts() const { return facts_; }
  [[nodiscard]] uint64_t received() const { return received_; }

 private:
  [[nodiscard]] Status TakeHeader(const grpc::ByteBuffer& message);
  [[nodiscard]] Status TakePiece(const grpc::ByteBuffer& message);

  const uint64_t step_;
  StateSink* const sink_;
  StateFacts facts_;
  bool begun_ = false;  // the header is there
  uint64_t received_ = 0;
};

}  // namespace ringmaster::worker
