// Carries out the faults of a plan: at their moments, or at the n-th occurrence of a point in the
// protocol. Owned by the Cluster. After Heal it does nothing any more.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "tests/sim/plan.h"

namespace ringmaster::sim {

struct Cluster;

class Faults {
 public:
  explicit Faults(Cluster* cluster) : cluster_(cluster) {}

  void Arm();
  // The protocol is at this point, on this host (or about it).
  void At(Point point, int host);

 private:
  void Strike(const Fault& fault, int own_host);
  void StrikeWorker(const Fault& fault, int host);
  void StrikeLink(const Fault& fault, int host);
  void StrikeCoordinator(const Fault& fault, int host);
  void StrikeClients(const Fault& fault, int host);
  void KillFor(int host, bool silent, Time lasts);
  void RestoreOlderStore(Time after);
  void DamageCheckpoint(uint64_t which);
  // A worker that lives; 0 when there is none.
  [[nodiscard]] int Pick(uint64_t target) const;
  [[nodiscard]] int Other(int host, uint64_t target) const;

  Cluster* const cluster_;
  std::map<Point, uint64_t> seen_;
  Time disk_full_until_{0}, failing_until_{0};
};

}  // namespace ringmaster::sim
