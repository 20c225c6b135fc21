#include "worker/ring/grpc/outgoing_stream.h"

#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>

#include <utility>

#include "common/rpc/rpc_status.h"
#include "worker/ring/grpc/channel_options.h"
#include "worker/ring/grpc/hello.h"
#include "worker/ring/grpc/message.h"

namespace ringmaster::ring {
namespace {

// Returns its bytes to the LinkState when gRPC has let go of the last piece.
struct Unsent {
  std::shared_ptr<LinkState> state;
  size_t bytes;
  Unsent(std::shared_ptr<LinkState> link_state, size_t byte_count)
      : state(std::move(link_state)), bytes(byte_count) {}
  Unsent(const Unsent&) = delete;
  Unsent& operator=(const Unsent&) = delete;
  ~Unsent() { state->Release(bytes); }
};

// A successor that ends the stream itself says why; a broken connection says nothing.
Status EndOf(const grpc::Status& status, const std::string& successor, const std::string& address) {
  const std::string reason = ErrorReason(status);
  if (reason.empty()) {
    return Error(absl::StatusCode::kUnavailable, "successor {} at {} is lost: {}", successor,
                 address, status.error_message());
  }
  if (reason == kReasonLeft) return Status(absl::StatusCode::kAborted, status.error_message());
  return Annotate(FromGrpc(status), "refused by successor " + successor + " at " + address);
}

}  // namespace

std::shared_ptr<OutgoingStream> OutgoingStream::Open(const Address& address,
                                                     const v1::LinkHello& hello,
                                                     std::shared_ptr<LinkState> state) {
  state->Begin(Edge::kSuccessor);
  std::shared_ptr<OutgoingStream> stream(new OutgoingStream(address, hello, std::move(state)));
  stream->self_ = stream;
  stream->stub_.PrepareBidiStreamingCall(&stream->context_, kLinkMethod, {}, stream.get());
  stream->AddHold();
  stream->StartRead(&stream->unexpected_);
  stream->StartCall();
  return stream;
}

OutgoingStream::OutgoingStream(const Address& address, const v1::LinkHello& hello,
                               std::shared_ptr<LinkState> state)
    : state_(std::move(state)),
      address_(address.ToString()),
      channel_(grpc::CreateCustomChannel(address.Target(), grpc::InsecureChannelCredentials(),
                                         RingChannelArguments())),
      stub_(channel_) {
  context_.set_wait_for_ready(true);
  AddHello(hello, &context_);
}

Status OutgoingStream::Send(const FrameHeader& header, const Payload& payload, TimePoint deadline) {
  const size_t bytes = kHeaderBytes + payload.size();
  RING_RETURN_IF_ERROR(state_->Reserve(bytes, deadline));
  grpc::ByteBuffer message =
      ToMessage(header, payload, std::make_shared<const Unsent>(state_, bytes));
  {
    MutexLock lock(mu_);
    if (!held_ || closing_) return absl::OkStatus();
    queue_.push_back(std::move(message));
    if (!writing_) WriteNext();
  }
  calls_.Run(shared_from_this());
  return absl::OkStatus();
}

void OutgoingStream::WriteNext() {
  writing_ = held_ && !queue_.empty();
  if (!writing_) return;
  // The message stays where it is while it is the first.
  const grpc::ByteBuffer* const message = &queue_.front();
  if (closing_ && queue_.size() == 1) {
    calls_.Add([this, message]() { StartWriteLast(message, grpc::WriteOptions()); });
    EndHold();
  } else {
    calls_.Add([this, message]() { StartWrite(message); });
  }
}

void OutgoingStream::Close(Queued queued) {
  // Where there is no connection nobody is to be told. Where there is one the successor may have
  // accepted the stream without our knowing.
  if (channel_->GetState(false) != GRPC_CHANNEL_READY) {
    Abort();
    return;
  }
  std::deque<grpc::ByteBuffer> dropped;  // outlives the lock: its pieces go back to the LinkState
  {
    MutexLock lock(mu_);
    if (closing_ || !held_) return;
    if (queued == Queued::kDrop) {
      while (queue_.size() > (writing_ ? 1 : 0)) {
        dropped.push_back(std::move(queue_.back()));
        queue_.pop_back();
      }
    }
    closing_ = true;
    queue_.emplace_back(grpc::ByteBuffer(nullptr, 0));  // the goodbye: a message without bytes
    if (!writing_) WriteNext();
  }
  calls_.Run(shared_from_this());
}

void OutgoingStream::Abort() {
  context_.TryCancel();
  DropHold();
}

void OutgoingStream::EndHold() {
  if (std::exchange(held_, false)) calls_.Add([this]() { RemoveHold(); });
}

void OutgoingStream::DropHold() {
  {
    MutexLock lock(mu_);
    EndHold();
  }
  calls_.Run(shared_from_this());
}

void OutgoingStream::OnReadInitialMetadataDone(bool ok) {
  if (ok) state_->Joined(Edge::kSuccessor);
}

void OutgoingStream::OnReadDone(bool ok) {
  if (ok) {
    state_->Fail(
        InvalidArgument("successor {} at {} sent a message: only frames of predecessors "
                        "flow on a ring stream",
                        state_->successor(), address_));
    context_.TryCancel();
  }
  DropHold();  // the stream is over; OnDone brings the status
}

void OutgoingStream::OnWriteDone(bool ok) {
  grpc::ByteBuffer written;  // outlives the lock
  {
    MutexLock lock(mu_);
    written = std::move(queue_.front());
    queue_.pop_front();
    writing_ = false;
    if (ok) {
      WriteNext();
    } else {
      EndHold();
    }
  }
  calls_.Run(shared_from_this());
}

void OutgoingStream::OnDone(const grpc::Status& status) {
  if (status.ok()) {
    state_->SuccessorLeft();
  } else {
    state_->Fail(EndOf(status, state_->successor(), address_));
  }
  {
    std::deque<grpc::ByteBuffer> dropped;  // outlives the lock
    MutexLock lock(mu_);
    dropped.swap(queue_);
  }
  // Whoever waits for Done may end the process next: by then this thread holds nothing any more.
  const std::shared_ptr<LinkState> state = state_;
  self_.reset();  // may destroy this
  state->Done(Edge::kSuccessor);
}

}  // namespace ringmaster::ring
