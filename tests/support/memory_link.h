// A ring inside one process: size() links whose edges are bounded queues. Thread-safe. Errors are
// those of the real link: UNAVAILABLE for a lost neighbour, ABORTED for one that left.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "common/mutex.h"
#include "worker/ring/frame.h"
#include "worker/ring/link.h"

namespace ringmaster::ring {

struct MemoryRingOptions {
  size_t window = kWindowFrames;  // frames on an edge; Send waits for room
  size_t piece_bytes = 0;         // payloads arrive in pieces of this size; 0: as they were sent
};

class MemoryRing {
 public:
  explicit MemoryRing(uint32_t size, MemoryRingOptions options = {}) : options_(options) {
    for (uint32_t rank = 0; rank < size; ++rank) edges_.push_back(std::make_unique<Edge>());
    for (uint32_t rank = 0; rank < size; ++rank) {
      links_.push_back(std::make_unique<MemoryLink>(this, rank));
    }
  }

  [[nodiscard]] uint32_t size() const { return static_cast<uint32_t>(links_.size()); }
  [[nodiscard]] Link* link(uint32_t rank) { return links_[rank].get(); }

  // The member and its frames are gone: its neighbours get UNAVAILABLE.
  void Lose(uint32_t rank) {
    const Status lost =
        WithNeighbour(fmt::format("member {}", rank),
                      Error(absl::StatusCode::kUnavailable, "member {} is lost", rank));
    End(rank, lost);
    End(Predecessor(rank), lost);
    End(Successor(rank), lost);
  }

  // The member goes after its last frame, as a link that ends without an error: its successor still
  // gets what was sent, its predecessor can send no more but still receive.
  void Leave(uint32_t rank) {
    const Status left = Error(absl::StatusCode::kAborted, "member {} left the ring", rank);
    {
      Edge& in = *edges_[Predecessor(rank)];
      MutexLock lock(in.mu);
      if (in.sender.ok()) in.sender = left;
      in.changed.NotifyAll();
    }
    Edge& out = *edges_[rank];
    MutexLock lock(out.mu);
    if (out.exhausted.ok()) out.exhausted = left;
    out.changed.NotifyAll();
  }

  // `change` is called with each frame that leaves `rank`, before the frame's checks. Set it before
  // the first Send.
  void Tamper(uint32_t rank, std::function<void(Frame&)> change) {
    edges_[rank]->tamper = std::move(change);
  }

 private:
  // From a member to its successor. Each end has a status of its own.
  struct Edge {
    std::function<void(Frame&)> tamper;
    Mutex mu;
    Condition changed;
    std::deque<Frame> frames ABSL_GUARDED_BY(mu);
    Status sender ABSL_GUARDED_BY(mu);
    Status receiver ABSL_GUARDED_BY(mu);      // at once
    Status exhausted ABSL_GUARDED_BY(mu);     // once the frames are taken
    bool nudged ABSL_GUARDED_BY(mu) = false;  // the receiver
  };

  class MemoryLink : public Link {
   public:
    MemoryLink(MemoryRing* ring, uint32_t rank) : ring_(ring), rank_(rank) {}

    Status Send(const FrameHeader& header, const Payload& payload,
                std::chrono::steady_clock::time_point deadline) override {
      Edge& edge = *ring_->edges_[rank_];
      MutexLock lock(edge.mu);
      const bool ready =
          edge.changed.WaitUntil(edge.mu, deadline, [&]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
            return !edge.sender.ok() || edge.frames.size() < ring_->options_.window;
          });
      if (!edge.sender.ok()) return edge.sender;
      if (!ready) return Late("send to", ring_->Successor(rank_));
      Frame frame{header, ring_->Cut(payload)};
      if (edge.tamper) edge.tamper(frame);
      edge.frames.push_back(std::move(frame));
      edge.changed.NotifyAll();
      bytes_sent_ += payload.size();
      return absl::OkStatus();
    }

