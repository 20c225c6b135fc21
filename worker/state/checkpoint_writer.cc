#include "worker/state/checkpoint_writer.h"

#include <pthread.h>

#include <algorithm>
#include <functional>
#include <ranges>
#include <utility>

#include "common/failpoint.h"
#include "common/log.h"
#include "common/mutex.h"

namespace ringmaster::worker {

CheckpointWriter::CheckpointWriter(std::string job_id, size_t most_copies, Tell tell)
    : job_id_(std::move(job_id)),
      most_copies_(most_copies),
      tell_(std::move(tell)),
      hasher_([this]() { Hash(); }),
      deliverer_([this](const std::stop_token& stop) { Deliver(stop); }) {
  pthread_setname_np(hasher_.native_handle(), "snapshot");
  pthread_setname_np(deliverer_.native_handle(), "checkpoint");
}

CheckpointWriter::~CheckpointWriter() {
  deliverer_.request_stop();
  MutexLock lock(mu_);
  stopped_ = true;
  changed_.NotifyAll();
}

void CheckpointWriter::Begin(std::shared_ptr<CheckpointSink> sink) {
  MutexLock lock(mu_);
  sink_ = std::move(sink);
  status_ = absl::OkStatus();
  manifest_step_ = 0;  // a run that begins at the last step is there to deliver it, again
  for (Kept& kept : kept_) kept.failed = false;
  try_at_ = {};
  changed_.NotifyAll();
}

bool CheckpointWriter::Covers(uint64_t step, bool last) {
  MutexLock lock(mu_);
  const auto is_it = [&](const Kept& kept) { return kept.step == step; };
  if (std::ranges::any_of(kept_, is_it)) return true;
  return last ? manifest_step_ == step : step <= durable_step_;
}

bool CheckpointWriter::HasRoom() {
  MutexLock lock(mu_);
  return kept_.size() < most_copies_;
}

Status CheckpointWriter::status() {
  MutexLock lock(mu_);
  return status_;
}

template <typename Done>
Status CheckpointWriter::Wait(const std::stop_token& stop, Done done) {
  const std::stop_callback wake(stop, [this] {
    MutexLock lock(mu_);
    changed_.NotifyAll();
  });
  MutexLock lock(mu_);
  WaitFor(changed_, mu_, [&]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    return stop.stop_requested() || !status_.ok() || done();
  });
  RING_RETURN_IF_ERROR(status_);
  if (stop.stop_requested()) return absl::CancelledError("the run was stopped");
  return absl::OkStatus();
}

StatusOr<std::string> CheckpointWriter::Finish(const std::stop_token& stop) {
  RING_RETURN_IF_ERROR(Wait(
      stop, [this]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return sink_ == nullptr || kept_.empty(); }));
  MutexLock lock(mu_);
  return sink_ == nullptr ? std::string() : manifest_sha256_;
}

std::optional<DroppedCheckpoint> CheckpointWriter::MakeRoom(uint64_t step, const Standing& standing,
                                                            bool last) {
  KeptList dropped;  // outlives the lock
  MutexLock lock(mu_);
  if (kept_.size() < most_copies_) return std::nullopt;
  WaitFor(changed_, mu_, [this]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    return stopped_ || NextToHash() == kept_.end();
  });
  const auto by_age = std::views::reverse(kept_);
  const auto best = std::ranges::find(by_age, true, &Kept::best);
  const Kept* const newest_best = standing.best || best == by_age.end() ? nullptr : &*best;
  const auto may_go = [&](const Kept& kept) {
    return !kept.busy && !kept.last && &kept != newest_best;
  };
  const auto oldest = std::ranges::find_if(kept_, may_go);
  // Whoever only keeps takes every copy that the first member may take: its word is waited for.
  const bool must = standing.best || last || sink_ == nullptr;
  if (oldest == kept_.end() && must) return std::nullopt;
  const DroppedCheckpoint result{
      .step = oldest == kept_.end() ? step : oldest->step,
      .reason = obstacle_.empty() ? "checkpoints come due faster than they are stored" : obstacle_};
  if (oldest != kept_.end()) dropped.splice(dropped.end(), kept_, oldest);
  return result;
}

void CheckpointWriter::TellOf(uint64_t step, const std::string& manifest_sha256) {
  HeldCopy told{.step = step, .manifest_sha256 = manifest_sha256, .held = {}};
  for (const Kept& kept : kept_) told.held.push_back(kept.step);
  tell_(told);
}

