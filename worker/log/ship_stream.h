// One ShipLogs call as seen by the one thread that uses it: every operation has a deadline, and
// after the first that failed the stream is spent. Cancel from any thread ends an operation at
// once.
#pragma once

#include <grpcpp/completion_queue.h>

#include <chrono>
#include <memory>

#include "common/status.h"
#include "ringmaster/v1/fleet.grpc.pb.h"

namespace ringmaster::worker {

class ShipStream {
 public:
  explicit ShipStream(v1::Fleet::Stub* stub);
  ~ShipStream();
  ShipStream(const ShipStream&) = delete;
  ShipStream& operator=(const ShipStream&) = delete;

  // Connects, sends the chunk or waits for an acknowledgement; false when the stream broke or the
  // deadline passed.
  [[nodiscard]] bool Begin(std::chrono::system_clock::time_point deadline);
  [[nodiscard]] bool Send(const v1::LogChunk& chunk,
                          std::chrono::system_clock::time_point deadline);
  [[nodiscard]] bool Hear(v1::LogAck* ack, std::chrono::system_clock::time_point deadline);
  // Why the stream broke; ends it first.
  [[nodiscard]] Status End();
  void Cancel() { context_.TryCancel(); }

 private:
  // Waits for the one operation under way.
  [[nodiscard]] bool Await(std::chrono::system_clock::time_point deadline);

  grpc::ClientContext context_;
  grpc::CompletionQueue queue_;
  std::unique_ptr<grpc::ClientAsyncReaderWriter<v1::LogChunk, v1::LogAck>> stream_;
  bool begun_ = false;
  bool late_ = false;  // a deadline passed
};

}  // namespace ringmaster::worker
