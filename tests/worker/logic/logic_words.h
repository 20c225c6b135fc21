// What stories about WorkerLogic are told with: messages of a coordinator, and a logic that came so
// far. Main thread only.
#pragma once

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "worker/logic/worker_logic.h"

namespace ringmaster::worker {

using Time = WorkerLogic::Time;
inline constexpr Time kNow{};

inline v1::Attach Self() {
  v1::Attach self;
  self.set_name("w1");
  self.set_incarnation("ab");
  return self;
}

inline FromCoordinator Attached(uint64_t term, bool resume = false) {
  FromCoordinator event;
  event.message.mutable_attached()->set_term(term);
  event.message.mutable_attached()->set_resume(resume);
  return event;
}

inline FromCoordinator Inspect(const std::string& job) {
  FromCoordinator event;
  event.message.mutable_inspect()->set_job_id(job);
  return event;
}

inline FromCoordinator Prepare(const std::string& job) {
  FromCoordinator event;
  event.message.mutable_prepare()->set_job_id(job);
  return event;
}

enum class Boundary { kNo, kYes };

inline FromCoordinator Fence(const std::string& job, uint64_t counter,
                             Boundary boundary = Boundary::kNo) {
  FromCoordinator event;
  v1::Fence& fence = *event.message.mutable_fence();
  fence.set_job_id(job);
  fence.mutable_generation()->set_term(3);
  fence.mutable_generation()->set_counter(counter);
  fence.set_at_boundary(boundary == Boundary::kYes);
  return event;
}

inline FromCoordinator Start(const std::string& job, uint64_t counter, uint64_t step) {
  FromCoordinator event;
  v1::Start& start = *event.message.mutable_start();
  start.set_job_id(job);
  start.mutable_generation()->set_term(3);
  start.mutable_generation()->set_counter(counter);
  start.set_start_step(step);
  return event;
}

inline FromCoordinator Cancel(const std::string& job) {
  FromCoordinator event;
  event.message.mutable_cancel()->set_job_id(job);
  return event;
}

inline FromCoordinator Release(const std::string& job) {
  FromCoordinator event;
  event.message.mutable_release()->set_job_id(job);
  return event;
}

inline RunEnded Ended(Outcome outcome, uint64_t applied) {
  RunEnded event;
  event.job = JobId("j1");
  event.generation = {3, 1};
  event.outcome = outcome;
  event.applied = applied;
  event.digest = "d" + std::to_string(applied);
  return event;
}

template <typename T>
const T* Find(const Decision& decision) {
  for (const Action& action : decision.actions) {
    if (const T* found = std::get_if<T>(&action)) return found;
  }
  return nullptr;
}

inline const v1::WorkerMessage& Sent(const Decision& decision) {
  const SendMessage* send = Find<SendMessage>(decision);
  REQUIRE(send != nullptr);
  return send->message;
}

inline WorkerLogic AttachedLogic() {
  WorkerLogic logic(Self(), 0);
  (void)logic.Step(Connected{}, kNow);
  (void)logic.Step(Attached(3), kNow);
  (void)logic.Step(TermStored{3, ""}, kNow);
  return logic;
}

inline WorkerLogic PreparedLogic() {
  WorkerLogic logic = AttachedLogic();
  (void)logic.Step(Inspect("j1"), kNow);
  (void)logic.Step(InspectDone{JobId("j1"), {}, ""}, kNow);
  (void)logic.Step(Prepare("j1"), kNow);
  (void)logic.Step(PrepareDone{JobId("j1"), {"aa"}, "d0", ""}, kNow);
  return logic;
}

inline WorkerLogic RunningLogic() {
  WorkerLogic logic = PreparedLogic();
  (void)logic.Step(Fence("j1", 1), kNow);
  const Decision decision = logic.Step(Start("j1", 1, 0), kNow);
  REQUIRE(Find<RunJob>(decision) != nullptr);
  return logic;
}

}  // namespace ringmaster::worker
