#include "worker/script/child.h"

#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <utility>

#include "common/net/socket.h"
#include "common/text.h"
#include "worker/backend/failure.h"

namespace ringmaster::script {
namespace {

constexpr std::chrono::seconds kFarewell{1};
constexpr std::chrono::seconds kLastTime{3};  // after which a child whose lane ended has ended

// A pidfd is readable then.
bool EndsWithin(int process, std::chrono::milliseconds limit) {
  return AwaitSocket(process, POLLIN, std::chrono::steady_clock::now() + limit, "its end").ok();
}

Status Raised(const std::string& process, const v1::ScriptRaised& raised) {
  // People read the traceback; the last line of it says what, the one before where.
  return WithFailure(
      raised.of_host() ? v1::FAILURE_CODE_UNSPECIFIED : v1::FAILURE_CODE_SCRIPT,
      Error(absl::StatusCode::kFailedPrecondition, "{}: the script raised {}: {}\n{}", process,
            raised.type(), raised.message(), raised.traceback()));
}

}  // namespace

Child::~Child() {
  (void)Send(lane_.get(), PacketKind::kEnd, "", {}, std::chrono::steady_clock::now() + kFarewell);
}

void Child::Interrupt() { shutdown(lane_.get(), SHUT_RDWR); }

void Child::Kill() {
  const int handle = process_.handle.get();
  if (handle < 0) return Interrupt();
  // faulthandler's, which the zygote has set up, needs no cooperation of what hangs.
  syscall(SYS_pidfd_send_signal, handle, SIGUSR1, nullptr, 0);
  (void)EndsWithin(handle, process_.stack_limit);
  syscall(SYS_pidfd_send_signal, handle, SIGKILL, nullptr, 0);
}

Fate Child::FateNow() const {
  if (!process_.fate) return {"is gone: it ended, or was killed"};
  const bool lives = process_.handle.valid() && !EndsWithin(process_.handle.get(), kLastTime);
  return lives ? Fate{"has closed its lane"} : process_.fate();
}

StatusOr<Packet> Child::Next(Deadline deadline) {
  StatusOr<Packet> packet = Receive(lane_.get(), deadline);
  if (absl::IsUnavailable(packet.status())) {
    const Fate fate = FateNow();
    killed_ = fate.killed;
    return Error(absl::StatusCode::kUnavailable, "{} {}", process_.called, fate.words);
  }
  if (!packet.ok()) return Annotate(packet.status(), process_.called);
  if (packet->kind != PacketKind::kRaised) return packet;
  v1::ScriptRaised raised;
  RING_RETURN_IF_ERROR(TakeJson(&*packet, &raised));
  return Raised(process_.called, raised);
}

StatusOr<Packet> Child::Expect(PacketKind kind, Deadline deadline) {
  RING_ASSIGN_OR_RETURN(Packet packet, Next(deadline));
  if (packet.kind == kind) return packet;
  return Error(absl::StatusCode::kDataLoss, "{}: the core protocol: expected {}, got {}",
               process_.called, Name(kind), Name(packet.kind));
}

StatusOr<Attached> Child::Attach(const v1::ScriptHello& hello, Deadline deadline) {
  // One that has ended by now has left its reason.
  const Status sent = SendJson(lane_.get(), PacketKind::kHello, hello, {}, deadline);
  if (!sent.ok() && !absl::IsUnavailable(sent)) return Annotate(sent, process_.called);
  RING_ASSIGN_OR_RETURN(Packet packet, Expect(PacketKind::kFacts, deadline));
  Attached attached;
  RING_RETURN_IF_ERROR(Annotate(TakeJson(&packet, &attached.facts), process_.called));
  if (packet.files.size() != 1) {
    return Error(absl::StatusCode::kDataLoss, "{}: the core protocol: FACTS without initial values",
                 process_.called);
  }
  attached.initial = std::move(packet.files.front());
  return attached;
}

Status Child::LayOut(const v1::ScriptLayout& layout, const SharedMemory& state, Deadline deadline) {
  RING_ASSIGN_OR_RETURN(
      slot_, SharedMemory::Create("ringmaster-slot", layout.bytes(), SharedMemory::Access::kWrite));
  const int files[] = {state.file(), slot_.file()};
  RING_RETURN_IF_ERROR(Annotate(SendJson(lane_.get(), PacketKind::kLayout, layout, files, deadline),
                                process_.called));
  return Expect(PacketKind::kReady, deadline).status();
}

Status Child::Foretell(const ComingShard& coming, Deadline deadline) {
  const Status sent = Send(lane_.get(), PacketKind::kAhead, ToBody(coming), {}, deadline);
  return absl::IsUnavailable(sent) ? absl::OkStatus() : Annotate(sent, process_.called);
}

StatusOr<ShardDone> Child::Compute(const ShardCall& call, size_t metrics, size_t groups,
                                   size_t tensors, Deadline deadline,
                                   const std::function<void(uint32_t)>& complete) {
  const Status sent = Send(lane_.get(), PacketKind::kShard, ToBody(call), {}, deadline);
  // One that raised between two shards has said so.
  if (!sent.ok() && !absl::IsUnavailable(sent)) return Annotate(sent, process_.called);
  std::vector<bool> there(tensors);
  size_t count = 0;
  uint32_t next = 0;  // that is not complete
  while (true) {
    RING_ASSIGN_OR_RETURN(const Packet packet, Next(deadline));
    if (packet.kind == PacketKind::kBucket) {
      for (const uint32_t tensor : BucketOf(packet.body)) {
        if (tensor >= tensors || there[tensor]) {
          return Error(
              absl::StatusCode::kDataLoss,
              "{}: the core protocol: a BUCKET of tensor {}, of which there are {}, or for "
              "the second time",
              process_.called, tensor, tensors);
        }
        there[tensor] = true;
        ++count;
      }
      for (; next < tensors && there[next]; ++next) complete(next);
      continue;
    }
    if (packet.kind != PacketKind::kDone) {
      return Error(absl::StatusCode::kDataLoss,
                   "{}: the core protocol: {} in the middle of a shard", process_.called,
                   Name(packet.kind));
    }
    RING_ASSIGN_OR_RETURN(ShardDone done, DoneOf(packet.body, metrics, groups));
    if (done.step != call.step || done.shard != call.shard || count != tensors) {
      return Error(
          absl::StatusCode::kDataLoss,
          "{}: the core protocol: DONE of step {}, shard {} with {} tensors; expected step "
          "{}, shard {} with {}",
          process_.called, done.step, done.shard, count, call.step, call.shard, tensors);
    }
    return done;
  }
}

}  // namespace ringmaster::script
