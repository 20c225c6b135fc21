#include "worker/ring/grpc/incoming_pulse.h"

#include <utility>

namespace ringmaster::ring {

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

}  // namespace ringmaster::ring
