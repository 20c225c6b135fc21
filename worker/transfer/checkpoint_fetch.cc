#include "worker/transfer/checkpoint_fetch.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <string>
#include <utility>

#include "common/rpc/rpc_status.h"
#include "common/signals.h"
#include "ringmaster/v1/jobs.grpc.pb.h"
#include "worker/transfer/checkpoint_receiver.h"
#include "worker/transfer/read_stream.h"

namespace ringmaster::worker {
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
