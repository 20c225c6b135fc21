#include "cli/local_cluster.h"

#include <poll.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <set>
#include <utility>

#include "common/net/address.h"

namespace ringmaster::cli {
namespace {

constexpr char kListening[] = "ringmaster listening on ";
constexpr std::chrono::seconds kStartDeadline(60);
constexpr std::chrono::seconds kStopDeadline(15);
constexpr std::chrono::milliseconds kPoll(100);

// Where workers of this host find a coordinator that listens on `address`, without certificates.
std::string Reachable(const std::string& address, const std::string& data_dir) {
  auto parsed = ParseAddress(address, "ringmaster");
  if (!parsed.ok()) return address;
  if (parsed->host == "0.0.0.0") parsed->host = "127.0.0.1";
  if (parsed->host == "::") parsed->host = "::1";
  if (IsLoopback(parsed->host)) return parsed->ToString();
  return kUnixScheme + std::filesystem::absolute(data_dir).string() + "/ringmaster.sock";
}

}  // namespace

StatusOr<LocalCluster> LocalCluster::Create(LocalClusterOptions options) {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : {SIGINT, SIGTERM, SIGCHLD}) sigaddset(&set, signal);
  OwnedFile signals(signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!signals.valid()) return Internal("signalfd: {}", std::strerror(errno));
  return LocalCluster(std::move(options), std::move(signals));
}

LocalCluster::LocalCluster(LocalClusterOptions options, OwnedFile signals)
    : options_(std::move(options)), signals_(std::move(signals)) {}

std::string LocalCluster::WorkerName(size_t index) { return fmt::format("worker-{}", index + 1); }

StatusOr<std::string> LocalCluster::Start() {
  RING_RETURN_IF_ERROR(StartCoordinator());
  RING_RETURN_IF_ERROR(StartWorkers());
  return coordinator_;
}

Status LocalCluster::StartCoordinator() {
  std::vector<std::string> arguments = {options_.programs + "/ringmaster", "--listen",
                                        options_.listen, "--data-dir", options_.data_dir};
  RING_ASSIGN_OR_RETURN(ChildProcess child, ChildProcess::Start("ringmaster", arguments));
  children_.push_back(std::move(child));
  return Until([this] { return !coordinator_.empty(); }, Clock::now() + kStartDeadline,
               "ringmaster did not say where it listens");
}

Status LocalCluster::StartWorkers() {
  for (size_t i = 0; i < options_.workers.size(); ++i) {
    const std::string name = WorkerName(i);
    const WorkerShare& share = options_.workers[i];
    std::vector<std::string> arguments = {
        options_.programs + "/ringworker", "--coordinator", coordinator_, "--listen", "127.0.0.1:0",
        "--advertise", "127.0.0.1", "--cores", std::to_string(share.cores), "--threads-per-core",
        std::to_string(options_.threads_per_core), "--device", share.device, "--memory-per-core",
        std::to_string(share.memory_per_core), "--data-root", options_.data_root, "--state-dir",
        options_.state_dir + "/" + name,
        // All of them end together: no ring goes on.
        "--drain", "0", "--name", name};
    if (!share.cpus.empty()) arguments.insert(arguments.end(), {"--cpus", share.cpus});
    RING_ASSIGN_OR_RETURN(ChildProcess child, ChildProcess::Start(name, arguments));
    children_.push_back(std::move(child));
  }
  RING_ASSIGN_OR_RETURN(client_, Client::Create(coordinator_));
  return Until([this] { return AllAttached(); }, Clock::now() + kStartDeadline,
               "not every worker attached");
}

bool LocalCluster::AllAttached() {
  const auto response = client_->ListWorkers();
  if (!response.ok()) return false;
  std::set<std::string> names;
  for (const v1::WorkerStatus& worker : response->workers()) names.insert(worker.name());
  for (size_t i = 0; i < options_.workers.size(); ++i) {
    if (names.count(WorkerName(i)) == 0) return false;
  }
  return true;
}

Status LocalCluster::Until(const std::function<bool()>& done, Clock::time_point deadline,
                           const std::string& what) {
  while (!done()) {
    Poll(kPoll);
    RING_RETURN_IF_ERROR(Ended());
    if (stop_requested_) return Error(absl::StatusCode::kCancelled, "stopped while starting");
    if (Clock::now() >= deadline) {
      return Error(absl::StatusCode::kUnknown, "{} within {} s", what, kStartDeadline.count());
    }
  }
  return absl::OkStatus();
}

void LocalCluster::Poll(std::chrono::milliseconds timeout) {
  std::vector<pollfd> waits = {{signals_.get(), POLLIN, 0}};
  for (const ChildProcess& child : children_) waits.push_back({child.output(), POLLIN, 0});
  poll(waits.data(), waits.size(), static_cast<int>(timeout.count()));
  signalfd_siginfo signal;
  while (read(signals_.get(), &signal, sizeof(signal)) == static_cast<ssize_t>(sizeof(signal))) {
    if (signal.ssi_signo != SIGCHLD) stop_requested_ = true;
  }
  for (ChildProcess& child : children_) {
    child.Reap();  // first, so that what it said last is read
    child.ReadLines([&](const std::string& line) { Forward(child, line); });
  }
}

void LocalCluster::Forward(const ChildProcess& child, const std::string& line) {
  if (&child == &children_.front() && line.rfind(kListening, 0) == 0) {
    coordinator_ = Reachable(line.substr(sizeof(kListening) - 1), options_.data_dir);
  }
  std::fprintf(stderr, "%-10s | %s\n", child.name().c_str(), line.c_str());
}

Status LocalCluster::Ended() const {
  for (const ChildProcess& child : children_) {
    if (!child.running()) {
      return Error(absl::StatusCode::kAborted, "{} {}", child.name(), child.HowItEnded());
    }
  }
  return absl::OkStatus();
}

Status LocalCluster::Run() {
  while (!stop_requested_) {
    Poll(std::chrono::hours(1));
    RING_RETURN_IF_ERROR(Ended());
  }
  return absl::OkStatus();
}

Status LocalCluster::Stop() {
  client_.reset();
  const Status workers = StopFrom(1, children_.size());
  const Status coordinator = StopFrom(0, std::min<size_t>(1, children_.size()));
  return workers.ok() ? coordinator : workers;
}

Status LocalCluster::StopFrom(size_t first, size_t last) {
  Status result;
  std::vector<size_t> stopped;
  for (size_t i = first; i < last; ++i) {
    if (children_[i].running()) stopped.push_back(i);
    children_[i].Signal(SIGTERM);
  }
  const auto running = [&] {
    return std::any_of(stopped.begin(), stopped.end(),
                       [&](size_t i) { return children_[i].running(); });
  };
  for (const auto end = Clock::now() + kStopDeadline; running() && Clock::now() < end;) Poll(kPoll);
  for (const size_t i : stopped) {
    if (children_[i].running()) {
      children_[i].Signal(SIGKILL);
      result = Internal("{} did not stop within {} s and was killed", children_[i].name(),
                        kStopDeadline.count());
    }
  }
  for (const auto end = Clock::now() + kStopDeadline; running() && Clock::now() < end;) Poll(kPoll);
  for (const size_t i : stopped) {
    if (result.ok() && !children_[i].ended_well()) {
      result = Internal("{} {}", children_[i].name(), children_[i].HowItEnded());
    }
  }
  return result;
}

}  // namespace ringmaster::cli
