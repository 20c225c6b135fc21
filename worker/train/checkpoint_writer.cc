#include "worker/train/checkpoint_writer.h"

#include <pthread.h>

#include <utility>

#include "worker/train/patience.h"

namespace ringmaster::worker {
CheckpointWriter::CheckpointWriter(CheckpointSink* sink)
    : sink_(sink), thread_([this](const std::stop_token& stop) { Loop(stop); }) {
  pthread_setname_np(thread_.native_handle(), "checkpoint");
}

CheckpointWriter::~CheckpointWriter() { Stop(); }

void CheckpointWriter::Stop() {
  thread_.request_stop();
  MutexLock lock(mu_);
  stopped_ = true;
  changed_.NotifyAll();
}

Status CheckpointWriter::WaitUntilIdle() {
  WaitFor(changed_, mu_, [this]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    return stopped_ || !status_.ok() || (!task_ && !delivering_);
  });
  RING_RETURN_IF_ERROR(status_);
  if (stopped_) return absl::CancelledError("the run is over");
  return absl::OkStatus();
}

Status CheckpointWriter::Submit(const ManifestFacts& facts, const Standing& standing,
                                std::vector<CheckpointFile> files) {
  MutexLock lock(mu_);
  RING_RETURN_IF_ERROR(WaitUntilIdle());
  task_ = Task{facts, standing, std::move(files)};
  changed_.NotifyAll();
  return absl::OkStatus();
}

StatusOr<std::string> CheckpointWriter::Finish() {
  MutexLock lock(mu_);
  RING_RETURN_IF_ERROR(WaitUntilIdle());
  return manifest_sha256_;
}

void CheckpointWriter::Loop(const std::stop_token& stop) {
  while (true) {
    Task task;
    {
      MutexLock lock(mu_);
      WaitFor(changed_, mu_,
              [this]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return stopped_ || task_.has_value(); });
      if (stopped_) return;
      task = *std::exchange(task_, std::nullopt);
      delivering_ = true;
    }
    Checkpoint checkpoint = Seal(task.facts, std::move(task.files));
    checkpoint.standing = task.standing;
    Status status = sink_->Deliver(checkpoint, stop);
    MutexLock lock(mu_);
    if (status.ok()) manifest_sha256_ = checkpoint.manifest_sha256;
    if (status_.ok()) {
      status_ = Annotate(status, fmt::format("the checkpoint of step {}", checkpoint.step));
    }
    delivering_ = false;
    changed_.NotifyAll();
  }
}

}  // namespace ringmaster::worker
