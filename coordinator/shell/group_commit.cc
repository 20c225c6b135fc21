#include "coordinator/shell/group_commit.h"

#include <iterator>
#include <utility>

#include "common/planted_bug.h"

namespace ringmaster::coordinator {

void GroupCommit::Write(StoreWrite write, Stored stored) {
  entries_.push_back({std::move(write), std::move(stored), nullptr, ""});
}

void GroupCommit::Then(std::function<void()> effect) {
  entries_.push_back({WriteNothing(), nullptr, std::move(effect), ""});
  newest_.clear();
}

void GroupCommit::ThenShow(const std::string& what, std::function<void()> effect) {
  if (const auto older = newest_.find(what); older != newest_.end()) entries_.erase(older->second);
  entries_.push_back({WriteNothing(), nullptr, std::move(effect), what});
  newest_[what] = std::prev(entries_.end());
}

GroupCommit::Entry GroupCommit::TakeFirst() {
  const auto newest = newest_.find(entries_.front().shows);
  if (newest != newest_.end() && newest->second == entries_.begin()) newest_.erase(newest);
  Entry first = std::move(entries_.front());
  entries_.pop_front();
  return first;
}

// Entries stay where they are in memory while others are added behind them.
bool GroupCommit::Begin() {
  if (begun_ > 0 || collecting_ > 0 || entries_.empty()) return begun_ > 0;
  std::vector<const StoreWrite*> writes;
  for (const Entry& entry : entries_) {
    if (entry.stored) writes.push_back(&entry.write);
  }
  begun_ = entries_.size();
  if (!committer_->Begin(std::move(writes))) begun_ = 0;  // the next event tries again
  if (begun_ > 0) newest_.clear();
  return begun_ > 0;
}

void GroupCommit::Ended(const std::vector<Status>& statuses) {
  size_t written = 0;
  for (collecting_ = std::exchange(begun_, 0); collecting_ > 0; --collecting_) {
    const Entry entry = TakeFirst();
    if (entry.stored) {
      const Status& status = statuses[written++];
      entry.stored(RING_PLANTED(kTrustsCommits) ? absl::OkStatus() : status, entry.write);
    } else {
      entry.effect();
    }
  }
  // What was added meanwhile waits for no write before the first one of it.
  while (!entries_.empty() && !entries_.front().stored) {
    const Entry entry = TakeFirst();
    entry.effect();
  }
  Begin();
}

}  // namespace ringmaster::coordinator