    StatusOr<Frame> Receive(std::chrono::steady_clock::time_point deadline) override {
      Edge& edge = *ring_->edges_[ring_->Predecessor(rank_)];
      Frame frame;
      {
        MutexLock lock(edge.mu);
        edge.changed.WaitUntil(edge.mu, deadline, [&]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
          return !edge.receiver.ok() || !edge.frames.empty() || !edge.exhausted.ok();
        });
        if (!edge.receiver.ok()) return edge.receiver;
        if (edge.frames.empty() && !edge.exhausted.ok()) return edge.exhausted;
        if (edge.frames.empty()) return Late("receive from", ring_->Predecessor(rank_));
        frame = std::move(edge.frames.front());
        edge.frames.pop_front();
        edge.changed.NotifyAll();
      }
      // Over the wire and back, like the real one.
      std::array<uint8_t, kHeaderBytes> header;
      Encode(frame.header, header.data());
      RING_ASSIGN_OR_RETURN(frame.header, Decode(header));
      RING_RETURN_IF_ERROR(CheckPayload(frame));
      return frame;
    }

    StatusOr<Arrival> Await(std::chrono::steady_clock::time_point deadline) override {
      Edge& edge = *ring_->edges_[ring_->Predecessor(rank_)];
      MutexLock lock(edge.mu);
      const auto arrived = [&]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
        return edge.nudged || !edge.receiver.ok() || !edge.frames.empty() || !edge.exhausted.ok();
      };
      if (!arrived() &&
          (deadline == kNoWait || !edge.changed.WaitUntil(edge.mu, deadline, arrived))) {
        return Arrival::kNothing;
      }
      if (!edge.receiver.ok()) return edge.receiver;
      if (!edge.frames.empty()) return Arrival::kFrame;
      if (!edge.exhausted.ok()) return edge.exhausted;
      edge.nudged = false;
      return Arrival::kNudge;
    }

    void Nudge() override {
      Edge& edge = *ring_->edges_[ring_->Predecessor(rank_)];
      MutexLock lock(edge.mu);
      edge.nudged = true;
      edge.changed.NotifyAll();
    }

    void Cancel(Status reason) override {
      ring_->End(rank_, reason);
      const Status left =
          Error(absl::StatusCode::kAborted, "member {} left the ring: {}", rank_, Message(reason));
      ring_->End(ring_->Predecessor(rank_), left);
      Edge& edge = *ring_->edges_[rank_];
      MutexLock lock(edge.mu);
      if (edge.exhausted.ok()) edge.exhausted = left;
      edge.changed.NotifyAll();
    }

    [[nodiscard]] uint64_t bytes_sent() const override { return bytes_sent_; }

   private:
    static Status Late(const char* what, uint32_t rank) {
      return Error(absl::StatusCode::kDeadlineExceeded, "cannot {} member {} in time", what, rank);
    }

    MemoryRing* const ring_;
    const uint32_t rank_;
    std::atomic<uint64_t> bytes_sent_{0};
  };

  uint32_t Predecessor(uint32_t rank) const { return (rank + size() - 1) % size(); }
  uint32_t Successor(uint32_t rank) const { return (rank + 1) % size(); }

  // Ends both calls of one member; the first reason stays.
  void End(uint32_t rank, const Status& reason) {
    {
      Edge& out = *edges_[rank];
      MutexLock lock(out.mu);
      if (out.sender.ok()) out.sender = reason;
      out.changed.NotifyAll();
    }
    Edge& in = *edges_[Predecessor(rank)];
    MutexLock lock(in.mu);
    if (in.receiver.ok()) in.receiver = reason;
    in.changed.NotifyAll();
  }

  Payload Cut(const Payload& payload) const {
    if (options_.piece_bytes == 0) return payload;
    std::vector<Payload::Piece> pieces;
    for (Payload::Piece rest : payload.pieces()) {
      for (; !rest.empty(); rest = rest.subspan(std::min(options_.piece_bytes, rest.size()))) {
        pieces.push_back(rest.first(std::min(options_.piece_bytes, rest.size())));
      }
    }
    return {std::move(pieces), payload.owner()};
  }

  const MemoryRingOptions options_;
  std::vector<std::unique_ptr<Edge>> edges_;  // edge r leads from r to its successor
  std::vector<std::unique_ptr<MemoryLink>> links_;
};

}  // namespace ringmaster::ring
