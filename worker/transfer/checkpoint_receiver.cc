#include "worker/transfer/checkpoint_receiver.h"

#include <algorithm>
#include <string>
#include <utility>

#include "common/sha256.h"
#include "common/text.h"
#include "worker/train/checkpoint.h"
#include "worker/transfer/file_name.h"

namespace ringmaster::worker {
Status CheckpointReceiver::Take(const v1::FilePiece& piece) {
  if (!open_) RING_RETURN_IF_ERROR(Open(piece));
  CheckpointFile& file = checkpoint_.files.back();
  if (piece.name() != file.name || piece.offset() != file.bytes.size()) {
    return DataLoss("a piece of {} at byte {} arrived, expected {} at byte {}",
                    OneLine(piece.name(), kMaxNameText), piece.offset(), file.name,
                    file.bytes.size());
  }
  if (piece.data().size() > max_bytes_ - received_) {
    return DataLoss("more than {} bytes arrived, in {}", max_bytes_, file.name);
  }
  file.bytes += piece.data();
  received_ += piece.data().size();
  open_ = !piece.last();
  return absl::OkStatus();
}

Status CheckpointReceiver::Open(const v1::FilePiece& piece) {
  if (!IsPlainFileName(piece.name())) {
    return DataLoss("a file named `{}` arrived: not a plain file name",
                    OneLine(piece.name(), kMaxNameText));
  }
  if (std::ranges::count(checkpoint_.files, piece.name(), &CheckpointFile::name) > 0) {
    return DataLoss("{} arrived twice", piece.name());
  }
  if (checkpoint_.files.size() == kMaxFiles) return DataLoss("more than {} files", kMaxFiles);
  checkpoint_.files.push_back({piece.name(), {}});
  open_ = true;
  return absl::OkStatus();
}

StatusOr<Checkpoint> CheckpointReceiver::Finish(const v1::CheckpointSource& source) {
  if (open_) {
    return DataLoss("{} ended early, after {} bytes", checkpoint_.files.back().name,
                    checkpoint_.files.back().bytes.size());
  }
  if (checkpoint_.files.empty() || checkpoint_.files.back().name != kManifestName) {
    return DataLoss("{} is not the last of its {} files", kManifestName, checkpoint_.files.size());
  }
  checkpoint_.manifest_sha256 = Hex(Sha256Of(checkpoint_.files.back().bytes));
  if (checkpoint_.manifest_sha256 != source.manifest_sha256()) {
    return DataLoss("{} has SHA-256 {}, expected {}", kManifestName, checkpoint_.manifest_sha256,
                    source.manifest_sha256());
  }
  RING_ASSIGN_OR_RETURN(const ManifestFacts facts, VerifyCheckpoint(checkpoint_));
  if (facts.step != source.step()) {
    return DataLoss("{} is of step {}, expected {}", kManifestName, facts.step, source.step());
  }
  checkpoint_.step = facts.step;
  return std::move(checkpoint_);
}

}  // namespace ringmaster::worker
