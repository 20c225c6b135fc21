#include "worker/transfer/checkpoint_fetch.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <string>
#include <utility>

#include "common/files.h"
#include "common/rpc/read_stream.h"
#include "common/rpc/rpc_status.h"
#include "common/sha256.h"
#include "common/signals.h"
#include "common/text.h"
#include "ringmaster/v1/jobs.grpc.pb.h"
#include "worker/state/checkpoint.h"
#include "worker/state/manifest.h"

namespace ringmaster::worker {
namespace {

constexpr size_t kMaxFiles = 64;  // of one checkpoint

}  // namespace

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
  CheckpointFile& file = checkpoint_.files.emplace_back();
  file.name = piece.name();
  // A string that grows takes twice its bytes at last.
  file.bytes.reserve(std::min(piece.bytes(), max_bytes_ - received_));
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

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// For one piece: a disk may be slow, a coordinator that stands still is asked again.
constexpr milliseconds kPieceLimit{10'000};
constexpr milliseconds kFirstPause{50};
constexpr milliseconds kLastPause{1'000};

StatusOr<Checkpoint> Try(v1::Jobs::Stub* stub, const v1::CheckpointSource& source,
                         Clock::time_point deadline, const std::stop_token& stop) {
  v1::GetCheckpointRequest request;
  request.set_job_id(source.job_id());
  request.set_step(source.step());
  const auto prepare = [&](grpc::ClientContext* context, grpc::CompletionQueue* queue) {
    return stub->PrepareAsyncGetCheckpoint(context, request, queue);
  };
  const auto limit = [&]() { return std::min(Clock::now() + kPieceLimit, deadline); };

  ReadStream<v1::FilePiece> stream(prepare, stop);
  CheckpointReceiver receiver;
  v1::FilePiece piece;
  bool open = stream.Begin(limit());
  while (open && stream.Read(&piece, limit())) RING_RETURN_IF_ERROR(receiver.Take(piece));
  if (stream.late()) {
    return Error(absl::StatusCode::kUnavailable, "the coordinator sent nothing more after {} bytes",
                 receiver.received());
  }
  RING_RETURN_IF_ERROR(FromGrpc(stream.End()));
  return receiver.Finish(source);
}

bool MayPass(const Status& status) {
  return status.code() == absl::StatusCode::kUnavailable ||
         status.code() == absl::StatusCode::kUnauthenticated ||  // a certificate is to be renewed
         status.code() == absl::StatusCode::kCancelled;
}

StatusOr<Checkpoint> Fetch(v1::Jobs::Stub* stub, const v1::CheckpointSource& source,
                           Clock::time_point deadline, const std::stop_token& stop) {
  milliseconds pause = kFirstPause;
  while (true) {
    StatusOr<Checkpoint> checkpoint = Try(stub, source, deadline, stop);
    if (checkpoint.ok()) return checkpoint;
    const Status& status = checkpoint.status();
    if (stop.stop_requested()) return absl::CancelledError("the fetch was stopped");
    if (!MayPass(status)) return status;
    if (Clock::now() + pause >= deadline) {
      return Error(absl::StatusCode::kDeadlineExceeded, "not there in time: {}", Message(status));
    }
    spdlog::warn("checkpoint of job {} at step {} not fetched yet, trying again: {}",
                 source.job_id(), source.step(), Message(status));
    if (WaitForStop(stop, pause)) return absl::CancelledError("the fetch was stopped");
    pause = std::min(pause * 2, kLastPause);
  }
}

}  // namespace

StatusOr<Checkpoint> FetchCheckpoint(const std::shared_ptr<grpc::Channel>& coordinator,
                                     const v1::CheckpointSource& source, Clock::time_point deadline,
                                     const std::stop_token& stop) {
  const std::unique_ptr<v1::Jobs::Stub> stub = v1::Jobs::NewStub(coordinator);
  StatusOr<Checkpoint> checkpoint = Fetch(stub.get(), source, deadline, stop);
  if (checkpoint.ok()) return checkpoint;
  return Annotate(checkpoint.status(),
                  fmt::format("checkpoint of job {} at step {}", source.job_id(), source.step()));
}

}  // namespace ringmaster::worker
