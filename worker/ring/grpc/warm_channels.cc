#include "worker/ring/grpc/warm_channels.h"

#include <grpc/support/time.h>
#include <grpcpp/completion_queue.h>
#include <pthread.h>
#include <spdlog/spdlog.h>

#include <algorithm>

#include "common/text.h"

namespace ringmaster::ring {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

// Of a wait for all of them. As long as it lasts this thread reads a channel that was taken, too;
// pings are answered within it.
constexpr milliseconds kRound{100};

bool IsReady(const std::shared_ptr<grpc::Channel>& channel) {
  return channel != nullptr && channel->GetState(false) == GRPC_CHANNEL_READY;
}

bool IsBeingMade(const std::shared_ptr<grpc::Channel>& channel) {
  if (channel == nullptr) return false;
  const grpc_connectivity_state state = channel->GetState(false);
  return state == GRPC_CHANNEL_IDLE || state == GRPC_CHANNEL_CONNECTING;
}

}  // namespace

void WarmChannels::Start() {
  issue_ = options_.issue();
  thread_ = std::jthread([this]() { Run(); });
  pthread_setname_np(thread_.native_handle(), "ring-warm");
}

void WarmChannels::Keep(std::vector<Peer> peers) {
  peers.resize(std::min(peers.size(), kMostPeers));
  std::vector<Kept> before;  // outlives the lock
  MutexLock lock(mu_);
  if (stopping_) return;
  before.swap(kept_);
  for (const Peer& peer : peers) {
    for (const Use use : {Use::kLink, Use::kPulse, Use::kState}) {
      const auto known = std::find_if(before.begin(), before.end(), [&](const Kept& kept) {
        return kept.peer == peer && kept.use == use;
      });
      if (known == before.end()) told_ = false;
      kept_.push_back({peer, use, known == before.end() ? nullptr : std::move(known->channel)});
    }
  }
  due_ = steady_clock::now() + options_.pause;
  changed_.NotifyAll();
}

std::shared_ptr<grpc::Channel> WarmChannels::Take(const Peer& peer, Use use) {
  std::shared_ptr<grpc::Channel> channel;  // outlives the lock
  MutexLock lock(mu_);
  const auto found = std::find_if(kept_.begin(), kept_.end(), [&](const Kept& kept) {
    return kept.peer == peer && kept.use == use;
  });
  if (found == kept_.end()) return nullptr;
  channel = std::move(found->channel);
  kept_.erase(found);
  told_ = true;  // until Keep there is nothing new to say
  return IsReady(channel) ? channel : nullptr;
}

void WarmChannels::Stop() {
  if (!thread_.joinable()) return;
  {
    MutexLock lock(mu_);
    stopping_ = true;
    changed_.NotifyAll();
  }
  thread_.join();
  std::vector<Kept> kept;  // outlives the lock
  MutexLock lock(mu_);
  kept.swap(kept_);
}

// ---- Thread "ring-warm".

void WarmChannels::Run() {
  while (Rest()) {
    DropOld();
    DialNext();
    Watch();
    Tell();
  }
}

bool WarmChannels::Rest() {
  MutexLock lock(mu_);
  while (!stopping_) {
    const TimePoint now = steady_clock::now();
    const bool any = std::any_of(kept_.begin(), kept_.end(),
                                 [](const Kept& kept) { return kept.channel != nullptr; });
    if (any || (!kept_.empty() && due_ <= now)) return true;
    const TimePoint until = kept_.empty() ? now + std::chrono::minutes(1) : due_;
    changed_.WaitUntil(mu_, until, [this, due = due_]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
      return stopping_ || due_ != due;
    });
  }
  return false;
}

void WarmChannels::DropOld() {
  std::string issue = options_.issue();
  if (issue == issue_) return;
  issue_ = std::move(issue);
  std::vector<std::shared_ptr<grpc::Channel>> old;  // outlives the lock
  MutexLock lock(mu_);
  for (Kept& kept : kept_) old.push_back(std::move(kept.channel));
  due_ = std::max(due_, steady_clock::now() + options_.settling);
  told_ = false;
}

void WarmChannels::DialNext() {
  Peer peer;
  Use use;
  {
    MutexLock lock(mu_);
    if (steady_clock::now() < due_) return;
    const auto next = std::find_if(kept_.begin(), kept_.end(),
                                   [](const Kept& kept) { return kept.channel == nullptr; });
    const bool busy = std::any_of(kept_.begin(), kept_.end(),
                                  [](const Kept& kept) { return IsBeingMade(kept.channel); });
    if (next == kept_.end() || busy) return;
    peer = next->peer;
    use = next->use;
  }
  std::shared_ptr<grpc::Channel> channel = options_.dial(peer, use);  // outlives the lock
  MutexLock lock(mu_);
  for (Kept& kept : kept_) {
    if (kept.peer == peer && kept.use == use && kept.channel == nullptr) {
      kept.channel = std::move(channel);
      return;
    }
  }
}

void WarmChannels::Watch() {
  std::vector<std::shared_ptr<grpc::Channel>> channels;
  {
    MutexLock lock(mu_);
    for (const Kept& kept : kept_) {
      if (kept.channel != nullptr) channels.push_back(kept.channel);
    }
  }
  // A queue of its own each time: with `poll` a queue goes on to read whatever was once waited for
  // there, and a channel that is taken has a reader of its own.
  grpc::CompletionQueue queue;
  const gpr_timespec deadline = gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC),
                                             gpr_time_from_millis(kRound.count(), GPR_TIMESPAN));
  for (const auto& channel : channels) {
    // One that broke, or was ended because nothing went over it, is connected again.
    channel->NotifyOnStateChange(channel->GetState(true), deadline, &queue, nullptr);
  }
  queue.Shutdown();
  void* tag = nullptr;
  bool ok = false;
  while (queue.Next(&tag, &ok)) {
  }
}

void WarmChannels::Tell() {
  std::vector<std::string> names;
  {
    MutexLock lock(mu_);
    const bool all = std::all_of(kept_.begin(), kept_.end(),
                                 [](const Kept& kept) { return IsReady(kept.channel); });
    if (told_ || !all || kept_.empty()) return;
    told_ = true;
    for (const Kept& kept : kept_) {
      if (kept.use == Use::kLink) names.push_back(OneLine(kept.peer.name, kMaxNameText));
    }
  }
  if (names.empty()) return;
  spdlog::info("next successors are connected already: {}", fmt::join(names, " "));
}

}  // namespace ringmaster::ring
