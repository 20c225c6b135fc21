#include "common/bounded_queue.h"

#include <catch2/catch.hpp>

#include <memory>
#include <thread>
#include <vector>

namespace ringmaster {
namespace {

using std::chrono::steady_clock;

steady_clock::time_point Now() { return steady_clock::now(); }
steady_clock::time_point Soon() { return Now() + std::chrono::seconds(30); }

TEST_CASE("Bounded queue: first in, first out, up to its limit") {
  BoundedQueue<int> queue(2);
  CHECK(queue.TryPush(1));
  CHECK(queue.Push(2, Now()));
  CHECK_FALSE(queue.TryPush(3));
  CHECK_FALSE(queue.Push(3, Now()));
  CHECK(queue.Pop(Now()) == 1);
  CHECK(queue.TryPush(3));
  CHECK(queue.Pop(Now()) == 2);
  CHECK(queue.Pop(Now()) == 3);
  CHECK(queue.Pop(Now()) == std::nullopt);
}

TEST_CASE("Bounded queue: closed, it drains, then gives nothing and takes nothing") {
  BoundedQueue<std::unique_ptr<int>> queue(2);
  CHECK(queue.TryPush(std::make_unique<int>(7)));
  CHECK_FALSE(queue.closed());
  queue.Close();
  CHECK(queue.closed());
  CHECK_FALSE(queue.TryPush(std::make_unique<int>(8)));
  CHECK_FALSE(queue.Push(std::make_unique<int>(8), Soon()));
  const auto left = queue.Pop(Soon());
  REQUIRE(left.has_value());
  CHECK(**left == 7);
  CHECK_FALSE(queue.Pop(Soon()).has_value());
}

TEST_CASE("Bounded queue: Close wakes whoever waits, for room and for items") {
  BoundedQueue<int> full(1), empty(1);
  CHECK(full.TryPush(1));
  bool pushed = true, popped = true;
  {
    const std::jthread pusher([&] { pushed = full.Push(2, Soon()); });
    const std::jthread popper([&] { popped = empty.Pop(Soon()).has_value(); });
    full.Close();
    empty.Close();
  }
  CHECK_FALSE(pushed);
  CHECK_FALSE(popped);
}

TEST_CASE("Bounded queue: nothing is lost or doubled between threads") {
  constexpr int kItems = 2000;
  BoundedQueue<int> queue(3);
  std::vector<int> got;
  {
    const std::jthread producer([&] {
      for (int i = 0; i < kItems && queue.Push(i, Soon()); ++i) {
      }
      queue.Close();
    });
    while (const auto item = queue.Pop(Soon())) got.push_back(*item);
  }
  REQUIRE(got.size() == kItems);
  for (int i = 0; i < kItems; ++i) REQUIRE(got[static_cast<size_t>(i)] == i);
}

}  // namespace
}  // namespace ringmaster
