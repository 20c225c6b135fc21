// What the devices of this worker say of themselves, to the coordinator, from a thread of its own:
// after each Attached, and every few seconds from then on. Thread-safe: anyone switches it on and
// off. A reading may hang as long as a sick driver does, and nobody waits for it, not even Stop.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <set>
#include <thread>
#include <vector>

#include "ringmaster/v1/fleet.pb.h"
#include "worker/backend/backend.h"

namespace ringmaster::worker {

class DeviceReporter {
 public:
  using Read = std::function<std::vector<v1::DeviceFigures>()>;
  using Send = std::function<void(v1::WorkerMessage)>;
  struct Pace {
    std::chrono::milliseconds interval{5'000};
    std::chrono::milliseconds patience{1'000};  // of Stop, for a reading that hangs
  };

  // While enabled send(read()), unless that is empty, both on the thread. `read` owns what it
  // needs, because one that hangs outlives this object; `send` does not block, and is never called
  // after Stop.
  DeviceReporter(Read read, Send send, Pace pace);
  ~DeviceReporter();

  void Start();
  // Idempotent. The thread of a reading that hangs is left behind, with the reading.
  void Stop();
  // Only between Attached and the end of a session; each beginning has a report at once.
  void Enable(bool enabled);

 private:
  struct Shared;
  static void Run(Shared& shared);

  const std::shared_ptr<Shared> shared_;  // with the thread
  const std::chrono::milliseconds patience_;
  std::jthread thread_;  // "devices"
};

// Reads the figures of those of the backend's devices that cores are on.
[[nodiscard]] DeviceReporter::Read FiguresOf(std::shared_ptr<Backend> backend,
                                             std::set<uint32_t> devices);

}  // namespace ringmaster::worker
