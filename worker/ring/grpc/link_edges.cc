#include "worker/ring/grpc/link_edges.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "common/rpc/channel.h"
#include "common/rpc/rpc_status.h"
#include "worker/ring/grpc/channel_options.h"
#include "worker/ring/grpc/message.h"

namespace ringmaster::ring {
namespace {

// Of the own frames that gRPC has not yet written to the socket.
constexpr size_t kMaxUnsentBytes = 8 << 20;

// What a bell counts as of that, so that one who lets them ring and never reads is waited for, too.
constexpr size_t kBellRoom = 4 << 10;

// How long an urgent wait looks at memory for the next frame before it sleeps: about what it takes
// to wake both ends once more. Whoever else wants the CPU has it meanwhile.
constexpr std::chrono::microseconds kSpin{100};

Status Late(const std::string& what) {
  return Error(absl::StatusCode::kDeadlineExceeded, "{}", what);
}

// A successor that ends the stream itself says why; a broken connection says nothing.
Status EndOf(const grpc::Status& status, const std::string& successor, const std::string& address) {
  const std::string reason = ErrorReason(status);
  if (reason.empty()) {
    return WithNeighbour(successor,
                         Error(absl::StatusCode::kUnavailable, "successor {} at {} is lost: {}",
                               successor, address, status.error_message()));
  }
  if (reason == kReasonLeft) return Status(absl::StatusCode::kAborted, status.error_message());
  return WithNeighbour(successor, Annotate(FromGrpc(status),
                                           "refused by successor " + successor + " at " + address));
}

}  // namespace

struct LinkEdges::Unsent {
  Unsent(std::shared_ptr<LinkEdges> edges, size_t byte_count)
      : of(std::move(edges)), bytes(byte_count) {}
  Unsent(const Unsent&) = delete;
  Unsent& operator=(const Unsent&) = delete;
  ~Unsent() { of->Release(bytes); }
  const std::shared_ptr<LinkEdges> of;
  const size_t bytes;
};

LinkEdges::LinkEdges(EventQueue* events, std::string successor, std::string predecessor,
                     size_t largest_payload, bool shares_memory)
    : events_(events),
      successor_(std::move(successor)),
      predecessor_(std::move(predecessor)),
      largest_payload_(largest_payload),
      shares_memory_(shares_memory),
      started_([this](bool ok) { OnStarted(ok); }),
      accepted_([this](bool ok) { OnAccepted(ok); }),
      message_([this](bool ok) { OnMessage(ok); }),
      written_([this](bool ok) { OnWritten(ok); }),
      ended_([this](bool /*ok*/) { OnEnded(); }) {}

void LinkEdges::Tell() {
  changed_.NotifyAll();
  if (awaiting_) events_->Wake();
}

void LinkEdges::Fail(const Status& reason) {
  std::deque<Frame> dropped;  // outlives the lock
  MutexLock lock(mu_);
  if (!failure_.ok()) return;
  failure_ = reason;
  dropped.swap(frames_);
  Tell();
}

Status LinkEdges::failure() const {
  MutexLock lock(mu_);
  return failure_;
}

Status LinkEdges::WaitJoined(TimePoint deadline) {
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
  return WithNeighbour(successor_edge_.joined ? predecessor_ : successor_, Late(missing));
}

bool LinkEdges::WaitDone(TimePoint deadline) {
  MutexLock lock(mu_);
  return changed_.WaitUntil(mu_, deadline, [this]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    return (!successor_edge_.begun || successor_edge_.done) &&
           (!predecessor_edge_.begun || predecessor_edge_.done);
  });
}

// ---- The ring thread's calls.

Status LinkEdges::Reserve(size_t bytes, TimePoint deadline) {
  while (true) {
    wants_room_ = true;  // before the look: a piece that goes meanwhile ends the wait
    const size_t unsent = unsent_;
    const bool room = unsent == 0 || unsent + bytes <= kMaxUnsentBytes;
    if (room) wants_room_ = false;
    {
      MutexLock lock(mu_);
      const Status gone = Gone();
      if (!gone.ok()) wants_room_ = false;
      RING_RETURN_IF_ERROR(gone);
      awaiting_ = !room;
    }
    if (room) break;
    const bool late = !events_->Poll(deadline) && std::chrono::steady_clock::now() >= deadline;
    MutexLock lock(mu_);
    awaiting_ = false;
    if (late && failure_.ok()) {
      wants_room_ = false;
      return Late(fmt::format("successor {} took no frame in time, {} bytes are unsent", successor_,
                              unsent));
    }
  }
  unsent_ += bytes;
  return absl::OkStatus();
}

