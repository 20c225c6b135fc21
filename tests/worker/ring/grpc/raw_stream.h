// A client of the ring port that sends whatever bytes a test wants: what a stranger, an old worker
// or a broken one does. Not thread-safe; every wait ends after ten seconds.
#pragma once

#include <grpcpp/completion_queue.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/generic/generic_stub.h>

#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "ringmaster/v1/ring.pb.h"
#include "worker/ring/grpc/channel_options.h"
#include "worker/ring/grpc/message.h"

namespace ringmaster::ring {

inline grpc::ByteBuffer BytesOf(const std::string& bytes) {
  const grpc::Slice slice(bytes);
  return {&slice, 1};
}

class RawStream {
 public:
  RawStream(uint16_t port, const std::optional<v1::LinkHello>& hello,
            const std::string& method = kLinkMethod)
      : stub_(grpc::CreateCustomChannel(
            "127.0.0.1:" + std::to_string(port), grpc::InsecureChannelCredentials(),
            method == kLinkMethod ? LinkChannelArguments() : grpc::ChannelArguments())) {
    if (hello) AddHello(*hello, &context_);
    call_ = stub_.PrepareCall(&context_, method, &queue_);
    call_->StartCall(&queue_);
    Wait();
  }
  ~RawStream() {
    context_.TryCancel();
    if (!finished_) (void)Finish();
    queue_.Shutdown();
    void* tag = nullptr;
    bool ok = false;
    while (queue_.Next(&tag, &ok)) {
    }
  }

  // False when the stream has ended.
  bool Write(const std::string& bytes) {
    call_->Write(BytesOf(bytes), &queue_);
    return Wait();
  }
  bool WaitAccepted() {
    call_->ReadInitialMetadata(&queue_);
    return Wait();
  }
  std::optional<std::string> Read() {
    grpc::ByteBuffer message;
    call_->Read(&message, &queue_);
    if (!Wait()) return std::nullopt;
    grpc::Slice slice;
    return message.TrySingleSlice(&slice).ok() ? std::string(slice.begin(), slice.end())
                                               : std::string();
  }
  // How the port ended the stream.
  grpc::Status Finish() {
    grpc::Status status;
    finished_ = true;
    call_->Finish(&status, &queue_);
    Wait();
    return status;
  }

 private:
  bool Wait() {
    void* tag = nullptr;
    bool ok = false;
    const auto deadline = std::chrono::system_clock::now() + std::chrono::seconds(10);
    return queue_.AsyncNext(&tag, &ok, deadline) == grpc::CompletionQueue::GOT_EVENT && ok;
  }

  grpc::CompletionQueue queue_;
  grpc::ClientContext context_;
  grpc::GenericStub stub_;
  std::unique_ptr<grpc::GenericClientAsyncReaderWriter> call_;
  bool finished_ = false;
};

}  // namespace ringmaster::ring
