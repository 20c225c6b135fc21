// The life of a plugin's process: loads the plugin that the daemon names, then serves lanes until
// the daemon closes the control socket. Owned by the program's main; its thread is the main one.
// All that a plugin can break, it breaks here and not in the daemon.
#pragma once

#include <memory>
#include <vector>

#include "common/files.h"
#include "worker/backend/pjrt/host_lane.h"

namespace ringmaster::pjrt {

class Host {
 public:
  explicit Host(OwnedFile control) : control_(std::move(control)) {}

  // Returns the program's exit code. Does not return while a lane is in the plugin.
  int Serve();

 private:
  // nullptr: the daemon is gone or was told why the plugin cannot be had.
  [[nodiscard]] std::unique_ptr<Plugin> Start();
  void OpenLane(OwnedFile socket, const HostLane::Shared& shared);
  // Whether all lanes end in time.
  [[nodiscard]] bool CloseLanes();

  const OwnedFile control_;
  std::vector<std::unique_ptr<HostLane>> lanes_;
};

}  // namespace ringmaster::pjrt
