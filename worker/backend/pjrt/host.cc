#include "worker/backend/pjrt/host.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string>
#include <utility>

namespace ringmaster::pjrt {
namespace {

using std::chrono::steady_clock;

constexpr std::chrono::seconds kReplyTime{60};
constexpr std::chrono::seconds kLanesTime{2};  // to end what they are in

void Reply(int control, MessageKind kind, const std::string& body) {
  // A daemon that takes no reply closes the socket, which the next read sees.
  (void)Send(control, kind, body, {}, steady_clock::now() + kReplyTime);
}

// The daemon has what comes here in its log.
void Say(const std::string& line) {
  std::fprintf(stderr, "ringmaster_pjrt_host: %s\n", line.c_str());
}

}  // namespace

std::unique_ptr<Plugin> Host::Start() {
  const auto message = NextRequest(control_.get());
  if (message == nullptr) return nullptr;
  if (message->kind != MessageKind::kStart) {
    EndMalformed(
        DataLoss("message {} before the plugin was named", static_cast<int>(message->kind)));
  }
  const auto request = Decode<StartRequest>(*message);
  if (!request.ok()) EndMalformed(request.status());
  auto plugin = Plugin::Load(request->plugin, request->client);
  if (plugin.ok()) {
    Reply(control_.get(), MessageKind::kStarted, Encode((*plugin)->facts()));
    return *std::move(plugin);
  }
  Reply(control_.get(), MessageKind::kError, Encode(ToReply(plugin.status())));
  return nullptr;
}

void Host::OpenLane(OwnedFile socket, const HostLane::Shared& shared) {
  std::erase_if(lanes_, [](const auto& lane) { return lane->done(); });
  lanes_.push_back(std::make_unique<HostLane>(shared, std::move(socket)));
}

bool Host::CloseLanes() {
  const auto deadline = steady_clock::now() + kLanesTime;
  for (const auto& lane : lanes_) lane->Close();
  const bool all_done =
      std::ranges::all_of(lanes_, [&](const auto& lane) { return lane->WaitUntilDone(deadline); });
  if (!all_done) return false;
  lanes_.clear();
  return true;
}

int Host::Serve() {
  const std::unique_ptr<Plugin> plugin = Start();
  if (plugin == nullptr) return 0;
  CompileCache cache(*plugin, Say);
  WeightsRegistry weights(*plugin);
  const HostLane::Shared shared = {plugin.get(), &cache, &weights};
  while (const auto message = NextRequest(control_.get())) {
    if (message->kind != MessageKind::kOpenLane || message->files.size() != 1) {
      EndMalformed(DataLoss("message {} is no request of the control socket",
                            static_cast<int>(message->kind)));
    }
    OpenLane(std::move(message->files[0]), shared);
  }
  // Nobody waits for what a lane still computes; all else is left in order, also the plugin's lock
  // on its devices.
  if (!CloseLanes()) _exit(0);
  return 0;
}

}  // namespace ringmaster::pjrt
