// What one event led to: actions in order, and in words why. A value.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "worker/logic/action.h"

namespace ringmaster::worker {

struct Decision {
  std::vector<Action> actions;
  std::string reason;
};

inline Decision Nothing(std::string reason) { return {{}, std::move(reason)}; }

inline Decision Do(Action action, std::string reason) {
  Decision decision;
  decision.actions.push_back(std::move(action));
  decision.reason = std::move(reason);
  return decision;
}

}  // namespace ringmaster::worker
