// Both edges of a link: the call to the successor, frames and the end of the predecessor's call
// (incoming_stream.h has that), how far the connections are, and why it all ended. Made by
// RingPort, used by GrpcLink; lives on behind it until gRPC is done with both calls. Thread-safe;
// what gRPC finished comes on the thread that polls the EventQueue.
#pragma once

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <grpcpp/generic/generic_stub.h>

#include <atomic>
#include <chrono>
#include <deque>
#include <memory>
#include <optional>
#include <string>

#include "common/mutex.h"
#include "common/net/address.h"
#include "common/status.h"
#include "ringmaster/v1/ring.pb.h"
#include "worker/ring/beat_monitor.h"
#include "worker/ring/frame.h"
#include "worker/ring/grpc/event_queue.h"
#include "worker/ring/grpc/link_memory.h"
#include "worker/ring/link.h"

namespace ringmaster::ring {

using TimePoint = std::chrono::steady_clock::time_point;

class LinkEdges : public std::enable_shared_from_this<LinkEdges> {
 public:
  // Names of the neighbours, for messages, the largest payload that the predecessor may send, and
  // whether frames go through memory between processes of one host.
  LinkEdges(EventQueue* events, std::string successor, std::string predecessor,
            size_t largest_payload, bool shares_memory);

  [[nodiscard]] const std::string& successor() const { return successor_; }
  [[nodiscard]] size_t largest_payload() const { return largest_payload_; }

  // Ends every call of Link, now and later; the first reason stays.
  void Fail(const Status& reason);
  [[nodiscard]] Status failure() const;

  // Makes memory for the predecessor's frames and passes it to the door of its hello, where that
  // goes and is wanted. Before it is told that its call is accepted.
  void ShareMemory(const std::string& door);
  // That memory, or null; and the successor's, for this end's frames, since it accepted.
  [[nodiscard]] std::shared_ptr<LinkMemory> from_predecessor() const {
    MutexLock lock(mu_);
    return from_predecessor_;
  }
  [[nodiscard]] std::shared_ptr<LinkMemory> to_successor() const {
    MutexLock lock(mu_);
    return to_successor_;
  }

  // Starts to connect to the successor, again and again until Abort; `address` is the channel's,
  // for messages. Once.
  void Open(std::shared_ptr<grpc::Channel> channel, std::string address, v1::LinkHello hello);
  // Waits for both edges. DEADLINE_EXCEEDED names who is missing.
  [[nodiscard]] Status WaitJoined(TimePoint deadline);

  // As of Link: ring thread.
  [[nodiscard]] Status Send(const FrameHeader& header, const Payload& payload, TimePoint deadline);
  [[nodiscard]] std::shared_ptr<uint8_t> Lend(size_t bytes);
  // How many frames were sent, and which way, for the log.
  [[nodiscard]] std::string SentText() const;
  void SetUrgent(bool urgent) { urgent_ = urgent; }
  // `*reading`: what the predecessor's call is to do.
  enum class Reading : uint8_t {
    kGoesOn,
    kResumes,  // there is room again, and it had stopped
    kEnds      // with the error: what came through memory is no frame
  };
  [[nodiscard]] StatusOr<Frame> Receive(TimePoint deadline, Reading* reading);
  [[nodiscard]] StatusOr<Arrival> Await(TimePoint deadline);
  void Nudge();
  // Bytes of frames that gRPC has not yet given to the network.
  [[nodiscard]] size_t unsent() const { return unsent_; }

  // Of the predecessor's call: it was accepted; a frame of it, false when the window is full then
  // (reading goes on when Receive says so); it sends nothing more; it is over.
  void JoinedPredecessor();
  [[nodiscard]] bool Push(Frame frame);
  void PredecessorLeft();
  void PredecessorDone();

  enum class Queued { kSend, kDrop };
  // Says goodbye to the successor, after what is queued or instead of it, but for the frame that is
  // under way; its call ends when it has read it. Without a connection it ends at once.
  void Close(Queued queued);
  // Ends the successor's call now.
  void Abort();
  // Until no call is left of those that were begun; false at the deadline.
  [[nodiscard]] bool WaitDone(TimePoint deadline);

 private:
  struct Edge {
    bool begun = false;
    bool joined = false;
    bool done = false;
  };
  // Returns its bytes when gRPC has let go of the last piece of a frame.
  struct Unsent;

