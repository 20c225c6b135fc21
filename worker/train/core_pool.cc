#include "worker/train/core_pool.h"

#include <pthread.h>

#include <atomic>
#include <string>
#include <utility>

#include "common/check.h"
#include "common/mutex.h"
#include "common/numeric/float_mode.h"

namespace ringmaster::worker {
StatusOr<Executable*> Seat::executable(const ShardShape& shape) const {
  const auto found = pads_ ? executables_.lower_bound(shape) : executables_.find(shape);
  if (found == executables_.end() || found->first.mode != shape.mode) {
    return Internal("no program was bound for a shard of {} samples", shape.samples);
  }
  return found->second.get();
}

CorePool::CorePool(size_t cores) : results_(cores) {
  for (size_t i = 0; i < cores; ++i) seats_.push_back(std::make_unique<Seat>(i));
}

StatusOr<std::unique_ptr<CorePool>> CorePool::Create(Backend* backend, const ProgramSet* programs,
                                                     Weights* weights,
                                                     const graph::Augmenter* augmenter,
                                                     const std::vector<CoreOptions>& cores) {
  if (cores.empty()) return InvalidArgument("a worker needs at least one core");
  std::unique_ptr<CorePool> pool(new CorePool(cores.size()));
  pool->Start(cores);
  RING_RETURN_IF_ERROR(pool->RunOnAll([&](Seat& seat) -> Status {
    RING_ASSIGN_OR_RETURN(seat.core_, backend->MakeCore(cores[seat.index_]));
    seat.pads_ = backend->pads();
    for (const auto& [shape, program] : programs->programs()) {
      if (seat.pads_ && programs->largest(shape.mode) != &program) continue;
      RING_ASSIGN_OR_RETURN(seat.executables_[shape],
                            seat.core_->Bind(program, *weights, augmenter));
    }
    return absl::OkStatus();
  }));
  return pool;
}

void CorePool::Start(const std::vector<CoreOptions>& cores) {
  for (size_t i = 0; i < cores.size(); ++i) {
    const std::string name = cores[i].name.empty() ? fmt::format("core{}", i) : cores[i].name;
    threads_.emplace_back([this, i, name] { Loop(i, name); });
  }
}

CorePool::~CorePool() {
  {
    MutexLock lock(mu_);
    stopped_ = true;
    changed_.NotifyAll();
  }
  threads_.clear();
}

void CorePool::Loop(size_t index, const std::string& name) {
  pthread_setname_np(pthread_self(), name.substr(0, 15).c_str());
  const DefaultFloatMode float_mode;
  Seat& seat = *seats_[index];
  uint64_t done = 0;
  while (true) {
    const std::function<Status(Seat&)>* work = nullptr;
    {
      MutexLock lock(mu_);
      WaitFor(changed_, mu_,
              [&]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return stopped_ || round_ != done; });
      if (stopped_) break;
      done = round_;
      work = work_;
    }
    Status result = (*work)(seat);
    MutexLock lock(mu_);
    results_[index] = std::move(result);
    if (--running_ == 0) changed_.NotifyAll();
  }
  seat.executables_.clear();
  seat.core_.reset();
}

Status CorePool::RunOnAll(const std::function<Status(Seat&)>& work) {
  MutexLock lock(mu_);
  work_ = &work;
  running_ = seats_.size();
  ++round_;
  changed_.NotifyAll();
  WaitFor(changed_, mu_, [this]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return running_ == 0; });
  work_ = nullptr;
  for (Status& result : results_) RING_RETURN_IF_ERROR(result);
  return absl::OkStatus();
}

void CorePool::ForEach(size_t count, const std::function<void(size_t)>& work) {
  std::atomic<size_t> next{0};
  const Status status = RunOnAll([&](Seat&) {
    for (size_t i = next++; i < count; i = next++) work(i);
    return absl::OkStatus();
  });
  RING_CHECK(status.ok(), "work that returns no status failed");
}

}  // namespace ringmaster::worker
