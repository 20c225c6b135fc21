// The thread that uses the store, once it has started: commits what the executor wants stored, and
// runs what others ask of it between two commits. Owned by ControlLoop. Post is thread-safe,
// everything else is on the loop, or while that does not run.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "common/loop.h"
#include "common/mutex.h"
#include "common/status.h"
#include "coordinator/shell/seams.h"

namespace ringmaster::coordinator {

class StoreThread : public Committer {
 public:
  // `ended` runs on the store's thread: Take has something.
  StoreThread(Store* store, std::function<void()> ended);

  void Start() { thread_.Start(); }
  void Stop() { thread_.Stop(); }

  // False: its queue is full of readers.
  [[nodiscard]] bool Begin(std::vector<const StoreWrite*> writes) override;
  // How the writes of the commit ended that was begun; nothing: it lasts, or was taken.
  [[nodiscard]] std::optional<std::vector<Status>> Take();
  // The same, when it has ended.
  [[nodiscard]] std::vector<Status> Wait();

  // Behind the commit that is under way. False: too much waits, or it was stopped. Thread-safe.
  [[nodiscard]] bool Post(std::function<void()> task) { return thread_.Post(std::move(task)); }

 private:
  Store* const store_;
  const std::function<void()> ended_;

  Mutex mu_;
  Condition condition_;
  std::optional<std::vector<Status>> statuses_ ABSL_GUARDED_BY(mu_);  // of a commit that has ended

  Loop thread_;  // last: its thread uses everything above
};

}  // namespace ringmaster::coordinator
