// A state from one trainer to another that follows, without a network.
#pragma once

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "tests/worker/train/regroup_case.h"
#include "worker/train/follower.h"

namespace ringmaster::worker {

// Called behind the first piece; an error ends the feed.
struct FeedHooks {
  // Before a piece is read; of which step the one before was.
  std::function<Status(uint64_t step)> before_read = {};
  std::function<Status(size_t number, uint64_t step, std::span<uint8_t> bytes)> before_write = {};
};

// All pieces of a source, as a network may have them: in two slices.
inline Status SendAll(StateSource* source, StateSink* to, const FeedHooks& hooks) {
  const StateFacts& facts = source->facts();
  RING_RETURN_IF_ERROR(to->Begin(facts));
  size_t number = 0;
  uint64_t step = facts.step;
  for (uint64_t at = 0; at < facts.bytes; ++number) {
    std::vector<uint8_t> bytes(source->PieceEnd(at) - at);
    if (hooks.before_read && number > 0) RING_RETURN_IF_ERROR(hooks.before_read(step));
    RING_ASSIGN_OR_RETURN(step, source->Read(at, bytes));
    if (hooks.before_write && number > 0) {
      RING_RETURN_IF_ERROR(hooks.before_write(number, step, bytes));
    }
    const size_t cut = bytes.size() / 3;
    const std::span<const uint8_t> all(bytes);
    RING_RETURN_IF_ERROR(to->Write(at, step, all.first(cut)));
    RING_RETURN_IF_ERROR(to->Write(at + cut, step, all.subspan(cut)));
    at += bytes.size();
  }
  return absl::OkStatus();
}

// Brings S(applied) of `source` and what becomes of it, on a thread of its own, as long as it
// lives.
class Feed {
 public:
  Feed(const Trainer* source, std::shared_ptr<Follower> to, FeedHooks hooks = {})
      : to_(std::move(to)), hooks_(std::move(hooks)), thread_([this, source] {
          const auto opened = source->Open(source->applied(), Follows::kYes);
          to_->End(opened.ok() ? SendAll(opened->get(), to_.get(), hooks_) : opened.status());
        }) {}
  ~Feed() { to_->GiveUp(); }
  Feed(const Feed&) = delete;
  Feed& operator=(const Feed&) = delete;

 private:
  const std::shared_ptr<Follower> to_;
  const FeedHooks hooks_;
  std::jthread thread_;  // last: it uses the rest
};

// Makes `joiner` follow `source`, whose state it lacks.
inline StatusOr<std::unique_ptr<Feed>> FollowFrom(const Trainer& source, Trainer* joiner,
                                                  FeedHooks hooks = {}) {
  const std::shared_ptr<Follower> follower = joiner->Follow("source");
  auto feed = std::make_unique<Feed>(&source, follower, std::move(hooks));
  RING_RETURN_IF_ERROR(follower->TakeUp(source.digest(), [] { return false; }));
  return feed;
}

}  // namespace ringmaster::worker
