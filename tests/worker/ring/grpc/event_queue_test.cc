#include "worker/ring/grpc/event_queue.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <future>
#include <thread>

#include "tests/worker/ring/grpc/lone_queue.h"

namespace ringmaster::ring {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Clock = std::chrono::steady_clock;

// Its events are alarms, of which an owner says when.
struct Queued : LoneQueue {
  using LoneQueue::LoneQueue;
  ~Queued() { Stop(); }
  void Ring() { alarm.Set(events->grpc(), std::chrono::system_clock::now(), &rung); }

  std::promise<std::thread::id> where;
  EventQueue::Event rung{[this](bool /*ok*/) { where.set_value(std::this_thread::get_id()); }};
  grpc::Alarm alarm;
};

Clock::time_point Patience() { return Clock::now() + seconds(20); }

// Polls, like a ring thread, until the event was dealt with.
bool PollFor(EventQueue* events, std::future<std::thread::id>* where) {
  while (where->wait_for(seconds(0)) != std::future_status::ready) {
    if (!events->Poll(Patience()) && Clock::now() >= Patience()) return false;
  }
  return true;
}

// Until there is nothing; from then on the queue is this thread's.
void Drain(EventQueue* events, Clock::time_point deadline = Clock::time_point::min()) {
  while (events->Poll(deadline)) {
  }
}

}  // namespace

TEST_CASE("EventQueue: its own thread deals with events while nobody polls") {
  Queued queued;
  auto where = queued.where.get_future();
  queued.Ring();
  CHECK(where.get() != std::this_thread::get_id());
}

TEST_CASE("EventQueue: who polls deals with events itself, until it gives the queue back") {
  Queued queued;
  Drain(queued.events.get());
  auto first = queued.where.get_future();
  queued.Ring();
  REQUIRE(PollFor(queued.events.get(), &first));
  CHECK(first.get() == std::this_thread::get_id());

  queued.where = {};
  auto second = queued.where.get_future();
  queued.events->GiveBack();
  queued.Ring();
  CHECK(second.get() != std::this_thread::get_id());

  queued.where = {};
  auto third = queued.where.get_future();
  queued.Ring();
  CHECK(PollFor(queued.events.get(), &third));  // on either, whichever was quicker
}

TEST_CASE("EventQueue: who stays away from the queue loses it, and may have it again") {
  Queued queued({.idle = milliseconds(10)});
  Drain(queued.events.get());
  auto where = queued.where.get_future();
  queued.Ring();
  CHECK(where.get() != std::this_thread::get_id());  // nothing here polls
  Drain(queued.events.get());
}

TEST_CASE("EventQueue: Wake ends a Poll that waits, and is not lost where none does") {
  Queued queued;
  std::atomic<bool> woken = false;
  std::jthread poller([&]() {
    while (!woken) queued.events->Poll(Patience());
  });
  woken = true;
  const auto begin = Clock::now();
  queued.events->Wake();
  poller.join();
  for (int i = 0; i < 1'000; ++i) queued.events->Wake();
  queued.events->Poll(Clock::now() + milliseconds(1));
  CHECK(Clock::now() - begin < seconds(10));
}

TEST_CASE("EventQueue: a Poll comes back at its deadline, and at once after Stop") {
  Queued queued;
  const auto begin = Clock::now();
  Drain(queued.events.get(), begin + milliseconds(20));
  CHECK(Clock::now() - begin >= milliseconds(20));
  queued.Stop();
  CHECK_FALSE(queued.events->Poll(Patience()));
  queued.events->Wake();
  queued.events->GiveBack();
  CHECK(Clock::now() - begin < seconds(10));
}

TEST_CASE("EventQueue: Stop ends a Poll that waits, and deals with what is left") {
  Queued queued;
  queued.alarm.Set(queued.events->grpc(),
                   std::chrono::system_clock::now() + std::chrono::milliseconds(50), &queued.rung);
  auto where = queued.where.get_future();
  std::jthread poller([&]() {
    while (queued.events->Poll(Patience())) {
    }
  });
  queued.Stop();
  CHECK(where.wait_for(seconds(0)) == std::future_status::ready);
}

}  // namespace ringmaster::ring
