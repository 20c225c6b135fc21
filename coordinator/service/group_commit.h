// What the control loop wants stored, committed in groups on a thread of its own, and what is to be
// done behind it: everything that was added while a commit is under way is the next one, so that a
// slow disk makes groups large and not the loop late. Owned by ControlLoop. On the loop, or while
// that does not run, but for what is called thread-safe. It decides nothing.
#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <vector>

#include "common/loop.h"
#include "common/mutex.h"
#include "common/status.h"
#include "coordinator/store/store.h"

namespace ringmaster::coordinator {

class GroupCommit {
 public:
  // How a write ended, and what it was.
  using Stored = std::function<void(const Status&, const StoreWrite&)>;
  // Runs a task on the control loop; it may fail when that has stopped.
  using OnLoop = std::function<void(std::function<void()>)>;

  GroupCommit(Store* store, OnLoop on_loop);

  // Starts the store's thread: from now on nobody else uses the store.
  void Start() { thread_.Start(); }
  // Ends it; whoever waits for it was answered (Finish).
  void Stop() { thread_.Stop(); }

  // `stored` runs on the loop, behind what was added before, never inside of this call.
  void Write(StoreWrite write, Stored stored);
  // `effect` runs behind all that was added before. There is something: not idle().
  void Then(std::function<void()> effect);
  // Nothing waits: what is to be done can be done at once.
  [[nodiscard]] bool idle() const { return entries_.empty(); }
  // Inside of a call of it: another one follows at once.
  [[nodiscard]] bool goes_on() const { return collecting_ > 1; }
  // Commits what was added, unless a commit is under way: its end begins the next one.
  void Begin();
  // Does what waited for a commit that has ended. It comes by itself, where the loop is not full.
  void Collect();
  // Waits until nothing waits, and does it all here: the loop does not run.
  void Finish();

  // On the store's thread, behind the commit that is under way. False: too much waits, or it was
  // stopped. Thread-safe.
  [[nodiscard]] bool Post(std::function<void()> task) { return thread_.Post(std::move(task)); }
  // The same, and waits for it: for what is rare.
  [[nodiscard]] Status Call(const std::function<Status(Store&)>& task);

 private:
  struct Entry {
    StoreWrite write;
    Stored stored;  // empty: this is no write
    std::function<void()> effect;
  };

  Store* const store_;
  const OnLoop on_loop_;
  std::deque<Entry> entries_;  // in the order in which they were added
  size_t begun_ = 0;           // of them, the first ones: the commit that is under way
  size_t collecting_ = 0;      // of them, that are being done

  Mutex mu_;
  Condition condition_;
  bool committed_ ABSL_GUARDED_BY(mu_) = false;
  std::vector<Status> statuses_ ABSL_GUARDED_BY(mu_);  // of the writes of that commit

  Loop thread_;  // last: its thread uses everything above
};

}  // namespace ringmaster::coordinator
