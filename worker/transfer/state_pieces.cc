#include "worker/transfer/state_pieces.h"

#include <grpc/slice.h>
#include <grpcpp/support/proto_buffer_reader.h>
#include <grpcpp/support/slice.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "common/crc32c.h"
#include "ringmaster/v1/states.pb.h"

namespace ringmaster::worker {
namespace {

static_assert(std::endian::native == std::endian::little);

void Fill(const Evaluation& evaluation, v1::EvaluationResult* result) {
  result->set_step(evaluation.step);
  for (const graph::Metric& metric : evaluation.metrics) {
    v1::Metric& added = *result->add_metrics();
    added.set_name(metric.name);
    added.set_value(metric.value);
  }
}

Evaluation FromProto(const v1::EvaluationResult& result) {
  Evaluation evaluation = {.step = result.step()};
  for (const v1::Metric& metric : result.metrics()) {
    evaluation.metrics.push_back({metric.name(), metric.value()});
  }
  return evaluation;
}

struct PieceHeader {
  static constexpr size_t kCovered = 16;

  uint64_t offset = 0;
  uint64_t step = 0;
  uint32_t crc32c = 0;

  void Encode(uint8_t* to) const {
    std::memcpy(to, &offset, sizeof(offset));
    std::memcpy(to + 8, &step, sizeof(step));
    std::memcpy(to + kCovered, &crc32c, sizeof(crc32c));
  }
  // Of what is before it.
  static uint32_t CrcOf(const uint8_t* header) { return ExtendCrc32c(0, {header, kCovered}); }
  static PieceHeader Decode(const uint8_t* from) {
    PieceHeader header;
    std::memcpy(&header.offset, from, sizeof(offset));
    std::memcpy(&header.step, from + 8, sizeof(step));
    std::memcpy(&header.crc32c, from + kCovered, sizeof(crc32c));
    return header;
  }
};
static_assert(kPieceHeaderBytes == PieceHeader::kCovered + sizeof(PieceHeader::crc32c));

}  // namespace

grpc::ByteBuffer HeaderMessage(const StateFacts& facts) {
  v1::StateHeader header;
  header.set_step(facts.step);
  header.set_digest(facts.digest.data(), facts.digest.size());
  header.set_bytes(facts.bytes);
  if (facts.validation) Fill(*facts.validation, header.mutable_validation());
  if (facts.test) Fill(*facts.test, header.mutable_test());
  const grpc::Slice slice(header.SerializeAsString());
  return {&slice, 1};
}

StatusOr<grpc::ByteBuffer> PieceMessage(StateSource* source, uint64_t offset) {
  const auto size = static_cast<size_t>(source->PieceEnd(offset) - offset);
  grpc_slice memory = grpc_slice_malloc_large(kPieceHeaderBytes + size);
  const grpc::Slice slice(memory, grpc::Slice::STEAL_REF);
  uint8_t* const begin = GRPC_SLICE_START_PTR(memory);
  const std::span<uint8_t> bytes(begin + kPieceHeaderBytes, size);
  RING_ASSIGN_OR_RETURN(const uint64_t step, source->Read(offset, bytes));
  PieceHeader header{offset, step};
  header.Encode(begin);
  header.crc32c = ExtendCrc32c(PieceHeader::CrcOf(begin), bytes);
  header.Encode(begin);
  return grpc::ByteBuffer(&slice, 1);
}

Status StateReceiver::Take(const grpc::ByteBuffer& message) {
  return begun_ ? TakePiece(message) : TakeHeader(message);
}

Status StateReceiver::TakeHeader(const grpc::ByteBuffer& message) {
  grpc::ByteBuffer bytes = message;
  grpc::ProtoBufferReader reader(&bytes);
  v1::StateHeader header;
  if (!header.ParseFromZeroCopyStream(&reader)) {
    return DataLoss("the first message of {} bytes is not a header", message.Length());
  }
  if (header.step() != step_) {
    return DataLoss("the header is of step {}, expected {}", header.step(), step_);
  }
  if (header.digest().size() != facts_.digest.size()) {
    return DataLoss("the header's digest has {} bytes, expected {}", header.digest().size(),
                    facts_.digest.size());
  }
  facts_.step = header.step();
  std::ranges::copy(header.digest(), facts_.digest.begin());
  facts_.bytes = header.bytes();
  if (header.has_validation()) facts_.validation = FromProto(header.validation());
  if (header.has_test()) facts_.test = FromProto(header.test());
  RING_RETURN_IF_ERROR(sink_->Begin(facts_));
  begun_ = true;
  return absl::OkStatus();
}

Status StateReceiver::TakePiece(const grpc::ByteBuffer& message) {
  if (message.Length() <= kPieceHeaderBytes) {
    return DataLoss("a message of {} bytes after {} of {}: no piece", message.Length(), received_,
                    facts_.bytes);
  }
  const size_t size = message.Length() - kPieceHeaderBytes;
  std::vector<grpc::Slice> slices;
  if (!message.Dump(&slices).ok()) return DataLoss("an unreadable piece at offset {}", received_);
  std::array<uint8_t, kPieceHeaderBytes> head;
  size_t have = 0;
  uint32_t crc = 0;
  std::vector<std::span<const uint8_t>> parts;
  for (const grpc::Slice& slice : slices) {
    const size_t of_head = std::min(slice.size(), head.size() - have);
    std::memcpy(head.data() + have, slice.begin(), of_head);
    have += of_head;
    if (of_head > 0 && have == head.size()) crc = PieceHeader::CrcOf(head.data());
    parts.emplace_back(slice.begin() + of_head, slice.size() - of_head);
    crc = ExtendCrc32c(crc, parts.back());
  }
  const PieceHeader header = PieceHeader::Decode(head.data());
  if (header.offset != received_) {
    return DataLoss("bytes at offset {} arrived, expected offset {}", header.offset, received_);
  }
  if (size > facts_.bytes - received_) {
    return DataLoss("{} bytes arrived at offset {}, but the state ends at {}", size, received_,
                    facts_.bytes);
  }
  if (crc != header.crc32c) {
    return DataLoss("the {} bytes at offset {} have CRC-32C {:08x}, expected {:08x}", size,
                    received_, crc, header.crc32c);
  }
  for (const std::span<const uint8_t> part : parts) {
    RING_RETURN_IF_ERROR(sink_->Write(received_, header.step, part));
    received_ += part.size();
  }
  return absl::OkStatus();
}

}  // namespace ringmaster::worker