void LinkEdges::Release(size_t bytes) {
  unsent_ -= bytes;
  if (wants_room_.exchange(false)) events_->Wake();
}

Status LinkEdges::Gone() const {
  if (!failure_.ok() || !successor_left_) return failure_;
  return Error(absl::StatusCode::kAborted, "successor {} left the ring", successor_);
}

std::shared_ptr<uint8_t> LinkEdges::Lend(size_t bytes) {
  const std::shared_ptr<LinkMemory> memory = to_successor();
  return memory != nullptr ? memory->Lend(bytes) : nullptr;
}

Status LinkEdges::Send(const FrameHeader& header, const Payload& payload, TimePoint deadline) {
  FrameHeader sent = header;
  if (const std::shared_ptr<LinkMemory> memory = to_successor(); memory != nullptr) {
    {
      MutexLock lock(mu_);
      RING_RETURN_IF_ERROR(Gone());
    }
    sent.after = sent_on_stream_;
    const LinkMemory::Pushed pushed = memory->Push(sent, payload, from_predecessor());
    if (pushed == LinkMemory::Pushed::kSleeps) {
      RING_RETURN_IF_ERROR(Reserve(kBellRoom, deadline));
      Write(Bell(std::make_shared<const Unsent>(shared_from_this(), kBellRoom)));
    }
    if (pushed != LinkMemory::Pushed::kNo) return absl::OkStatus();
    sent.after = memory->pushed();
  }
  ++sent_on_stream_;
  const size_t bytes = kHeaderBytes + payload.size();
  RING_RETURN_IF_ERROR(Reserve(bytes, deadline));
  Write(ToMessage(sent, payload, std::make_shared<const Unsent>(shared_from_this(), bytes)));
  return absl::OkStatus();
}

std::string LinkEdges::SentText() const {
  const std::shared_ptr<LinkMemory> memory = to_successor();
  return fmt::format("{} frames through memory, {} over the stream",
                     memory != nullptr ? memory->pushed() : 0, sent_on_stream_);
}

void LinkEdges::Write(grpc::ByteBuffer message) {
  MutexLock lock(mu_);
  if (!writable_ || closing_) return;  // the end that comes says why
  queue_.push_back(std::move(message));
  if (!writing_) WriteNext();
}

LinkEdges::Next LinkEdges::NextFrame() const {
  const LinkMemory* const memory = from_predecessor_.get();
  if (memory == nullptr) return frames_.empty() ? Next::kNowhere : Next::kStream;
  // Each frame says how many of the other way were sent before it.
  if (!frames_.empty() &&
      static_cast<int32_t>(memory->popped() - frames_.front().header.after) >= 0) {
    return Next::kStream;
  }
  return memory->HasNext(streamed_) ? Next::kMemory : Next::kNowhere;
}

bool LinkEdges::HasNews(Until until) const {
  return !failure_.ok() || predecessor_left_ || NextFrame() != Next::kNowhere ||
         (until == Until::kNudge && nudged_);
}

bool LinkEdges::Spin(Until until, TimePoint deadline) {
  const TimePoint end = std::min(deadline, std::chrono::steady_clock::now() + kSpin);
  do {
    {
      MutexLock lock(mu_);
      if (HasNews(until)) return true;
    }
    std::this_thread::yield();
  } while (std::chrono::steady_clock::now() < end);
  return false;
}

bool LinkEdges::Wait(Until until, TimePoint deadline) {
  const std::shared_ptr<LinkMemory> memory = from_predecessor();
  if (memory != nullptr) {
    if (urgent_ && Spin(until, deadline)) return true;
    memory->SetSleeps(true);  // before the look that follows
  }
  bool news;
  {
    MutexLock lock(mu_);
    news = HasNews(until);
    awaiting_ = !news;
  }
  if (!news) {
    news = events_->Poll(deadline);
    MutexLock lock(mu_);
    awaiting_ = false;
  }
  if (memory != nullptr) memory->SetSleeps(false);
  return news;
}

