#include "worker/ring/grpc/incoming_stream.h"

#include <utility>

#include "common/rpc/rpc_status.h"
#include "worker/ring/grpc/channel_options.h"
#include "worker/ring/grpc/message.h"

namespace ringmaster::ring {
namespace {

StatusOr<Frame> FrameOf(const grpc::ByteBuffer& message, size_t largest_payload) {
  if (message.Length() <= kHeaderBytes + largest_payload) return FromMessage(message);
  return InvalidArgument(
      "frame length: at most {} bytes of payload in this job, got a message of {}", largest_payload,
      message.Length());
}

Status Lost(const std::string& predecessor, const char* how) {
  return WithNeighbour(predecessor, Error(absl::StatusCode::kUnavailable,
                                          "predecessor {} is lost: {}", predecessor, how));
}

}  // namespace

void IncomingStream::Serve(grpc::AsyncGenericService* service, EventQueue* events,
                           const Came& came) {
  const std::shared_ptr<IncomingStream> stream(new IncomingStream(service, events, came));
  MutexLock lock(stream->mu_);
  stream->self_ = stream;
  stream->Ask();
  stream->context_.AsyncNotifyWhenDone(&stream->over_);
  service->RequestCall(&stream->context_, &stream->stream_, events->grpc(), events->grpc(),
                       &stream->called_);
}

IncomingStream::IncomingStream(grpc::AsyncGenericService* service, EventQueue* events, Came came)
    : service_(service),
      events_(events),
      came_(std::move(came)),
      called_([this](bool ok) { OnCall(ok); }),
      greeted_([this](bool /*ok*/) { OnGreeted(); }),
      read_([this](bool ok) { OnRead(ok); }),
      finished_([this](bool /*ok*/) { Settle(); }),
      over_([this](bool /*ok*/) { OnOver(); }) {}

// Not ok: the server ends, and no call came; nor will its end.
void IncomingStream::OnCall(bool ok) {
  if (ok) {
    Serve(service_, events_, came_);
    std::shared_ptr<IncomingStream> self;
    {
      MutexLock lock(mu_);
      Ask();  // over_
      self = self_;
    }
    StatusOr<v1::LinkHello> hello = ReadHello(context_);
    if (context_.method() != kLinkMethod) {
      End({grpc::StatusCode::UNIMPLEMENTED, "only links come through this door"});
    } else if (hello.ok()) {
      hello_ = *std::move(hello);
      job_hash_ = JobHash(hello_.job_id());
      came_(self);
    } else {
      End(ToGrpc(hello.status(), kReasonHello));
    }
  }
  Settle();
}

bool IncomingStream::Accept(std::shared_ptr<LinkEdges> edges) {
  MutexLock lock(mu_);
  if (closed_) return false;
  edges->JoinedPredecessor();
  edges_ = std::move(edges);
  greeting_ = true;
  Ask();
  context_.AddInitialMetadata(kAcceptedKey, "1");
  edges_->ShareMemory(hello_.memory_door());
  stream_.SendInitialMetadata(&greeted_);
  Read();
  return true;
}

void IncomingStream::OnGreeted() {
  {
    MutexLock lock(mu_);
    greeting_ = false;
    if (last_) Finish(*last_);
  }
  Settle();
}

void IncomingStream::Read() {
  if (closed_) return;
  Ask();
  stream_.Read(&message_, &read_);
}

void IncomingStream::Resume() {
  MutexLock lock(mu_);
  Read();
}

void IncomingStream::End(const grpc::Status& status) {
  MutexLock lock(mu_);
  if (std::exchange(closed_, true)) return;
  if (greeting_) {
    last_ = status;
  } else {
    Finish(status);
  }
}

void IncomingStream::Finish(const grpc::Status& status) {
  Ask();
  stream_.Finish(status, &finished_);
}

bool IncomingStream::closed() const {
  MutexLock lock(mu_);
  return closed_;
}

std::shared_ptr<LinkEdges> IncomingStream::edges() const {
  MutexLock lock(mu_);
  return edges_;
}

void IncomingStream::OnRead(bool ok) {
  const std::shared_ptr<LinkEdges> edges = this->edges();
  if (ok) {
    grpc::ByteBuffer message;
    message.Swap(&message_);
    Take(message, edges.get());
  } else {
    // Whoever leaves says goodbye first; without one the predecessor or the way to it broke. After
    // our own End this changes nothing.
    if (!closed()) {
      edges->Fail(Lost(hello_.sender(), "its stream broke without a goodbye"));
    }
    End(grpc::Status::CANCELLED);
  }
  Settle();
}

void IncomingStream::Take(const grpc::ByteBuffer& message, LinkEdges* edges) {
  if (message.Length() == kGoodbyeBytes) {
    edges->PredecessorLeft();
    End(grpc::Status::OK);
    return;
  }
  const bool has_memory = edges->from_predecessor() != nullptr;
  // A bell has done its work: whoever slept polls. Of frames none is wanted after a failure: read
  // on, to the end of the stream.
  if ((has_memory && message.Length() == kBellBytes) || !edges->failure().ok()) {
    Resume();
    return;
  }
  StatusOr<Frame> frame = FrameOf(message, edges->largest_payload());
  Status status = frame.status();
  if (status.ok() &&
      (frame->header.job != job_hash_ || frame->header.generation != GenerationOf(hello_))) {
    status = FailedPrecondition("frame of job {:016x} generation {} on a stream of {} ({:016x}) {}",
                                frame->header.job, frame->header.generation.ToString(),
                                hello_.job_id(), job_hash_, GenerationOf(hello_).ToString());
  }
  if (status.ok() && frame->header.after != 0 && !has_memory) {
    status = InvalidArgument("frame after: {} others, on a link that has no memory for them",
                             frame->header.after);
  }
  if (!status.ok()) {
    status =
        WithNeighbour(hello_.sender(), Annotate(status, "from predecessor " + hello_.sender()));
    edges->Fail(status);
    End(ToGrpc(status, kReasonFrame));
    return;
  }
  if (edges->Push(*std::move(frame))) Resume();
}

void IncomingStream::OnOver() {
  if (const std::shared_ptr<LinkEdges> edges = this->edges(); edges != nullptr && !closed()) {
    edges->Fail(Lost(hello_.sender(), "its stream was cancelled"));
  }
  {
    MutexLock lock(mu_);
    closed_ = true;  // there is nobody to tell
  }
  Settle();
}

void IncomingStream::Settle() {
  // Both outlive the lock: the last one may end this.
  std::shared_ptr<IncomingStream> self;
  std::shared_ptr<LinkEdges> edges;
  {
    MutexLock lock(mu_);
    if (--asked_ > 0) return;
    self = std::move(self_);
    edges = std::move(edges_);
  }
  if (edges != nullptr) edges->PredecessorDone();
}

}  // namespace ringmaster::ring
