// One connection of the daemon to a plugin's process: programs bound on it, the memory that it
// shares with a core of the daemon, the weights on the devices that it shares with other lanes, and
// the thread that serves its requests one after the other. Owned by Host. Whatever comes that is no
// proper request ends the process.
#pragma once

#include <absl/base/thread_annotations.h>

#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "common/files.h"
#include "common/mutex.h"
#include "worker/backend/pjrt/compile_cache.h"
#include "worker/backend/pjrt/host_message.h"
#include "worker/backend/pjrt/plugin.h"
#include "worker/backend/pjrt/protocol.h"
#include "worker/process/shared_memory.h"

namespace ringmaster::pjrt {

// The next message of a socket, however long it takes to come; OK and nothing once it is closed.
// Ends the process, with a line on stderr, where what comes is none.
[[nodiscard]] std::unique_ptr<HostMessage> NextRequest(int socket);
[[noreturn]] void EndMalformed(const Status& status);
// An error on its way to the daemon; compilers have long ones.
[[nodiscard]] ErrorReply ToReply(const Status& error);

// The weights of one job on the devices: copied to each of them once after they changed, by the
// first run there that needs them, and shared by all programs that are bound with them.
// Thread-safe. It never changes the memory that it reads; the daemon does, while nothing runs.
class ResidentWeights {
 public:
  // By tensor of the table; null where it is of another group.
  using Buffers = std::vector<DeviceBuffer>;

  // `plugin` must outlive it; the table has been checked against the memory.
  ResidentWeights(const Plugin& plugin, WeightsTable table, SharedMemory memory)
      : plugin_(plugin), table_(std::move(table)), memory_(std::move(memory)) {}

  [[nodiscard]] const WeightsTable& table() const { return table_; }
  // A group on a device, of this version: copied there unless it is already.
  [[nodiscard]] StatusOr<std::shared_ptr<const Buffers>> On(size_t device, WeightGroup group,
                                                            uint64_t version);

 private:
  struct Copy {
    Mutex mu;  // held while it is copied
    uint64_t version ABSL_GUARDED_BY(mu) = 0;
    std::shared_ptr<const Buffers> buffers ABSL_GUARDED_BY(mu);
  };

  [[nodiscard]] Copy& Find(size_t device, WeightGroup group);
  [[nodiscard]] StatusOr<std::shared_ptr<const Buffers>> Upload(size_t device, WeightGroup group);

  const Plugin& plugin_;
  const WeightsTable table_;
  const SharedMemory memory_;
  Mutex mu_;
  std::map<std::pair<size_t, WeightGroup>, Copy> copies_ ABSL_GUARDED_BY(mu_);  // nodes stay
};

// Weights of the daemon that some lane has bound, by their id. Thread-safe.
class WeightsRegistry {
 public:
  explicit WeightsRegistry(const Plugin& plugin) : plugin_(plugin) {}
  // Those that are there, or new ones of this memory.
  [[nodiscard]] std::shared_ptr<ResidentWeights> FindOrMake(WeightsTable table,
                                                            SharedMemory memory);

 private:
  const Plugin& plugin_;
  Mutex mu_;
  std::map<uint64_t, std::weak_ptr<ResidentWeights>> weights_ ABSL_GUARDED_BY(mu_);
};

class HostLane {
 public:
  // All of them must outlive it.
  struct Shared {
    const Plugin* plugin;
    CompileCache* cache;
    WeightsRegistry* weights;
  };
  HostLane(Shared shared, OwnedFile socket);
  HostLane(const HostLane&) = delete;
  HostLane& operator=(const HostLane&) = delete;

  // Whether the daemon has closed it; then it can go without delay. Any thread.
  [[nodiscard]] bool done() const;
  // Until it is; false at the deadline. Any thread.
  [[nodiscard]] bool WaitUntilDone(std::chrono::steady_clock::time_point deadline) const;
  // As if the daemon had. Any thread.
  void Close();

 private:
  struct Bound {
    size_t device = 0;
    std::shared_ptr<const Compiled> compiled;
    std::shared_ptr<ResidentWeights> weights;
    std::vector<BoundArgument> arguments;
    std::vector<Place> results;
  };

  void Serve();
  // A request's reply; DATA_LOSS: it is none.
  [[nodiscard]] Status Answer(HostMessage* request);
  [[nodiscard]] Status Reply(MessageKind kind, const std::string& body);
  [[nodiscard]] Status ReplyError(const Status& error);

  [[nodiscard]] Status TakeMemory(HostMessage* request);
  [[nodiscard]] Status Bind(HostMessage* request);
  [[nodiscard]] Status Run(const HostMessage& request);
  [[nodiscard]] Status Release(const HostMessage& request);
  // What of a run may fail without anybody's mistake.
  [[nodiscard]] Status RunProgram(const Bound& bound, const RunRequest& request);
  [[nodiscard]] Status CheckRoom(const Bound& bound) const;

  const Shared shared_;
  const OwnedFile socket_;
  mutable Mutex mu_;
  mutable Condition changed_;
  bool done_ ABSL_GUARDED_BY(mu_) = false;
  // Its thread alone.
  SharedMemory memory_;
  std::map<uint32_t, Bound> programs_;
  uint32_t next_program_ = 1;

  std::jthread thread_;  // pjrt-lane; last, so that all else is there as long as it runs
};

}  // namespace ringmaster::pjrt
