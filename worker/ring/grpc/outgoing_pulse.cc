#include "worker/ring/grpc/outgoing_pulse.h"

#include <spdlog/spdlog.h>

#include <utility>

#include "common/rpc/rpc_status.h"
#include "worker/ring/grpc/message.h"

namespace ringmaster::ring {

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
