#include "worker/log/ship_stream.h"

#include "common/rpc/rpc_status.h"

namespace ringmaster::worker {

using Deadline = std::chrono::system_clock::time_point;

ShipStream::ShipStream(v1::Fleet::Stub* stub)
    : stream_(stub->PrepareAsyncShipLogs(&context_, &queue_)) {}

ShipStream::~ShipStream() {
  if (begun_) (void)End();
  queue_.Shutdown();
  void* tag = nullptr;
  bool ok = false;
  while (queue_.Next(&tag, &ok)) {
  }
}

bool ShipStream::Await(Deadline deadline) {
  void* tag = nullptr;
  bool ok = false;
  if (queue_.AsyncNext(&tag, &ok, deadline) == grpc::CompletionQueue::GOT_EVENT) return ok;
  late_ = true;
  context_.TryCancel();  // the operation ends now, and a cancelled one ends soon
  (void)queue_.Next(&tag, &ok);
  return false;
}

bool ShipStream::Begin(Deadline deadline) {
  stream_->StartCall(this);
  begun_ = true;
  return Await(deadline);
}

bool ShipStream::Send(const v1::LogChunk& chunk, Deadline deadline) {
  stream_->Write(chunk, this);
  return Await(deadline);
}

bool ShipStream::Hear(v1::LogAck* ack, Deadline deadline) {
  stream_->Read(ack, this);
  return Await(deadline);
}

Status ShipStream::End() {
  begun_ = false;
  context_.TryCancel();
  grpc::Status status;
  stream_->Finish(&status, this);
  void* tag = nullptr;
  bool ok = false;
  (void)queue_.Next(&tag, &ok);
  if (late_) return absl::DeadlineExceededError("the coordinator did not answer in time");
  return FromGrpc(status);
}

}  // namespace ringmaster::worker
