#include "tests/sim/describe.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace ringmaster::sim {

std::string Describe(const v1::Generation& generation) {
  return fmt::format("{}.{}", generation.term(), generation.counter());
}

std::string Describe(const v1::WorkerMessage& message) {
  using Kind = v1::WorkerMessage::KindCase;
  switch (message.kind_case()) {
    case Kind::kAttach:
      return fmt::format("Attach job={} generation={} applied={} term={}",
                         message.attach().job_id(), Describe(message.attach().generation()),
                         message.attach().applied(), message.attach().highest_term());
    case Kind::kInspected:
      return "Inspected " + message.inspected().error();
    case Kind::kPrepared:
      return "Prepared " + message.prepared().error();
    case Kind::kFenceAck:
      return fmt::format("FenceAck {} applied={} folded=[{}]",
                         Describe(message.fence_ack().generation()), message.fence_ack().applied(),
                         fmt::join(message.fence_ack().folded(), ","));
    case Kind::kProgress:
      return fmt::format("Progress {} applied={}", Describe(message.progress().generation()),
                         message.progress().applied());
    case Kind::kSuspicion:
      return fmt::format("Suspicion {} of {}: {}", Describe(message.suspicion().generation()),
                         message.suspicion().peer(), message.suspicion().reason());
    case Kind::kJobFailed:
      return fmt::format("JobFailed {} {}: {}", Describe(message.job_failed().generation()),
                         v1::FailureCode_Name(message.job_failed().code()),
                         message.job_failed().reason());
    case Kind::kJobStopped:
      return fmt::format("JobStopped applied={}", message.job_stopped().applied());
    case Kind::kJobFinished:
      return fmt::format("JobFinished {} applied={}", Describe(message.job_finished().generation()),
                         message.job_finished().applied());
    case Kind::kLeaving:
      return "Leaving";
    case Kind::kJoined:
      return "Joined " + Describe(message.joined().generation());
    case Kind::kSnapshotTaken:
      return fmt::format("SnapshotTaken {} {}", message.snapshot_taken().snapshot().step(),
                         message.snapshot_taken().snapshot().manifest_sha256().substr(0, 8));
    case Kind::kStateSaved:
      return fmt::format("StateSaved applied={} {}", message.state_saved().applied(),
                         message.state_saved().error());
    default:
      return fmt::format("message {}", static_cast<int>(message.kind_case()));
  }
}

std::string Describe(const v1::CoordinatorMessage& message) {
  using Kind = v1::CoordinatorMessage::KindCase;
  switch (message.kind_case()) {
    case Kind::kAttached:
      return fmt::format("Attached term={} resume={}", message.attached().term(),
                         message.attached().resume());
    case Kind::kInspect:
      return "Inspect " + message.inspect().job_id();
    case Kind::kPrepare:
      return "Prepare " + message.prepare().job_id();
    case Kind::kFence:
      return fmt::format("Fence {}{}", Describe(message.fence().generation()),
                         message.fence().at_boundary() ? " at a boundary" : "");
    case Kind::kStart: {
      const v1::Start& start = message.start();
      std::string text =
          fmt::format("Start {} K={}", Describe(start.generation()), start.start_step());
      if (start.has_restore()) text += " restore";
      for (const v1::RingMember& member : start.ring()) {
        text += fmt::format(" {}{}[{}]", member.name(),
                            member.holds()     ? "*"
                            : member.follows() ? "~"
                                               : "",
                            fmt::join(member.shards(), ","));
      }
      return text;
    }
    case Kind::kCancel:
      return "Cancel: " + message.cancel().reason();
    case Kind::kRelease:
      return "Release " + message.release().job_id();
    case Kind::kSaveState:
      return "SaveState";
    case Kind::kCheckpointKept:
      return fmt::format("CheckpointKept {}", message.checkpoint_kept().step());
    default:
      return fmt::format("message {}", static_cast<int>(message.kind_case()));
  }
}

}  // namespace ringmaster::sim