  // Where the next frame is.
  enum class Next : uint8_t { kNowhere, kStream, kMemory };
  [[nodiscard]] Next NextFrame() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  enum class Until : uint8_t { kFrame, kNudge };  // kNudge: or a frame
  // Whether the ring thread need not wait.
  [[nodiscard]] bool HasNews(Until until) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Ring thread: until there may be news; false: not until `deadline`.
  bool Wait(Until until, TimePoint deadline);
  // A moment's, without sleep; whether there are news.
  [[nodiscard]] bool Spin(Until until, TimePoint deadline);

  // Waits until `bytes` more may be unsent.
  Status Reserve(size_t bytes, TimePoint deadline);
  void Release(size_t bytes);
  [[nodiscard]] bool HasFrame() const ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(mu_);
    return NextFrame() != Next::kNowhere;
  }
  // Why the successor takes nothing more.
  [[nodiscard]] Status Gone() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Has gRPC write it, behind the others.
  void Write(grpc::ByteBuffer message) ABSL_LOCKS_EXCLUDED(mu_);
  // Why no frame will come, where none is there.
  [[nodiscard]] Status Exhausted() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Whoever waits in WaitJoined or WaitDone looks again; the ring thread does where it waits.
  void Tell() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  void OnStarted(bool ok);
  void OnAccepted(bool ok);
  void OnMessage(bool ok);
  void OnWritten(bool ok);
  void OnEnded();
  void WriteNext() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // One thing less that gRPC was asked for; after the last one it is done with the successor.
  void Settle();

  EventQueue* const events_;
  const std::string successor_;
  const std::string predecessor_;
  const size_t largest_payload_;
  const bool shares_memory_;

  // What is asked of gRPC, and its answers.
  EventQueue::Event started_, accepted_, message_, written_, ended_;
  grpc::ByteBuffer unexpected_;  // what the successor sends: nothing
  grpc::Status status_;

  // Of the ring thread.
  uint32_t sent_on_stream_ = 0;  // frames
  bool urgent_ = false;

  std::atomic<size_t> unsent_{0};
  std::atomic<bool> wants_room_{false};  // the ring thread waits in Reserve

  mutable Mutex mu_;
  Condition changed_;
  Status failure_ ABSL_GUARDED_BY(mu_);
  Edge successor_edge_ ABSL_GUARDED_BY(mu_);
  Edge predecessor_edge_ ABSL_GUARDED_BY(mu_);
  bool awaiting_ ABSL_GUARDED_BY(mu_) = false;  // the ring thread waits for events
  bool nudged_ ABSL_GUARDED_BY(mu_) = false;

  std::shared_ptr<LinkMemory> from_predecessor_ ABSL_GUARDED_BY(mu_);
  std::deque<Frame> frames_ ABSL_GUARDED_BY(mu_);  // of the stream
  uint32_t streamed_ ABSL_GUARDED_BY(mu_) = 0;     // that were received of them
  bool reading_stopped_ ABSL_GUARDED_BY(mu_) = false;
  bool predecessor_left_ ABSL_GUARDED_BY(mu_) = false;

  // The call to the successor, from Open until gRPC is done with it.
  std::string address_ ABSL_GUARDED_BY(mu_);
  std::optional<MemoryDoor> door_ ABSL_GUARDED_BY(mu_);  // until the stream is accepted
  std::shared_ptr<LinkMemory> to_successor_ ABSL_GUARDED_BY(mu_);
  std::shared_ptr<grpc::Channel> channel_ ABSL_GUARDED_BY(mu_);
  std::unique_ptr<grpc::ClientContext> context_ ABSL_GUARDED_BY(mu_);  // holds the channel, too
  std::unique_ptr<grpc::GenericClientAsyncReaderWriter> call_ ABSL_GUARDED_BY(mu_);
  std::shared_ptr<LinkEdges> self_ ABSL_GUARDED_BY(mu_);
  int asked_ ABSL_GUARDED_BY(mu_) = 0;                       // events that will come
  std::deque<grpc::ByteBuffer> queue_ ABSL_GUARDED_BY(mu_);  // the first is being written
  bool writable_ ABSL_GUARDED_BY(mu_) = false;               // connected, and not broken
  bool writing_ ABSL_GUARDED_BY(mu_) = false;
  bool closing_ ABSL_GUARDED_BY(mu_) = false;  // a goodbye was queued: no frame after it
  bool successor_left_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace ringmaster::ring
