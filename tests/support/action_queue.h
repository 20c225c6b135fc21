// Carries actions out in the order in which they were decided, also when carrying one out leads to
// more of them: for tests whose store writes at once. Thread-compatible: it belongs to whoever
// feeds the logic.
#pragma once

#include <deque>
#include <utility>

#include "coordinator/logic/action.h"

namespace ringmaster::testing {

class ActionQueue {
 public:
  // All of `actions` through `act`, and all that `act` adds by calling this meanwhile, after them.
  // Inside of `act` it returns at once.
  template <typename Act>
  void CarryOut(coordinator::Actions actions, const Act& act) {
    for (coordinator::Action& action : actions) waiting_.push_back(std::move(action));
    if (std::exchange(busy_, true)) return;
    while (!waiting_.empty()) {
      const coordinator::Action action = std::move(waiting_.front());
      waiting_.pop_front();
      act(action);
    }
    busy_ = false;
  }

 private:
  std::deque<coordinator::Action> waiting_;
  bool busy_ = false;
};

}  // namespace ringmaster::testing
