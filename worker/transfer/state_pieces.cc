#include "worker/transfer/state_pieces.h"

#include <algorithm>
#include <span>

#include "common/crc32c.h"

namespace ringmaster::worker {
namespace {

void Fill(const Evaluation& evaluation, v1::EvaluationResult* result) {
  result->set_step(evaluation.step);
  for (const graph::Metric& metric : evaluation.metrics) {
    v1::Metric& added = *result->add_metrics();
    added.set_name(metric.name);
    added.set_value(metric.value);
  }
}

}  // namespace

bool StatePieces::Next(v1::StatePiece* piece) {
  switch (at_) {
    case At::kHeader:
      FillHeader(piece->mutable_header());
      at_ = At::kBytes;
      return true;
    case At::kBytes:
      if (FindBytes()) {
        FillBytes(piece->mutable_bytes());
        return true;
      }
      {
        const Sha256Digest sha256 = hash_.Finish();
        piece->mutable_end()->set_sha256(sha256.data(), sha256.size());
      }
      at_ = At::kOver;
      return true;
    case At::kOver:
      break;
  }
  return false;
}

void StatePieces::FillHeader(v1::StateHeader* header) const {
  header->set_step(copy_->step);
  header->set_digest(copy_->digest.data(), copy_->digest.size());
  for (const CheckpointFile& file : copy_->files) {
    v1::StateFile& entry = *header->add_files();
    entry.set_name(file.name);
    entry.set_bytes(file.bytes.size());
  }
  if (copy_->validation) Fill(*copy_->validation, header->mutable_validation());
  if (copy_->test) Fill(*copy_->test, header->mutable_test());
}

bool StatePieces::FindBytes() {
  while (file_ < copy_->files.size() && sent_ == copy_->files[file_].bytes.size()) {
    ++file_;
    sent_ = 0;
  }
  return file_ < copy_->files.size();
}

void StatePieces::FillBytes(v1::StateBytes* bytes) {
  const std::string& file = copy_->files[file_].bytes;
  const size_t size = std::min(kStatePieceBytes, file.size() - sent_);
  const std::span<const uint8_t> data(reinterpret_cast<const uint8_t*>(file.data()) + sent_, size);
  bytes->set_offset(offset_);
  bytes->set_data(data.data(), size);
  bytes->set_crc32c(ExtendCrc32c(0, data));
  hash_.Update(data);
  sent_ += size;
  offset_ += size;
}

}  // namespace ringmaster::worker
