// The worker's cores: one named thread each, which makes its Core and binds every program of the
// job, and then runs what the step thread hands to all of them at once. Owned by the trainer; every
// public function on the step thread. It knows no step, shard or gradient: work comes in as a
// function of the core.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <thread>
#include <vector>

#include "common/mutex.h"
#include "common/status.h"
#include "worker/backend/backend.h"
#include "worker/train/shard_shapes.h"

namespace ringmaster::worker {

// One core as its own thread sees it.
class Seat {
 public:
  explicit Seat(size_t index) : index_(index) {}
  [[nodiscard]] size_t index() const { return index_; }
  // Of that shape, or where the backend pads the smallest one with room for it. INTERNAL when no
  // such program was bound.
  [[nodiscard]] StatusOr<Executable*> executable(const ShardShape& shape) const;
  // That its programs take. On its own thread.
  [[nodiscard]] uint64_t memory_bytes() const { return core_->memory_bytes(); }
  [[nodiscard]] uint64_t host_bytes() const { return core_->host_bytes(); }

 private:
  friend class CorePool;
  const size_t index_;
  std::unique_ptr<Core> core_;
  bool pads_ = false;  // Backend::pads
  std::map<ShardShape, std::unique_ptr<Executable>> executables_;
};

class CorePool {
 public:
  // Starts the threads and binds; the first error of any core. `programs`, `weights` and
  // `augmenter`, which is Core::Bind's, outlive the pool.
  [[nodiscard]] static StatusOr<std::unique_ptr<CorePool>> Create(
      Backend* backend, const ProgramSet* programs, Weights* weights,
      const graph::Augmenter* augmenter, const std::vector<CoreOptions>& cores);
  ~CorePool();
  CorePool(const CorePool&) = delete;
  CorePool& operator=(const CorePool&) = delete;

  [[nodiscard]] size_t size() const { return seats_.size(); }

  // Calls `work` once on every core's thread, side by side, and returns when all are done with the
  // error of the lowest core. A kernel cannot be interrupted, so `work` itself has to look for a
  // reason to end early.
  Status RunOnAll(const std::function<Status(Seat&)>& work);

  // Calls `work(i)` for each i in [0, count), on whichever core is free.
  void ForEach(size_t count, const std::function<void(size_t)>& work);

 private:
  explicit CorePool(size_t cores);
  void Start(const std::vector<CoreOptions>& cores);
  void Loop(size_t index, const std::string& name);

  // The core's objects live and die on its thread.
  std::vector<std::unique_ptr<Seat>> seats_;

  Mutex mu_;
  Condition changed_;
  const std::function<Status(Seat&)>* work_ ABSL_GUARDED_BY(mu_) = nullptr;
  uint64_t round_ ABSL_GUARDED_BY(mu_) = 0;  // of work; a thread runs each round once
  size_t running_ ABSL_GUARDED_BY(mu_) = 0;
  bool stopped_ ABSL_GUARDED_BY(mu_) = false;
  std::vector<Status> results_ ABSL_GUARDED_BY(mu_);

  std::vector<std::jthread> threads_;  // last: they use everything above
};

}  // namespace ringmaster::worker
