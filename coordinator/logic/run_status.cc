// The half of Run that tells: its status, and whom it waits for in vain.
#include <algorithm>

#include "coordinator/logic/run.h"

namespace ringmaster::coordinator {
namespace {

// What the members were waited for in `phase`, and what that is called when it was in vain.
struct Expectation {
  const char* what;
  Cause cause;
};

Expectation Expected(Phase phase, bool any_finished) {
  switch (phase) {
    case Phase::kInspecting:
      return {"to report the dataset", Cause::kStartDeadline};
    case Phase::kPreparing:
      return {"to build the job and run the known shard", Cause::kStartDeadline};
    case Phase::kFencing:
      return {"to acknowledge the fence", Cause::kStartDeadline};
    case Phase::kRunning:
      if (any_finished) return {"to finish", Cause::kEndDeadline};
      return {"to do any work", Cause::kStalled};
    case Phase::kStopping:
    case Phase::kDone:
      break;
  }
  return {"to stop", Cause::kStalled};
}

}  // namespace

std::string Run::PhaseOf(const Member& member) const {
  // From Start on the step thread's word is more exact than `ring` and `first_step`.
  const std::string starting = phases_.PhaseOf(PlaceOf(member));
  return started_ && !member.phase.empty() ? member.phase
         : starting.empty()                ? member.phase
                                           : starting;
}

bool Run::WaitsFor(const Member& member) const {
  switch (phase_) {
    case Phase::kInspecting:
      return !member.facts;
    case Phase::kPreparing:
      return !member.prepared;
    case Phase::kFencing:
      return !member.fenced;
    case Phase::kRunning:
      return !member.finished;
    case Phase::kStopping:
      return !member.stopped;
    case Phase::kDone:
      return false;
  }
  return false;
}

std::vector<const Member*> Run::WaitedFor() const {
  std::vector<const Member*> waited_for;
  for (const Member& member : members_) {
    if (WaitsFor(member)) waited_for.push_back(&member);
  }
  return waited_for;
}

Fault Run::CheckDeadline(Now now) const {
  if (phase_ == Phase::kDone || now.steady < deadline_) return {};
  const std::vector<const Member*> waited_for = WaitedFor();
  std::string names;
  for (const Member* member : waited_for) {
    names += (names.empty() ? "" : ", ") + member->called();
    const std::string phase = PhaseOf(*member);
    if (!phase.empty()) names += fmt::format(" (in {})", phase);
  }
  const Expectation expected = Expected(phase_, AnyFinished());
  return {expected.cause,
          fmt::format("waited {} ms in vain for {} {}, at step {}", limit_.count(),
                      names.empty() ? "the last checkpoint" : names, expected.what, committed_),
          waited_for.size() == 1 ? waited_for.front()->name() : ""};
}

void Run::Describe(Now now, v1::JobStatus& status) const {
  DescribeProgress(status);
  *status.mutable_generation() = ToProto(generation_);
  const int told = status.start_phases_size();
  const bool final = phases_.over() && told > 0 && status.start_phases(told - 1).done();
  if (!final) phases_.Describe(now, status);
  status.clear_workers();
  for (const Member& member : members_) {
    v1::JobWorker& worker = *status.add_workers();
    worker.set_name(member.name());
    worker.set_host(member.attach.host());
    for (uint64_t s = member.shards.begin; s < member.shards.end; ++s) {
      worker.add_shards(static_cast<uint32_t>(s));
    }
    worker.set_ring_bytes(member.progress.ring_bytes());
    worker.set_phase(PhaseOf(member));
    worker.set_applied(member.progress.applied());
    if (member.progress.has_step_times()) {
      *worker.mutable_step_times() = member.progress.step_times();
    }
  }
}

void Run::DescribeProgress(v1::JobStatus& status) const {
  status.set_step(committed_);
  status.set_updates(committed_ - skipped_);
  if (resolved_) {
    status.set_total_steps(resolved_->result().total_steps());
    status.set_steps_per_epoch(resolved_->result().steps_per_epoch());
  }
  status.set_epoch(newest_.epoch());
  status.set_loss(newest_.loss());
  status.set_accuracy(newest_.accuracy());
  status.set_samples_per_second(newest_.samples_per_second());
  status.set_learning_rate(newest_.learning_rate());
  status.set_last_step_unix_ms(newest_unix_ms_);
  if (newest_.has_loss_scale()) status.set_loss_scale(newest_.loss_scale());
  if (newest_.has_test_accuracy()) status.set_test_accuracy(newest_.test_accuracy());
  if (newest_.has_test_loss()) status.set_test_loss(newest_.test_loss());
  if (newest_.has_validation_accuracy()) {
    status.set_validation_accuracy(newest_.validation_accuracy());
  }
  if (newest_.has_validation_loss()) status.set_validation_loss(newest_.validation_loss());
}

}  // namespace ringmaster::coordinator
