// Streams finished checkpoints to the coordinator's checkpoint folder and waits until they are
// durable there. Called on the trainer's writer thread; holds nothing but the channel.
#pragma once

#include <grpcpp/channel.h>

#include <functional>
#include <memory>
#include <string>

#include "common/ids.h"
#include "ringmaster/v1/fleet.grpc.pb.h"
#include "worker/state/checkpoint_sink.h"

namespace ringmaster::worker {

// By which the coordinator knows who uploads, and whether it may: both change while a delivery goes
// on.
struct UploadRights {
  std::string ticket;       // of the newest session; empty: there was none yet
  GenerationId generation;  // that runs here, or ran last
};

class CheckpointUpload : public CheckpointSink {
 public:
  // `rights` is asked at each attempt, on the thread of Deliver.
  CheckpointUpload(const std::shared_ptr<grpc::Channel>& channel, JobId job,
                   std::function<UploadRights()> rights);

  // One try. UNAVAILABLE: the coordinator is away, stops, restarts, or cannot write now, or this
  // worker is not (yet) the one that may write: to be tried again.
  Status Deliver(const Checkpoint& checkpoint, const std::stop_token& stop) override;

 private:
  Status Try(const Checkpoint& checkpoint, const std::stop_token& stop);

  const std::unique_ptr<v1::Fleet::Stub> stub_;
  const JobId job_;
  const std::function<UploadRights()> rights_;
};

}  // namespace ringmaster::worker
