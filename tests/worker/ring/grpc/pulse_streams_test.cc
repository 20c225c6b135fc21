#include "worker/ring/grpc/pulse_streams.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <thread>
#include <vector>

namespace ringmaster::ring {

TEST_CASE("CallQueue: calls come in order, one at a time, and may add and run others") {
  CallQueue calls;
  std::vector<int> order;
  Mutex mu;  // as a stream's own: a call takes it
  const auto call = [&](int number) {
    MutexLock lock(mu);
    order.push_back(number);
  };
  {
    MutexLock lock(mu);
    calls.Add([&]() {
      call(1);
      calls.Add([&]() { call(3); });
      calls.Run(nullptr);  // leaves it to the one that runs
      call(11);
    });
    calls.Add([&]() { call(2); });
  }
  CHECK(order.empty());
  calls.Run(nullptr);
  CHECK(order == std::vector<int>{1, 11, 2, 3});
}

TEST_CASE("CallQueue: of many threads none is forgotten, and no two call at once") {
  CallQueue calls;
  constexpr int kThreads = 4, kCalls = 2'000;
  int count = 0;  // without a lock: TSan sees whether calls overlap
  std::atomic<int> inside = 0, overlaps = 0;
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < kThreads; ++i) {
      threads.emplace_back([&]() {
        for (int j = 0; j < kCalls; ++j) {
          calls.Add([&]() {
            if (inside.fetch_add(1) != 0) ++overlaps;
            ++count;
            inside.fetch_sub(1);
          });
          calls.Run(nullptr);
        }
      });
    }
  }
  CHECK(count == kThreads * kCalls);
  CHECK(overlaps == 0);
}

TEST_CASE("CallQueue: the last call may be what its owner lived for") {
  struct Owner : std::enable_shared_from_this<Owner> {
    CallQueue calls;
    std::shared_ptr<Owner> self;
  };
  auto owner = std::make_shared<Owner>();
  Owner* const raw = owner.get();
  raw->self = std::move(owner);
  const std::weak_ptr<Owner> alive = raw->self;
  raw->calls.Add([raw]() { raw->self.reset(); });
  raw->calls.Run(raw->shared_from_this());
  CHECK(alive.expired());
}

}  // namespace ringmaster::ring