StatusOr<Arrival> LinkEdges::Await(TimePoint deadline) {
  // A bell rings behind the one before it, whose end comes here, too.
  if (unsent_ > 0) (void)events_->Poll(kNoWait);
  // What has come by now, up to the first frame: the caller deals with it while it is in the cache.
  for (uint32_t i = 0; i < kWindowFrames && !HasFrame() && events_->Poll(kNoWait); ++i) {
  }
  while (true) {
    {
      MutexLock lock(mu_);
      RING_RETURN_IF_ERROR(Exhausted());
      if (NextFrame() != Next::kNowhere) return Arrival::kFrame;
      if (std::exchange(nudged_, false)) return Arrival::kNudge;
    }
    if (std::chrono::steady_clock::now() >= deadline) return Arrival::kNothing;
    Wait(Until::kNudge, deadline);
  }
}

StatusOr<Frame> LinkEdges::Receive(TimePoint deadline, Reading* reading) {
  *reading = Reading::kGoesOn;
  while (true) {
    Next next;
    {
      MutexLock lock(mu_);
      RING_RETURN_IF_ERROR(Exhausted());
      next = NextFrame();
      if (next == Next::kStream) {
        Frame frame = std::move(frames_.front());
        frames_.pop_front();
        frame.header.after = 0;  // of this link alone
        ++streamed_;
        if (std::exchange(reading_stopped_, false)) *reading = Reading::kResumes;
        return frame;
      }
    }
    if (next == Next::kMemory) {
      StatusOr<Frame> frame = from_predecessor()->Pop();
      if (frame.ok()) return frame;
      *reading = Reading::kEnds;
      Fail(WithNeighbour(predecessor_,
                         Annotate(frame.status(), "from predecessor " + predecessor_)));
      return failure();
    }
    if (!Wait(Until::kFrame, deadline) && std::chrono::steady_clock::now() >= deadline) {
      MutexLock lock(mu_);
      if (HasNews(Until::kFrame)) continue;
      return Late("no frame from predecessor " + predecessor_ + " in time");
    }
  }
}

void LinkEdges::Nudge() {
  MutexLock lock(mu_);
  nudged_ = true;
  if (awaiting_) events_->Wake();
}

Status LinkEdges::Exhausted() const {
  if (!failure_.ok() || !predecessor_left_ || NextFrame() != Next::kNowhere) return failure_;
  return Error(absl::StatusCode::kAborted, "predecessor {} left the ring", predecessor_);
}

// ---- From the predecessor.

void LinkEdges::ShareMemory(const std::string& door) {
  if (!shares_memory_ || door.empty()) return;
  StatusOr<std::shared_ptr<LinkMemory>> memory = LinkMemory::Create(largest_payload_);
  if (!memory.ok() || !MemoryDoor::Pass(**memory, door).ok()) return;
  MutexLock lock(mu_);
  from_predecessor_ = *std::move(memory);
}

void LinkEdges::JoinedPredecessor() {
  MutexLock lock(mu_);
  predecessor_edge_.begun = predecessor_edge_.joined = true;
  Tell();
}

bool LinkEdges::Push(Frame frame) {
  MutexLock lock(mu_);
  if (!failure_.ok()) return true;  // read on, to the end of the stream
  frames_.push_back(std::move(frame));
  reading_stopped_ = frames_.size() >= kWindowFrames;
  return !reading_stopped_;
}

void LinkEdges::PredecessorLeft() {
  MutexLock lock(mu_);
  predecessor_left_ = true;
  Tell();
}

void LinkEdges::PredecessorDone() {
  MutexLock lock(mu_);
  predecessor_edge_.done = true;
  Tell();
}

// ---- To the successor. gRPC's calls here only ask: what comes of them are events.

void LinkEdges::Open(std::shared_ptr<grpc::Channel> channel, std::string address,
                     v1::LinkHello hello) {
  MutexLock lock(mu_);
  if (!failure_.ok()) return;  // the port stops: its queue takes nothing more
  if (shares_memory_) {
    if (StatusOr<MemoryDoor> door = MemoryDoor::Open(); door.ok()) {
      door_ = *std::move(door);
      hello.set_memory_door(door_->address());
    }
  }
  context_ = std::make_unique<grpc::ClientContext>();
  context_->set_wait_for_ready(true);
  AddHello(hello, context_.get());
  successor_edge_.begun = true;
  self_ = shared_from_this();
  address_ = std::move(address);
  channel_ = std::move(channel);
  grpc::GenericStub stub(channel_);
  call_ = stub.PrepareCall(context_.get(), kLinkMethod, events_->grpc());
  ++asked_;
  call_->StartCall(&started_);
}

