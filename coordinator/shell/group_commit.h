// What the executor wants stored, committed in groups, and what is to be done behind it: everything
// that was added while a commit is under way is the next one, so that a slow disk makes groups
// large and not the loop late. Owned by Executor, loop thread only. It decides nothing.
#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <vector>

#include "common/status.h"
#include "coordinator/shell/seams.h"

namespace ringmaster::coordinator {

class GroupCommit {
 public:
  // How a write ended, and what it was.
  using Stored = std::function<void(const Status&, const StoreWrite&)>;

  explicit GroupCommit(Committer* committer) : committer_(committer) {}

  // `stored` runs behind what was added before, never inside of this call.
  void Write(StoreWrite write, Stored stored);
  // `effect` runs behind all that was added before. There is something: not idle().
  void Then(std::function<void()> effect);
  // Nothing waits: what is to be done can be done at once.
  [[nodiscard]] bool idle() const { return entries_.empty(); }
  // Inside of a call of it: another one follows at once.
  [[nodiscard]] bool goes_on() const { return collecting_ > 1; }
  // Commits what was added, unless a commit is under way: its end begins the next one. Whether one
  // is under way now.
  bool Begin();
  // The commit that was begun has ended, its writes so: does what waited for it.
  void Ended(const std::vector<Status>& statuses);

 private:
  struct Entry {
    StoreWrite write;
    Stored stored;  // empty: this is no write
    std::function<void()> effect;
  };

  Committer* const committer_;
  std::deque<Entry> entries_;  // in the order in which they were added
  size_t begun_ = 0;           // of them, the first ones: the commit that is under way
  size_t collecting_ = 0;      // of them, that are being done
};

}  // namespace ringmaster::coordinator