void CheckpointWriter::Keep(DueCopy copy) {
  MutexLock lock(mu_);
  Kept& kept = kept_.emplace_back();
  kept.step = copy.facts.step;
  kept.matters = copy.last || copy.standing.best;
  kept.best = copy.standing.best;
  kept.last = copy.last;
  kept.copy = std::move(copy);
  TellOf(kept.step, "");
  changed_.NotifyAll();
}

void CheckpointWriter::Forget(uint64_t step) {
  KeptList dropped;  // outlives the lock
  MutexLock lock(mu_);
  durable_step_ = std::max(durable_step_, step);
  for (auto it = kept_.begin(); it != kept_.end();) {
    const auto kept = it++;
    const bool goes = kept->step <= step && !kept->busy && !kept->last;
    if (goes) dropped.splice(dropped.end(), kept_, kept);
  }
  changed_.NotifyAll();
}

void CheckpointWriter::Rewind() {
  MutexLock lock(mu_);
  durable_step_ = 0;
  manifest_step_ = 0;
}

CheckpointWriter::KeptList::iterator CheckpointWriter::NextToHash() {
  return std::ranges::find(kept_, false, &Kept::hashed);
}

// Oldest first, but for those that failed.
CheckpointWriter::KeptList::iterator CheckpointWriter::NextToDeliver() {
  if (sink_ == nullptr) return kept_.end();
  const auto next = std::ranges::find(kept_, false, &Kept::failed);
  return next != kept_.end() && next->hashed ? next : kept_.end();
}

CheckpointWriter::KeptList::iterator CheckpointWriter::WaitToDeliver() {
  while (!stopped_) {
    const KeptList::iterator next = NextToDeliver();
    const bool pausing = Clock::now() < try_at_;
    if (next != kept_.end() && !pausing) return next;
    // A deadline in any case: waking early only makes it look again.
    const auto until = pausing ? try_at_ : Clock::now() + std::chrono::minutes(1);
    (void)changed_.WaitUntil(mu_, until, [&]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
      return stopped_ || (Clock::now() >= try_at_ && NextToDeliver() != kept_.end());
    });
  }
  return kept_.end();
}

void CheckpointWriter::Hash() {
  while (true) {
    KeptList::iterator kept;
    {
      MutexLock lock(mu_);
      WaitFor(changed_, mu_, [this]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
        return stopped_ || NextToHash() != kept_.end();
      });
      if (stopped_) return;
      kept = NextToHash();
      kept->busy = true;
    }
    kept->sealed = Seal(kept->copy.facts, std::move(kept->copy.files));
    kept->sealed->standing = kept->copy.standing;
    KeptList dropped;  // outlives the lock
    MutexLock lock(mu_);
    TellOf(kept->step, kept->sealed->manifest_sha256);
    kept->hashed = true;
    kept->busy = false;
    // It became durable meanwhile, and Forget left it for this.
    if (kept->step <= durable_step_ && !kept->last) dropped.splice(dropped.end(), kept_, kept);
    changed_.NotifyAll();
  }
}

void CheckpointWriter::Deliver(const std::stop_token& stop) {
  while (true) {
    KeptList::iterator kept;
    std::shared_ptr<CheckpointSink> sink;
    {
      MutexLock lock(mu_);
      kept = WaitToDeliver();
      if (stopped_) return;
      kept->busy = true;
      sink = sink_;
    }
    HitFailpoint("checkpoint", kept->step);
    const Status status = sink->Deliver(*kept->sealed, stop);
    if (stop.stop_requested()) return;
    Ended(kept, status);
  }
}

void CheckpointWriter::TryAgain(const Status& status) {
  obstacle_ = Message(status);
  try_at_ = Clock::now() + pause_.Next();
}

void CheckpointWriter::Ended(KeptList::iterator kept, const Status& status) {
  KeptList dropped;  // outlives the lock
  MutexLock lock(mu_);
  kept->busy = false;
  changed_.NotifyAll();
  if (status.code() == absl::StatusCode::kUnavailable) return TryAgain(status);
  obstacle_.clear();
  pause_ = RetryPause();
  if (status.ok()) {
    durable_step_ = std::max(durable_step_, kept->step);
    manifest_step_ = kept->step;
    manifest_sha256_ = kept->sealed->manifest_sha256;
  } else if (kept->matters) {
    kept->failed = true;
    if (status_.ok()) {
      status_ = Annotate(status, fmt::format("the checkpoint of step {}", kept->step));
    }
    return;
  } else {
    spdlog::error("checkpoint given up: job={} step={} because {}", job_id_, kept->step,
                  Message(status));
  }
  dropped.splice(dropped.end(), kept_, kept);
}

}  // namespace ringmaster::worker
