// What this host computes on, and what its devices say of themselves.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "common/status.h"
#include "ringmaster/v1/fleet.pb.h"
#include "worker/backend/backend.h"
#include "worker/flags.h"

namespace ringmaster::worker {

// What this host computes on: the backend that --device names, and `ringworker devices`, which says
// what it has before any worker starts. Thread-safe (free functions).

// FAILED_PRECONDITION: there is no device of this index. Logs what it is unless it is a CPU.
[[nodiscard]] StatusOr<std::unique_ptr<Backend>> OpenBackend(const DeviceChoice& device);

// One line of JSON: `device` (cpu, cuda or pjrt), `backend`, `device_model`, `devices`,
// `memory_bytes`, which is what one of them has for its cores: a GPU's memory, or the host's
// (common/amount.h), and whether they are `exclusive` to one worker at a time.
[[nodiscard]] std::string DescribeDevices(const Backend& backend);

// `ringworker devices [--device D]`: prints that line; the exit code.
[[nodiscard]] int DevicesMain(int argc, const char* const* argv);

// What the devices and the host of this worker say of themselves, to the coordinator, from a thread
// of its own: after each Attached, and every few seconds from then on. Thread-safe: anyone switches
// it on and off. A reading may hang as long as a sick driver does, and nobody waits for it, not
// even Stop.
class DeviceReporter {
 public:
  using Read = std::function<std::vector<v1::DeviceFigures>()>;
  using ReadHost = std::function<v1::HostFigures()>;
  using Send = std::function<void(v1::WorkerMessage)>;
  struct Pace {
    std::chrono::milliseconds interval{5'000};
    std::chrono::milliseconds patience{1'000};  // of Stop, for a reading that hangs
  };

  // While enabled sends what `read` and `read_host`, where there is one, return, unless that is
  // empty, all on the thread. Both own what they need, because one that hangs outlives this object;
  // `send` does not block, and is never called after Stop.
  DeviceReporter(Read read, Send send, Pace pace, ReadHost read_host = nullptr);
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

// Reads this host's figures: its clock, the disks of both folders, and the interface of `address`.
[[nodiscard]] DeviceReporter::ReadHost HostFiguresOf(std::string state_dir, std::string data_cache,
                                                     const std::string& address);

// Reads the figures of those of the backend's devices that cores are on.
[[nodiscard]] DeviceReporter::Read FiguresOf(std::shared_ptr<Backend> backend,
                                             std::set<uint32_t> devices);

}  // namespace ringmaster::worker
