#include "worker/ring/grpc/pulse_streams.h"

#include <spdlog/spdlog.h>

#include <utility>

#include "common/rpc/rpc_status.h"
#include "worker/ring/grpc/message.h"

namespace ringmaster::ring {

// ---- The server's end.

std::shared_ptr<IncomingPulse> IncomingPulse::Open(v1::LinkHello hello) {
  std::shared_ptr<IncomingPulse> stream(new IncomingPulse(std::move(hello)));
  stream->self_ = stream;
  return stream;
}

IncomingPulse* IncomingPulse::Refused(const grpc::Status& status) {
  const std::shared_ptr<IncomingPulse> stream = Open({});
  stream->Close(status);
  return stream.get();
}

bool IncomingPulse::Accept(std::shared_ptr<WatchState> state) {
  MutexLock lock(mu_);
  if (closed_) return false;
  state->Begin(Edge::kPredecessor);
  state->Connected(Edge::kPredecessor);
  state->SetIncoming(shared_from_this());
  state_ = std::move(state);
  calls_.Add([this]() {
    StartSendInitialMetadata();
    StartRead(&received_);
  });
  return true;
}

void IncomingPulse::Send(const v1::Beat& beat) {
  {
    MutexLock lock(mu_);
    if (closed_ || std::exchange(writing_, true)) return;
    sent_ = beat;
    calls_.Add([this]() { StartWrite(&sent_); });
  }
  Run();
}

void IncomingPulse::End(const grpc::Status& status) {
  MutexLock lock(mu_);
  if (std::exchange(closed_, true)) return;
  status_ = status;
  if (!writing_) AddFinish();
}

void IncomingPulse::AddFinish() {
  calls_.Add([this, status = status_]() { Finish(status); });
}

void IncomingPulse::Close(const grpc::Status& status) {
  End(status);
  Run();
}

bool IncomingPulse::closed() const {
  MutexLock lock(mu_);
  return closed_;
}

std::shared_ptr<WatchState> IncomingPulse::state() const {
  MutexLock lock(mu_);
  return state_;
}

void IncomingPulse::OnReadDone(bool ok) {
  if (!ok) {
    Broke("it ended without a goodbye");
    return;
  }
  const std::shared_ptr<WatchState> state = this->state();
  if (received_.number() == 0) {
    state->Left(Edge::kPredecessor);
    Close(grpc::Status::OK);
    return;
  }
  state->Heard(Edge::kPredecessor, received_);
  {
    MutexLock lock(mu_);
    if (!closed_) calls_.Add([this]() { StartRead(&received_); });
  }
  Run();
}

void IncomingPulse::OnWriteDone(bool /*ok*/) {
  {
    MutexLock lock(mu_);
    writing_ = false;
    if (closed_) AddFinish();
  }
  Run();
}

void IncomingPulse::OnCancel() { Broke("it was cancelled"); }

// After our own Close this changes nothing.
void IncomingPulse::Broke(const char* how) {
  if (closed()) return;
  if (const std::shared_ptr<WatchState> state = this->state(); state != nullptr) {
    state->Broke(Edge::kPredecessor, how);
  }
  Close(grpc::Status::CANCELLED);
}

void IncomingPulse::OnDone() {
  if (const std::shared_ptr<WatchState> state = this->state(); state != nullptr) {
    state->SetIncoming(nullptr);
    state->Done(Edge::kPredecessor);
  }
  self_.reset();  // may destroy this
}

// ---- The client's end.

std::shared_ptr<OutgoingPulse> OutgoingPulse::Open(std::shared_ptr<grpc::Channel> channel,
                                                   const v1::LinkHello& hello,
                                                   std::shared_ptr<WatchState> state) {
  state->Begin(Edge::kSuccessor);
  std::shared_ptr<OutgoingPulse> stream(
      new OutgoingPulse(std::move(channel), hello, std::move(state)));
  stream->self_ = stream;
  stream->stub_->async()->Pulse(&stream->context_, stream.get());
  stream->AddHold();
  stream->StartRead(&stream->received_);
  stream->StartCall();
  return stream;
}

OutgoingPulse::OutgoingPulse(std::shared_ptr<grpc::Channel> channel, const v1::LinkHello& hello,
                             std::shared_ptr<WatchState> state)
    : state_(std::move(state)), channel_(std::move(channel)), stub_(v1::Ring::NewStub(channel_)) {
  context_.set_wait_for_ready(true);
  AddHello(hello, &context_);
}

void OutgoingPulse::Send(const v1::Beat& beat) {
  {
    MutexLock lock(mu_);
    if (!accepted_ || !held_ || closing_ || writing_) return;
    sent_ = beat;
    Write();
  }
  calls_.Run(shared_from_this());
}

void OutgoingPulse::Write() {
  writing_ = true;
  if (closing_) {
    calls_.Add([this]() { StartWriteLast(&sent_, grpc::WriteOptions()); });
    EndHold();
  } else {
    calls_.Add([this]() { StartWrite(&sent_); });
  }
}

void OutgoingPulse::Close() {
  // Where there is no connection nobody is to be told. Where there is one the successor may have
  // accepted the stream without our knowing.
  if (channel_->GetState(false) != GRPC_CHANNEL_READY) {
    Abort();
    return;
  }
  {
    MutexLock lock(mu_);
    if (closing_ || !held_) return;
    closing_ = true;
    if (!writing_) {
      sent_.Clear();  // number 0: the goodbye
      Write();
    }
  }
  calls_.Run(shared_from_this());
}

void OutgoingPulse::Abort() {
  context_.TryCancel();
  DropHold();
}

void OutgoingPulse::EndHold() {
  if (std::exchange(held_, false)) calls_.Add([this]() { RemoveHold(); });
}

void OutgoingPulse::DropHold() {
  {
    MutexLock lock(mu_);
    EndHold();
  }
  calls_.Run(shared_from_this());
}

void OutgoingPulse::OnReadInitialMetadataDone(bool ok) {
  if (!ok) return;
  state_->Connected(Edge::kSuccessor);
  MutexLock lock(mu_);
  accepted_ = true;
}

void OutgoingPulse::OnReadDone(bool ok) {
  if (!ok) {
    DropHold();  // the stream is over; OnDone brings the status
    return;
  }
  state_->Heard(Edge::kSuccessor, received_);
  StartRead(&received_);
}

void OutgoingPulse::OnWriteDone(bool ok) {
  {
    MutexLock lock(mu_);
    writing_ = false;
    if (ok && closing_ && held_ && sent_.number() != 0) {
      sent_.Clear();
      Write();
    }
    if (!ok) EndHold();
  }
  calls_.Run(shared_from_this());
}

void OutgoingPulse::OnDone(const grpc::Status& status) {
  if (status.ok() || ErrorReason(status) == kReasonLeft) {
    state_->Left(Edge::kSuccessor);
  } else if (const std::string reason = ErrorReason(status); !reason.empty()) {
    // It lives, and does not agree with us: the Link's business.
    spdlog::info("pulse refused by the successor: {}", status.error_message());
    state_->Left(Edge::kSuccessor);
  } else {
    state_->Broke(Edge::kSuccessor, status.error_message());
  }
  const std::shared_ptr<WatchState> state = state_;
  self_.reset();  // may destroy this
  state->Done(Edge::kSuccessor);
}

}  // namespace ringmaster::ring
