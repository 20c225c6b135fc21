// Fetches a checkpoint from the coordinator's folder, for a job that is restored. A free function;
// the caller's thread waits.
#pragma once

#include <grpcpp/channel.h>

#include <chrono>
#include <memory>
#include <stop_token>

#include "common/status.h"
#include "ringmaster/v1/fleet.pb.h"
#include "worker/train/checkpoint_sink.h"

namespace ringmaster::worker {

// Verified against its manifest, whose SHA-256 is the source's. While the coordinator is away, or
// breaks off, it tries again with a growing pause, until `deadline`. Errors name job and step:
// CANCELLED: `stop`; DEADLINE_EXCEEDED with the last error; NOT_FOUND; DATA_LOSS: a file, or the
// manifest, is not the one that was asked for.
[[nodiscard]] StatusOr<Checkpoint> FetchCheckpoint(
    const std::shared_ptr<grpc::Channel>& coordinator, const v1::CheckpointSource& source,
    std::chrono::steady_clock::time_point deadline, const std::stop_token& stop);

}  // namespace ringmaster::worker
