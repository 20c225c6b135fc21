#include "coordinator/service/store_thread.h"

#include <utility>

namespace ringmaster::coordinator {
namespace {

constexpr size_t kStoreTasks = 16'384;
constexpr std::chrono::seconds kStoreTick{1};

}  // namespace

StoreThread::StoreThread(Store* store, std::function<void()> ended)
    : store_(store),
      ended_(std::move(ended)),
      thread_({"store", kStoreTasks, kStoreTick, nullptr}) {}

bool StoreThread::Begin(std::vector<const StoreWrite*> writes) {
  return thread_.Post([this, writes = std::move(writes)] {
    std::vector<Status> statuses = store_->WriteAll(writes);
    {
      MutexLock lock(mu_);
      statuses_ = std::move(statuses);
      condition_.NotifyAll();
    }
    ended_();
  });
}

std::optional<std::vector<Status>> StoreThread::Take() {
  MutexLock lock(mu_);
  return std::exchange(statuses_, std::nullopt);
}

std::vector<Status> StoreThread::Wait() {
  MutexLock lock(mu_);
  WaitFor(condition_, mu_,
          [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return statuses_.has_value(); });
  return *std::exchange(statuses_, std::nullopt);
}

}  // namespace ringmaster::coordinator
