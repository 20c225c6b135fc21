// Fetches a checkpoint from the coordinator's folder, for a job that is restored. A free function;
// the caller's thread waits.
#pragma once

#include <grpcpp/channel.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <stop_token>

#include "common/status.h"
#include "ringmaster/v1/fleet.pb.h"
#include "worker/state/checkpoint_sink.h"

namespace ringmaster::worker {

// A checkpoint on its way in: takes the pieces of a GetCheckpoint stream, files one after the
// other, and verifies the whole. A value for one thread; it knows no network.
class CheckpointReceiver {
 public:
  explicit CheckpointReceiver(uint64_t max_bytes = uint64_t{64} << 30) : max_bytes_(max_bytes) {}

  // DATA_LOSS says what differs; the receiver is spent then.
  [[nodiscard]] Status Take(const v1::FilePiece& piece);
  [[nodiscard]] uint64_t received() const { return received_; }

  // The files, which are those that their manifest says, and the manifest that of `source`; else
  // DATA_LOSS. Once.
  [[nodiscard]] StatusOr<Checkpoint> Finish(const v1::CheckpointSource& source);

 private:
  [[nodiscard]] Status Open(const v1::FilePiece& piece);

  const uint64_t max_bytes_;
  Checkpoint checkpoint_;
  bool open_ = false;  // the last file still grows
  uint64_t received_ = 0;
};

// Verified against its manifest, whose SHA-256 is the source's. While the coordinator is away, or
// breaks off, it tries again with a growing pause, until `deadline`. Errors name job and step:
// CANCELLED: `stop`; DEADLINE_EXCEEDED with the last error; NOT_FOUND; DATA_LOSS: a file, or the
// manifest, is not the one that was asked for.
[[nodiscard]] StatusOr<Checkpoint> FetchCheckpoint(
    const std::shared_ptr<grpc::Channel>& coordinator, const v1::CheckpointSource& source,
    std::chrono::steady_clock::time_point deadline, const std::stop_token& stop);

}  // namespace ringmaster::worker
