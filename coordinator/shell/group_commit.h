// What the executor wants stored, committed in groups, and what is to be done behind it: everything
// that was added while a commit is under way is the next one, so that a slow disk makes groups
// large and not the loop late. Of views that wait only the newest of each is kept, so that a commit
// that hangs gathers no more of them than there are to show. Owned by Executor, loop thread only.
// It decides nothing.
#pragma once

#include <cstddef>
#include <functional>
#include <list>
#include <map>
#include <string>
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
  // Then, of what shows `what` as it is now: the one before it is not done any more, unless it is
  // part of the commit under way, or a Then came behind it. So what is shown never runs ahead of a
  // write, and whoever is told something finds shown what was to be shown before.
  void ThenShow(const std::string& what, std::function<void()> effect);
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
    std::string shows;  // of a ThenShow
  };
  using Entries = std::list<Entry>;

  [[nodiscard]] Entry TakeFirst();

  Committer* const committer_;
  Entries entries_;        // in the order in which they were added
  size_t begun_ = 0;       // of them, the first ones: the commit that is under way
  size_t collecting_ = 0;  // of them, that are being done
  std::map<std::string, Entries::iterator> newest_;  // of a ThenShow, that a newer one replaces
};

}  // namespace ringmaster::coordinator
