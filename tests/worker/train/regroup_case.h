// Runs that end early: interruptions at a shard of one's choice, and several trainers that go from
// one generation to the next as a coordinator would have them do.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "common/mutex.h"
#include "tests/support/memory_link.h"
#include "tests/worker/train/fake_case.h"

namespace ringmaster::worker {

inline const std::vector<uint32_t> kAllShards = {0, 1, 2, 3};  // of SmallSpec

// Calls a function when a training shard begins: when `shards` more have begun, on the thread of
// the core that computes it. Thread-safe.
class Interrupt {
 public:
  void Arm(size_t shards, std::function<void()> then) {
    MutexLock lock(mu_);
    left_ = shards;
    then_ = std::move(then);
  }
  void Hit() {
    std::function<void()> then;
    {
      MutexLock lock(mu_);
      if (left_ == 0 || --left_ > 0) return;
      then = std::exchange(then_, {});
    }
    if (then) then();
  }
  FakeHooks Hooks(FakeHooks hooks = {}) {
    hooks.before_shard = [this](const ShardInput&) {
      Hit();
      return absl::OkStatus();
    };
    return hooks;
  }

 private:
  Mutex mu_;
  size_t left_ ABSL_GUARDED_BY(mu_) = 0;
  std::function<void()> then_ ABSL_GUARDED_BY(mu_);
};

// One member of a generation.
struct Place {
  Trainer* trainer = nullptr;
  std::vector<uint32_t> shards;
  std::stop_token stop = {};
  std::stop_token at_boundary = {};
  Observer* observer = nullptr;
};

struct Generation {
  uint64_t counter = 1;
  std::vector<Place> ring = {};
  bool evaluated = false;
  std::shared_ptr<CheckpointSink> sink;
};

// Runs all members; `links` has one for each. A member that ends before its time leaves the ring.
inline std::vector<RunResult> RunGeneration(const Generation& generation, ring::MemoryRing* links) {
  const auto size = static_cast<uint32_t>(generation.ring.size());
  std::vector<RunResult> results(size);
  std::vector<std::jthread> threads;
  for (uint32_t rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      const Place& place = generation.ring[rank];
      const Assignment assignment{.generation = {1, generation.counter},
                                  .position = {.rank = rank, .size = size},
                                  .shards = place.shards,
                                  .start_step = place.trainer->applied(),
                                  .evaluated = generation.evaluated};
      results[rank] = place.trainer->Run(assignment,
                                         {size > 1 ? links->link(rank) : nullptr, generation.sink,
                                          place.observer, place.at_boundary},
                                         place.stop);
      links->Leave(rank);
    });
  }
  threads.clear();
  return results;
}

inline std::vector<RunResult> RunGeneration(const Generation& generation) {
  ring::MemoryRing links(static_cast<uint32_t>(generation.ring.size()));
  return RunGeneration(generation, &links);
}

}  // namespace ringmaster::worker
