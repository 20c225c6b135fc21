#include "worker/ring/grpc/incoming_stream.h"

#include <utility>

#include "common/rpc/rpc_status.h"
#include "worker/ring/grpc/hello.h"
#include "worker/ring/grpc/message.h"

namespace ringmaster::ring {
namespace {

StatusOr<Frame> FrameOf(const grpc::ByteBuffer& message, size_t largest_payload) {
  if (message.Length() <= kHeaderBytes + largest_payload) return FromMessage(message);
  return InvalidArgument(
      "frame length: at most {} bytes of payload in this job, got a message of {}", largest_payload,
      message.Length());
}

}  // namespace

std::shared_ptr<IncomingStream> IncomingStream::Open(v1::LinkHello hello) {
  std::shared_ptr<IncomingStream> stream(new IncomingStream(std::move(hello)));
  stream->self_ = stream;
  return stream;
}

IncomingStream* IncomingStream::Refused(const grpc::Status& status) {
  const std::shared_ptr<IncomingStream> stream = Open({});
  stream->Close(status);
  return stream.get();
}

IncomingStream::IncomingStream(v1::LinkHello hello)
    : hello_(std::move(hello)), job_hash_(JobHash(hello_.job_id())) {}

bool IncomingStream::Accept(std::shared_ptr<LinkState> state) {
  MutexLock lock(mu_);
  if (closed_) return false;
  state->Begin(Edge::kPredecessor);
  state->Joined(Edge::kPredecessor);
  state_ = std::move(state);
  calls_.Add([this]() {
    StartSendInitialMetadata();
    StartRead(&message_);
  });
  return true;
}

void IncomingStream::Resume() { ReadNext(); }

void IncomingStream::ReadNext() {
  {
    MutexLock lock(mu_);
    if (!closed_) calls_.Add([this]() { StartRead(&message_); });
  }
  Run();
}

void IncomingStream::End(const grpc::Status& status) {
  MutexLock lock(mu_);
  if (std::exchange(closed_, true)) return;
  calls_.Add([this, status]() { Finish(status); });
}

void IncomingStream::Close(const grpc::Status& status) {
  End(status);
  Run();
}

bool IncomingStream::closed() const {
  MutexLock lock(mu_);
  return closed_;
}

std::shared_ptr<LinkState> IncomingStream::state() const {
  MutexLock lock(mu_);
  return state_;
}

void IncomingStream::OnReadDone(bool ok) {
  const std::shared_ptr<LinkState> state = this->state();
  if (ok) {
    Take(state.get());
    return;
  }
  // Whoever leaves says goodbye first; without one the predecessor or the way to it broke. After
  // our own Close this changes nothing.
  if (!closed()) {
    state->Fail(Error(absl::StatusCode::kUnavailable,
                      "predecessor {} is lost: its stream broke without a goodbye",
                      hello_.sender()));
  }
  Close(grpc::Status::CANCELLED);
}

void IncomingStream::Take(LinkState* state) {
  if (message_.Length() == 0) {
    state->PredecessorLeft();
    Close(grpc::Status::OK);
    return;
  }
  if (!state->failure().ok()) {  // nobody wants it: read on, to the end of the stream
    ReadNext();
    return;
  }
  StatusOr<Frame> frame = FrameOf(message_, state->largest_payload());
  message_.Clear();
  Status status = frame.status();
  if (status.ok() &&
      (frame->header.job != job_hash_ || frame->header.generation != GenerationOf(hello_))) {
    status = FailedPrecondition("frame of job {:016x} generation {} on a stream of {} ({:016x}) {}",
                                frame->header.job, frame->header.generation.ToString(),
                                hello_.job_id(), job_hash_, GenerationOf(hello_).ToString());
  }
  if (!status.ok()) {
    status = Annotate(status, "from predecessor " + hello_.sender());
    state->Fail(status);
    Close(ToGrpc(status, kReasonFrame));
    return;
  }
  if (state->Push(*std::move(frame))) ReadNext();
}

void IncomingStream::OnCancel() {
  if (const std::shared_ptr<LinkState> state = this->state(); state != nullptr && !closed()) {
    state->Fail(Error(absl::StatusCode::kUnavailable,
                      "predecessor {} is lost: its stream was cancelled", hello_.sender()));
  }
  Close(grpc::Status::CANCELLED);
}

void IncomingStream::OnDone() {
  if (const std::shared_ptr<LinkState> state = this->state(); state != nullptr) {
    state->Done(Edge::kPredecessor);
  }
  self_.reset();  // may destroy this
}

}  // namespace ringmaster::ring
