#include "worker/transfer/state_receiver.h"

#include <algorithm>
#include <span>
#include <string>
#include <utility>

#include "common/crc32c.h"
#include "common/text.h"

namespace ringmaster::worker {
namespace {

// Room that a file gets with its first byte; later four times what it has. Never more than
// announced.
constexpr uint64_t kFirstRoom = uint64_t{64} << 20;

std::span<const uint8_t> BytesOf(const std::string& text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

Evaluation FromProto(const v1::EvaluationResult& result) {
  Evaluation evaluation = {.step = result.step()};
  for (const v1::Metric& metric : result.metrics()) {
    evaluation.metrics.push_back({metric.name(), metric.value()});
  }
  return evaluation;
}

}  // namespace

StateReceiver::StateReceiver(uint64_t step, uint64_t max_bytes)
    : step_(step), max_bytes_(max_bytes) {}

Status StateReceiver::Take(const v1::StatePiece& piece) {
  if (complete_) return DataLoss("another piece after the end");
  if (piece.kind_case() == v1::StatePiece::kHeader) return TakeHeader(piece.header());
  if (!begun_) return DataLoss("the first piece is not the header");
  if (piece.kind_case() == v1::StatePiece::kBytes) return TakeBytes(piece.bytes());
  if (piece.kind_case() == v1::StatePiece::kEnd) return TakeEnd(piece.end());
  return DataLoss("a piece of no known kind after {} of {} bytes", received_, expected_);
}

Status StateReceiver::TakeHeader(const v1::StateHeader& header) {
  if (begun_) return DataLoss("a second header after {} of {} bytes", received_, expected_);
  if (header.step() != step_) {
    return DataLoss("the header is of step {}, expected {}", header.step(), step_);
  }
  if (header.digest().size() != copy_.digest.size()) {
    return DataLoss("the header's digest has {} bytes, expected {}", header.digest().size(),
                    copy_.digest.size());
  }
  RING_RETURN_IF_ERROR(TakeFiles(header));
  copy_.step = header.step();
  std::ranges::copy(BytesOf(header.digest()), copy_.digest.begin());
  if (header.has_validation()) copy_.validation = FromProto(header.validation());
  if (header.has_test()) copy_.test = FromProto(header.test());
  begun_ = true;
  return absl::OkStatus();
}

Status StateReceiver::TakeFiles(const v1::StateHeader& header) {
  if (static_cast<size_t>(header.files_size()) > kMaxFiles) {
    return DataLoss("the header names {} files, at most {} are taken", header.files_size(),
                    kMaxFiles);
  }
  for (const v1::StateFile& file : header.files()) {
    if (!IsPlainFileName(file.name())) {
      return DataLoss("the header names a file `{}`: not a plain file name",
                      OneLine(file.name(), kMaxNameText));
    }
    if (std::ranges::count(copy_.files, file.name(), &CheckpointFile::name) > 0) {
      return DataLoss("the header names {} twice", file.name());
    }
    if (file.bytes() > max_bytes_ - expected_) {
      return DataLoss("the header announces more than {} bytes, with {} of {}", max_bytes_,
                      file.bytes(), file.name());
    }
    expected_ += file.bytes();
    sizes_.push_back(file.bytes());
    copy_.files.push_back({file.name(), {}});
  }
  return absl::OkStatus();
}

Status StateReceiver::TakeBytes(const v1::StateBytes& bytes) {
  const std::string& data = bytes.data();
  if (bytes.offset() != received_) {
    return DataLoss("bytes at offset {} arrived, expected offset {}", bytes.offset(), received_);
  }
  if (data.empty()) return DataLoss("an empty piece at offset {}", received_);
  if (data.size() > expected_ - received_) {
    return DataLoss("{} bytes arrived at offset {}, but the files end at {}", data.size(),
                    received_, expected_);
  }
  const uint32_t crc = ExtendCrc32c(0, BytesOf(data));
  if (crc != bytes.crc32c()) {
    return DataLoss("the {} bytes at offset {} have CRC-32C {:08x}, expected {:08x}", data.size(),
                    received_, crc, bytes.crc32c());
  }
  Append(data);
  return absl::OkStatus();
}

void StateReceiver::Append(const std::string& data) {
  hash_.Update(data);
  received_ += data.size();
  for (size_t taken = 0; taken < data.size();) {
    std::string& file = copy_.files[file_].bytes;
    const size_t size = std::min<uint64_t>(data.size() - taken, sizes_[file_] - file.size());
    if (file.size() + size > file.capacity()) {
      const uint64_t room = std::max<uint64_t>(kFirstRoom, 4 * (file.size() + size));
      file.reserve(std::min(sizes_[file_], room));
    }
    file.append(data, taken, size);
    taken += size;
    if (taken < data.size()) ++file_;  // this one is full, and there is one with room
  }
}

Status StateReceiver::TakeEnd(const v1::StateEnd& end) {
  if (received_ != expected_) {
    return DataLoss("the end came after {} of {} bytes", received_, expected_);
  }
  const Sha256Digest sha256 = hash_.Finish();
  if (!std::ranges::equal(BytesOf(end.sha256()), sha256)) {
    return DataLoss("the {} bytes have SHA-256 {}, the source says {}", received_, Hex(sha256),
                    Hex(BytesOf(end.sha256())));
  }
  complete_ = true;
  return absl::OkStatus();
}

}  // namespace ringmaster::worker