void LinkEdges::OnStarted(bool ok) {
  {
    MutexLock lock(mu_);
    // A call that did not start ends with a status, too.
    asked_ += 3;
    writable_ = ok;
    call_->ReadInitialMetadata(&accepted_);
    call_->Read(&unexpected_, &message_);
    call_->Finish(&status_, &ended_);
    if (!writing_) WriteNext();
  }
  Settle();
}

void LinkEdges::OnAccepted(bool ok) {
  if (ok) {
    MutexLock lock(mu_);
    const auto& answer = context_->GetServerInitialMetadata();
    successor_edge_.joined = answer.find(kAcceptedKey) != answer.end();
    if (door_) to_successor_ = door_->Receive(largest_payload_).value_or(nullptr);
    door_.reset();
    Tell();
  }
  Settle();
}

void LinkEdges::OnMessage(bool ok) {
  if (ok) {
    std::string address;
    {
      MutexLock lock(mu_);
      address = address_;
    }
    Fail(
        InvalidArgument("successor {} at {} sent a message: only frames of predecessors flow on a "
                        "ring stream",
                        successor_, address));
    Abort();
  }
  Settle();
}

void LinkEdges::WriteNext() {
  writing_ = writable_ && !queue_.empty();
  if (!writing_) return;
  grpc::WriteOptions options;
  if (closing_ && queue_.size() == 1) options.set_last_message();
  ++asked_;
  // The message stays where it is while it is the first.
  call_->Write(queue_.front(), options, &written_);
}

void LinkEdges::OnWritten(bool ok) {
  grpc::ByteBuffer written;  // outlives the lock
  {
    MutexLock lock(mu_);
    written = std::move(queue_.front());
    queue_.pop_front();
    writing_ = false;
    if (ok) {
      WriteNext();
    } else {
      writable_ = false;
    }
  }
  written.Clear();
  Settle();
}

void LinkEdges::OnEnded() {
  std::string address;
  {
    MutexLock lock(mu_);
    writable_ = false;
    address = address_;
    if (status_.ok()) {
      successor_left_ = true;
      Tell();
    }
  }
  if (!status_.ok()) Fail(EndOf(status_, successor_, address));
  Settle();
}

void LinkEdges::Settle() {
  // All of them outlive the lock: frames come back to unsent_, and the last one may end this. The
  // connection must go, whose frames hold this.
  std::shared_ptr<LinkEdges> self;
  std::shared_ptr<grpc::Channel> channel;
  std::unique_ptr<grpc::ClientContext> context;
  std::unique_ptr<grpc::GenericClientAsyncReaderWriter> call;
  std::deque<grpc::ByteBuffer> dropped;
  MutexLock lock(mu_);
  if (--asked_ > 0) return;
  self = std::move(self_);
  channel = std::move(channel_);
  context = std::move(context_);
  call = std::move(call_);
  dropped.swap(queue_);
  successor_edge_.done = true;
  Tell();
}

void LinkEdges::Close(Queued queued) {
  std::deque<grpc::ByteBuffer> dropped;  // outlives the lock
  bool connected;
  {
    MutexLock lock(mu_);
    // Where there is no connection nobody is to be told. Where there is one the successor may have
    // accepted the stream without our knowing.
    connected = channel_ != nullptr && channel_->GetState(false) == GRPC_CHANNEL_READY;
    if (connected) {
      if (closing_) return;
      if (queued == Queued::kDrop) {
        while (queue_.size() > (writing_ ? 1 : 0)) {
          dropped.push_back(std::move(queue_.back()));
          queue_.pop_back();
        }
      }
      closing_ = true;
      queue_.push_back(Goodbye());
      if (!writing_) WriteNext();
    }
  }
  if (!connected) Abort();
}

void LinkEdges::Abort() {
  MutexLock lock(mu_);
  if (context_ != nullptr) context_->TryCancel();
}

}  // namespace ringmaster::ring
