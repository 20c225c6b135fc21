// The people: submit jobs and try again with the same key until they are acknowledged, cancel,
// drain. Owned by the Cluster. It knows what it was promised; what became of it is asked at the
// end.
#pragma once

#include <functional>
#include <map>
#include <string>

#include "coordinator/logic/action.h"
#include "coordinator/logic/event.h"
#include "tests/sim/network.h"
#include "tests/sim/plan.h"

namespace ringmaster::sim {

struct Cluster;

class Client {
 public:
  explicit Client(Cluster* cluster);

  struct Promise {
    PlannedJob job;
    std::string id;          // empty: not acknowledged
    bool cancelled = false;  // asked for, perhaps in vain
    uint64_t answers = 0;
  };

  void Submit(const PlannedJob& job);
  // Asks the same again; the answer must be the same.
  void SubmitAgain(uint64_t which);
  void Cancel(uint64_t which);
  void Drain(const std::string& worker, bool resume);
  // An older copy of the store was put back: jobs that it does not know are submitted anew, and
  // drains that were ended are ended again.
  void OnStoreRestored();

  [[nodiscard]] const std::map<std::string, Promise>& promises() const { return promises_; }

 private:
  using OnReply = std::function<void(const coordinator::Reply& reply)>;
  // Asks until there is an answer other than UNAVAILABLE, as long as `wanted`.
  void Ask(
      coordinator::Event event, OnReply then, std::function<bool()> wanted = [] { return true; });
  void SendSubmit(const std::string& key);

  Cluster* const cluster_;
  const LifePtr life_;
  std::map<std::string, Promise> promises_;  // by key
  struct Wish {
    uint64_t turn = 0;
    bool resume = false;
  };
  std::map<std::string, Wish> wishes_;  // a drain, or its end: the newest of each worker
};

}  // namespace ringmaster::sim
