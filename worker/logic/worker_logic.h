// The worker's decisions: fence, applied, stop. Pure: no gRPC, threads, clock, disk or logging.
// Loop thread only; the daemon feeds events and carries out actions in order. It never decides who
// is in a ring: only the coordinator does. Its two safety rules (checked by tests):
//   - it stops applying before it acknowledges a fence, and
//   - it obeys no term lower than the highest it has seen.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "worker/logic/action.h"
#include "worker/logic/event.h"
#include "worker/logic/job_messages.h"

namespace ringmaster::worker {

// Actions, and in words why.
struct Decision {
  std::vector<Action> actions;
  std::string reason;
};

// The job that a worker holds, and where it stands.
struct HeldJob {
  enum class Phase { kInspecting, kInspected, kPreparing, kPrepared, kRunning };
  // What to do when the step loop has returned.
  enum class AfterRun { kReport, kAcknowledgeFence, kReportStopped, kDrop };

  JobId id;
  Phase phase = Phase::kInspecting;
  AfterRun after_run = AfterRun::kReport;
  GenerationId fenced;  // nothing older is applied any more
  GenerationId started;
  HeldState state;
  std::chrono::steady_clock::time_point last_progress{};
  std::optional<v1::Progress> held_back;  // newer than what was sent
  bool drop_when_idle = false;            // the job thread is still busy with it
};

class WorkerLogic {
 public:
  using Time = std::chrono::steady_clock::time_point;

  // `self` is sent at every attach; its job fields are filled in here.
  WorkerLogic(v1::Attach self, uint64_t highest_term);

  [[nodiscard]] Decision Step(const Event& event, Time now);

  // What a heartbeat says of the job: empty when free.
  [[nodiscard]] JobId job() const { return job_ ? job_->id : JobId(); }
  [[nodiscard]] bool attached() const { return attached_; }

 private:
  using Phase = HeldJob::Phase;
  using AfterRun = HeldJob::AfterRun;

  Decision On(const Connected& event, Time now);
  Decision On(const Disconnected& event, Time now);
  Decision On(const FromCoordinator& event, Time now);
  Decision On(const InspectDone& event, Time now);
  Decision On(const PrepareDone& event, Time now);
  Decision On(const PhaseChanged& event, Time now);
  Decision On(const RunProgress& event, Time now);
  Decision On(const RunJoined& event, Time now);
  Decision On(const PeerSuspected& event, Time now);
  Decision On(const StateDelivered& event, Time now);
  Decision On(const RunEnded& event, Time now);
  Decision On(const StopRequested& event, Time now);

  Decision OnAttached(const v1::Attached& message);
  Decision OnInspect(const v1::Inspect& message);
  Decision OnPrepare(const v1::Prepare& message);
  Decision OnFence(const v1::Fence& message);
  Decision OnStart(const v1::Start& message);
  Decision OnCancel(const v1::Cancel& message);
  Decision OnRelease(const v1::Release& message);

  [[nodiscard]] bool Has(const std::string& job_id) const {
    return job_ && job_->id.value() == job_id;
  }
  [[nodiscard]] Action FenceAck() const;
  [[nodiscard]] Action JobStopped() const;
  // Forgets the job: at once when nothing of it is running, else as soon as that ended.
  Decision Drop(const std::string& reason);
  Decision AfterRunEnded(const RunEnded& event);

  v1::Attach self_;
  uint64_t highest_term_;
  bool attached_ = false;
  bool stopping_ = false;
  std::optional<HeldJob> job_;
};

}  // namespace ringmaster::worker
