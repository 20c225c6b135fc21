#include "worker/train/checkpoint_writer.h"

#include <pthread.h>

#include <algorithm>
#include <functional>
#include <utility>

#include "common/failpoint.h"
#include "common/log.h"
#include "worker/train/patience.h"

namespace ringmaster::worker {

CheckpointWriter::CheckpointWriter(std::string job_id)
    : job_id_(std::move(job_id)), thread_([this](const std::stop_token& stop) { Loop(stop); }) {
  pthread_setname_np(thread_.native_handle(), "checkpoint");
}

CheckpointWriter::~CheckpointWriter() {
  thread_.request_stop();
  MutexLock lock(mu_);
  stopped_ = true;
  changed_.NotifyAll();
}

void CheckpointWriter::Begin(std::shared_ptr<CheckpointSink> sink) {
  MutexLock lock(mu_);
  sink_ = std::move(sink);
  status_ = absl::OkStatus();
  for (Kept& kept : kept_) kept.failed = false;
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
  return kept_.size() < kMostCopies;
}

template <typename Done>
Status CheckpointWriter::Wait(const std::stop_token& stop, Done done) {
  const std::stop_callback wake(stop, [this] {
    MutexLock lock(mu_);
    changed_.NotifyAll();
  });
  MutexLock lock(mu_);
  WaitFor(changed_, mu_, [&]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    return stop.stop_requested() || sink_ == nullptr || !status_.ok() || done();
  });
  RING_RETURN_IF_ERROR(status_);
  if (stop.stop_requested()) return absl::CancelledError("the run was stopped");
  return absl::OkStatus();
}

Status CheckpointWriter::WaitForRoom(const std::stop_token& stop) {
  return Wait(stop, [this]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return kept_.size() < kMostCopies; });
}

StatusOr<std::string> CheckpointWriter::Finish(const std::stop_token& stop) {
  RING_RETURN_IF_ERROR(
      Wait(stop, [this]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return kept_.empty(); }));
  MutexLock lock(mu_);
  return sink_ == nullptr ? std::string() : manifest_sha256_;
}

void CheckpointWriter::Keep(DueCopy copy) {
  KeptList dropped;  // outlives the lock
  MutexLock lock(mu_);
  const auto idle = [](const Kept& kept) { return !kept.delivering; };
  const auto oldest = std::ranges::find_if(kept_, idle);
  if (kept_.size() >= kMostCopies && oldest != kept_.end()) {
    dropped.splice(dropped.end(), kept_, oldest);
  }
  Kept& kept = kept_.emplace_back();
  kept.step = copy.facts.step;
  kept.matters = copy.last || copy.standing.best;
  kept.last = copy.last;
  kept.copy = std::move(copy);
  changed_.NotifyAll();
}

void CheckpointWriter::Forget(uint64_t step) {
  KeptList dropped;  // outlives the lock
  MutexLock lock(mu_);
  durable_step_ = std::max(durable_step_, step);
  for (auto it = kept_.begin(); it != kept_.end();) {
    const auto kept = it++;
    const bool goes = kept->step <= step && !kept->delivering && !kept->last;
    if (goes) dropped.splice(dropped.end(), kept_, kept);
  }
  changed_.NotifyAll();
}

void CheckpointWriter::Rewind() {
  MutexLock lock(mu_);
  durable_step_ = 0;
  manifest_step_ = 0;
}

CheckpointWriter::KeptList::iterator CheckpointWriter::Next() {
  if (sink_ == nullptr) return kept_.end();
  return std::ranges::find(kept_, false, &Kept::failed);
}

void CheckpointWriter::Loop(const std::stop_token& stop) {
  while (true) {
    KeptList::iterator kept;
    std::shared_ptr<CheckpointSink> sink;
    {
      MutexLock lock(mu_);
      WaitFor(changed_, mu_, [this]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
        return stopped_ || Next() != kept_.end();
      });
      if (stopped_) return;
      kept = Next();
      kept->delivering = true;
      sink = sink_;
    }
    const Status status = Deliver(&*kept, sink.get(), stop);
    if (stop.stop_requested()) return;
    Ended(kept, status);
  }
}

Status CheckpointWriter::Deliver(Kept* kept, CheckpointSink* sink, const std::stop_token& stop) {
  if (!kept->sealed) {
    kept->sealed = Seal(kept->copy.facts, std::move(kept->copy.files));
    kept->sealed->standing = kept->copy.standing;
  }
  HitFailpoint("checkpoint", kept->step);
  return sink->Deliver(*kept->sealed, stop);
}

void CheckpointWriter::Ended(KeptList::iterator kept, const Status& status) {
  KeptList dropped;  // outlives the lock
  MutexLock lock(mu_);
  kept->delivering = false;
  changed_.NotifyAll();
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
