#include "worker/job/checkpoint_upload.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <utility>

#include "common/rpc/rpc_status.h"

namespace ringmaster::worker {
namespace {

constexpr size_t kUploadPieceBytes = 1 << 20;
// For one whole checkpoint, until it is confirmed. The coordinator ends it after 15 minutes and
// what its bytes take at 5 MB/s, and says what it waited for: a little sooner than this.
std::chrono::milliseconds UploadLimit(const Checkpoint& checkpoint) {
  uint64_t bytes = 0;
  for (const CheckpointFile& file : checkpoint.files) bytes += file.bytes.size();
  return std::chrono::minutes(16) + std::chrono::milliseconds(bytes / 5'000);
}

using Writer = grpc::ClientWriterInterface<v1::CheckpointUpload>;

// False when the stream broke; its status then says why.
bool WriteFile(const CheckpointFile& file, Writer* writer) {
  size_t offset = 0;
  do {
    const size_t bytes = std::min(kUploadPieceBytes, file.bytes.size() - offset);
    v1::CheckpointUpload upload;
    v1::FilePiece& piece = *upload.mutable_piece();
    piece.set_name(file.name);
    piece.set_offset(offset);
    piece.set_data(file.bytes.data() + offset, bytes);
    offset += bytes;
    piece.set_last(offset == file.bytes.size());
    if (!writer->Write(upload)) return false;
  } while (offset < file.bytes.size());
  return true;
}

// A coordinator that is down, stops, restarts, or cannot write now; a ticket of a session that
// broke, a generation that has just changed, a certificate that is to be renewed. What it says
// about the checkpoint itself stays.
bool MayPass(const Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kDeadlineExceeded:
    case absl::StatusCode::kCancelled:
    case absl::StatusCode::kAborted:
    case absl::StatusCode::kResourceExhausted:
    case absl::StatusCode::kPermissionDenied:
    case absl::StatusCode::kUnauthenticated:
    case absl::StatusCode::kUnknown:
      return true;
    default:
      return false;
  }
}

}  // namespace

CheckpointUpload::CheckpointUpload(const std::shared_ptr<grpc::Channel>& channel, JobId job,
                                   std::function<UploadRights()> rights)
    : stub_(v1::Fleet::NewStub(channel)), job_(std::move(job)), rights_(std::move(rights)) {}

Status CheckpointUpload::Try(const Checkpoint& checkpoint, const std::stop_token& stop) {
  const UploadRights rights = rights_();
  if (rights.ticket.empty()) {
    return Error(absl::StatusCode::kUnavailable, "no session with the coordinator is open");
  }
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + UploadLimit(checkpoint));
  const std::stop_callback cancel(stop, [&context]() { context.TryCancel(); });
  v1::CheckpointReceipt receipt;
  const std::unique_ptr<Writer> writer(stub_->UploadCheckpoint(&context, &receipt));

  v1::CheckpointUpload upload;
  v1::CheckpointBegin& begin = *upload.mutable_begin();
  begin.set_job_id(job_.value());
  begin.mutable_generation()->set_term(rights.generation.term);
  begin.mutable_generation()->set_counter(rights.generation.counter);
  begin.set_ticket(rights.ticket);
  begin.set_step(checkpoint.step);
  if (checkpoint.standing.metric) begin.set_metric(*checkpoint.standing.metric);
  begin.set_best(checkpoint.standing.best);
  bool open = writer->Write(upload);
  for (const CheckpointFile& file : checkpoint.files) open = open && WriteFile(file, writer.get());
  if (open) writer->WritesDone();
  RING_RETURN_IF_ERROR(FromGrpc(writer->Finish()));
  if (receipt.manifest_sha256() != checkpoint.manifest_sha256) {
    return Internal("the coordinator stored a manifest with SHA-256 {}, expected {}",
                    receipt.manifest_sha256(), checkpoint.manifest_sha256);
  }
  return absl::OkStatus();
}

Status CheckpointUpload::Deliver(const Checkpoint& checkpoint, const std::stop_token& stop) {
  const Status status = Try(checkpoint, stop);
  if (stop.stop_requested()) return absl::CancelledError("the upload was stopped");
  if (status.ok()) {
    spdlog::info("checkpoint delivered: job={} step={} manifest={}{}", job_.value(),
                 checkpoint.step, checkpoint.manifest_sha256,
                 checkpoint.standing.best ? " best=yes" : "");
    return status;
  }
  if (!MayPass(status)) {
    return Annotate(status, fmt::format("checkpoint of step {}", checkpoint.step));
  }
  spdlog::warn("checkpoint of step {} not delivered yet, trying again: {}", checkpoint.step,
               Message(status));
  return absl::UnavailableError(Message(status));
}

}  // namespace ringmaster::worker
