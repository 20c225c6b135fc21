// Streams finished checkpoints to the coordinator's checkpoint folder and waits until they are
// durable there. Called on the trainer's writer thread; holds nothing but the channel.
#pragma once

#include <grpcpp/channel.h>

#include <memory>
#include <string>

#include "common/ids.h"
#include "ringmaster/v1/fleet.grpc.pb.h"
#include "worker/train/checkpoint_sink.h"

namespace ringmaster::worker {

class CheckpointUpload : public CheckpointSink {
 public:
  CheckpointUpload(const std::shared_ptr<grpc::Channel>& channel, JobId job,
                   GenerationId generation, std::string worker);

  // While the coordinator is away it tries again, with a growing pause, until `stop`.
  Status Deliver(const Checkpoint& checkpoint, const std::stop_token& stop) override;

 private:
  Status Try(const Checkpoint& checkpoint, const std::stop_token& stop);

  const std::unique_ptr<v1::Fleet::Stub> stub_;
  const JobId job_;
  const GenerationId generation_;
  const std::string worker_;
};

}  // namespace ringmaster::worker
