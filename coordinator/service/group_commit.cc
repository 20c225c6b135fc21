#include "coordinator/service/group_commit.h"

#include <future>
#include <utility>

namespace ringmaster::coordinator {
namespace {

constexpr size_t kStoreTasks = 16'384;
constexpr std::chrono::seconds kStoreTick{1};

}  // namespace

GroupCommit::GroupCommit(Store* store, OnLoop on_loop)
    : store_(store),
      on_loop_(std::move(on_loop)),
      thread_({"store", kStoreTasks, kStoreTick, nullptr}) {}

void GroupCommit::Write(StoreWrite write, Stored stored) {
  entries_.push_back({std::move(write), std::move(stored), nullptr});
}

void GroupCommit::Then(std::function<void()> effect) {
  entries_.push_back({WriteNothing(), nullptr, std::move(effect)});
}

// Entries stay where they are in memory while others are added behind them.
void GroupCommit::Begin() {
  if (begun_ > 0 || collecting_ > 0 || entries_.empty()) return;
  std::vector<const StoreWrite*> writes;
  for (const Entry& entry : entries_) {
    if (entry.stored) writes.push_back(&entry.write);
  }
  begun_ = entries_.size();
  const auto commit = [this, writes] {
    std::vector<Status> statuses = store_->WriteAll(writes);
    {
      MutexLock lock(mu_);
      statuses_ = std::move(statuses);
      committed_ = true;
      condition_.NotifyAll();
    }
    on_loop_([this] { Collect(); });
  };
  // Its queue is full of readers: the next event tries again.
  if (!thread_.Post(commit)) begun_ = 0;
}

void GroupCommit::Collect() {
  std::vector<Status> statuses;
  {
    MutexLock lock(mu_);
    if (!std::exchange(committed_, false)) return;
    statuses = std::exchange(statuses_, {});
  }
  size_t written = 0;
  for (collecting_ = std::exchange(begun_, 0); collecting_ > 0; --collecting_) {
    const Entry entry = std::move(entries_.front());
    entries_.pop_front();
    if (entry.stored) {
      entry.stored(statuses[written++], entry.write);
    } else {
      entry.effect();
    }
  }
  // What was added meanwhile waits for no write before the first one of it.
  while (!entries_.empty() && !entries_.front().stored) {
    const Entry entry = std::move(entries_.front());
    entries_.pop_front();
    entry.effect();
  }
  Begin();
}

void GroupCommit::Finish() {
  while (!entries_.empty()) {
    Begin();
    if (begun_ == 0) continue;
    {
      MutexLock lock(mu_);
      WaitFor(condition_, mu_, [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return committed_; });
    }
    Collect();
  }
}

Status GroupCommit::Call(const std::function<Status(Store&)>& task) {
  std::promise<Status> promise;
  if (!thread_.Post([&] { promise.set_value(task(*store_)); })) {
    return Error(absl::StatusCode::kUnavailable, "the store's thread has too much to do");
  }
  return promise.get_future().get();
}

}  // namespace ringmaster::coordinator
