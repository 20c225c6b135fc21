#include "common/loop.h"

#include <catch2/catch.hpp>
#include <future>
#include <vector>

namespace ringmaster {
namespace {

TEST_CASE("Loop: tasks run in order on its thread, and all that were taken run before it stops") {
  Loop loop({"test", 1000, std::chrono::seconds(60), nullptr});
  std::vector<int> order;
  bool in_loop = true;
  loop.Start();
  for (int i = 0; i < 1000; ++i) {
    if (!loop.Post([&, i] {
          order.push_back(i);
          in_loop = in_loop && loop.InLoop();
        })) {
      break;
    }
  }
  loop.Stop();
  CHECK_FALSE(order.empty());
  for (size_t i = 0; i < order.size(); ++i) REQUIRE(order[i] == static_cast<int>(i));
  CHECK(in_loop);
  CHECK_FALSE(loop.InLoop());
  CHECK_FALSE(loop.Post([] {}));
}

TEST_CASE("Loop: a full queue refuses") {
  Loop loop({"test", 2, std::chrono::seconds(60), nullptr});
  CHECK(loop.Post([] {}));
  CHECK(loop.Post([] {}));
  CHECK_FALSE(loop.Post([] {}));
}

TEST_CASE("Loop: it ticks while nothing is posted") {
  std::promise<void> promise;
  int ticks = 0;
  Loop loop({"test", 2, std::chrono::milliseconds(1), [&] {
               if (++ticks == 3) promise.set_value();
             }});
  loop.Start();
  CHECK(promise.get_future().wait_for(std::chrono::seconds(10)) == std::future_status::ready);
  loop.Stop();
}

}  // namespace
}  // namespace ringmaster
