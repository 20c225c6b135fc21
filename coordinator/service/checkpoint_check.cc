#include "coordinator/service/checkpoint_check.h"

#include <utility>

namespace ringmaster::coordinator {
namespace {

constexpr int kPiecesOfPart = 16;  // of 1 MiB

}  // namespace

void CheckpointCheck::Begin(Loop& disk, std::vector<v1::CheckpointRef> refs, Hearer hearer) {
  const std::shared_ptr<CheckpointCheck> check(
      new CheckpointCheck(disk, std::move(refs), std::move(hearer)));
  check->Continue();
}

void CheckpointCheck::Continue() {
  if (disk_.Post([self = shared_from_this()] { self->ReadPart(); })) return;
  hearer_.end(Error(absl::StatusCode::kUnavailable,
                    "the coordinator is stopping or overloaded; try again"));
}

void CheckpointCheck::ReadPart() {
  const bool wanted = !hearer_.wanted || hearer_.wanted();
  if (!wanted || current_ == refs_.size()) return hearer_.end(absl::OkStatus());
  const StatusOr<bool> ended = ReadToEnd();
  if (ended.ok() && !*ended) return Continue();
  const Next next = Tell(ended.status());
  reader_.reset();
  ++current_;
  if (next == Next::kEnough) return hearer_.end(absl::OkStatus());
  Continue();
}

// False: there is more to read.
StatusOr<bool> CheckpointCheck::ReadToEnd() {
  const v1::CheckpointRef& ref = refs_[current_];
  if (!reader_) {
    RING_ASSIGN_OR_RETURN(reader_, CheckpointReader::Open(ref.path(), ref.sha256()));
    if (reader_->manifest().step != ref.step()) {
      return Error(absl::StatusCode::kDataLoss, "{}/{} is of step {}, expected {}", ref.path(),
                   kManifestName, reader_->manifest().step, ref.step());
    }
  }
  for (int i = 0; i < kPiecesOfPart; ++i) {
    RING_ASSIGN_OR_RETURN(const std::optional<v1::FilePiece> piece, reader_->Next());
    if (!piece) return true;
  }
  return false;
}

CheckpointCheck::Next CheckpointCheck::Tell(const Status& status) {
  return hearer_.tell(current_, {status, status.ok() ? reader_->manifest().digest : ""});
}

}  // namespace ringmaster::coordinator
