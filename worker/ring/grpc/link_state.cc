#include "worker/ring/grpc/link_state.h"

#include <utility>

namespace ringmaster::ring {
namespace {

// Of the own frames that gRPC has not yet written to the socket.
constexpr size_t kMaxUnsentBytes = 8 << 20;

Status Late(const std::string& what) {
  return Error(absl::StatusCode::kDeadlineExceeded, "{}", what);
}

}  // namespace

void LinkState::Fail(const Status& reason) {
  std::deque<Frame> dropped;  // outlives the lock
  MutexLock lock(mu_);
  if (!failure_.ok()) return;
  failure_ = reason;
  dropped.swap(frames_);
  changed_.NotifyAll();
}

Status LinkState::failure() const {
  MutexLock lock(mu_);
  return failure_;
}

void LinkState::Begin(Edge edge) {
  MutexLock lock(mu_);
  of(edge).begun = true;
}

void LinkState::Joined(Edge edge) {
  MutexLock lock(mu_);
  of(edge).joined = true;
  changed_.NotifyAll();
}

void LinkState::Done(Edge edge) {
  MutexLock lock(mu_);
  of(edge).done = true;
  changed_.NotifyAll();
}

Status LinkState::WaitJoined(TimePoint deadline) {
  MutexLock lock(mu_);
  const bool joined = changed_.WaitUntil(mu_, deadline, [this]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    return !failure_.ok() || (successor_edge_.joined && predecessor_edge_.joined);
  });
  if (!failure_.ok()) return failure_;
  if (joined) return absl::OkStatus();
  std::string missing;
  if (!successor_edge_.joined) missing = "successor " + successor_ + " did not accept the stream";
  if (!predecessor_edge_.joined) {
    missing += missing.empty() ? "" : ", ";
    missing += "predecessor " + predecessor_ + " did not connect";
  }
  return Late(missing);
}

bool LinkState::WaitDone(TimePoint deadline) {
  MutexLock lock(mu_);
  return changed_.WaitUntil(mu_, deadline, [this]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    return (!successor_edge_.begun || successor_edge_.done) &&
           (!predecessor_edge_.begun || predecessor_edge_.done);
  });
}

Status LinkState::Reserve(size_t bytes, TimePoint deadline) {
  MutexLock lock(mu_);
  wants_room_ = true;
  const bool room = changed_.WaitUntil(mu_, deadline, [&]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    return !failure_.ok() || successor_left_ || unsent_ == 0 || unsent_ + bytes <= kMaxUnsentBytes;
  });
  wants_room_ = false;
  if (!failure_.ok()) return failure_;
  if (successor_left_) {
    return Error(absl::StatusCode::kAborted, "successor {} left the ring", successor_);
  }
  if (!room) {
    return Late(fmt::format("successor {} took no frame in time, {} bytes are unsent", successor_,
                            unsent_));
  }
  unsent_ += bytes;
  return absl::OkStatus();
}

void LinkState::Release(size_t bytes) {
  {
    MutexLock lock(mu_);
    unsent_ -= bytes;
    if (!wants_room_) return;
  }
  changed_.NotifyAll();
}

void LinkState::SuccessorLeft() {
  MutexLock lock(mu_);
  successor_left_ = true;
  changed_.NotifyAll();
}

bool LinkState::Push(Frame frame) {
  bool go_on;
  {
    MutexLock lock(mu_);
    if (!failure_.ok()) return true;  // read on, to the end of the stream
    frames_.push_back(std::move(frame));
    reading_stopped_ = frames_.size() >= kWindowFrames;
    go_on = !reading_stopped_;
  }
  changed_.NotifyAll();  // without the lock, which the ring thread wants first
  return go_on;
}

StatusOr<Frame> LinkState::Pop(TimePoint deadline, bool* resume) {
  MutexLock lock(mu_);
  changed_.WaitUntil(mu_, deadline, [this]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    return !failure_.ok() || !frames_.empty() || predecessor_left_;
  });
  RING_RETURN_IF_ERROR(Exhausted());
  if (frames_.empty()) return Late("no frame from predecessor " + predecessor_ + " in time");
  Frame frame = std::move(frames_.front());
  frames_.pop_front();
  *resume = std::exchange(reading_stopped_, false);
  return frame;
}

StatusOr<Arrival> LinkState::Await(TimePoint deadline) {
  MutexLock lock(mu_);
  const auto arrived = [this]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    return nudged_ || !failure_.ok() || !frames_.empty() || predecessor_left_;
  };
  if (!arrived() && (deadline == kNoWait || !changed_.WaitUntil(mu_, deadline, arrived))) {
    return Arrival::kNothing;
  }
  RING_RETURN_IF_ERROR(Exhausted());
  if (!frames_.empty()) return Arrival::kFrame;
  nudged_ = false;
  return Arrival::kNudge;
}

void LinkState::Nudge() {
  MutexLock lock(mu_);
  nudged_ = true;
  changed_.NotifyAll();
}

Status LinkState::Exhausted() const {
  if (!failure_.ok() || !frames_.empty() || !predecessor_left_) return failure_;
  return Error(absl::StatusCode::kAborted, "predecessor {} left the ring", predecessor_);
}

void LinkState::PredecessorLeft() {
  MutexLock lock(mu_);
  predecessor_left_ = true;
  changed_.NotifyAll();
}

}  // namespace ringmaster::ring
