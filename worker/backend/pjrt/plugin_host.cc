#include "worker/backend/pjrt/plugin_host.h"

#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <utility>
#include <vector>

#include <spdlog/spdlog.h>

#include "common/amount.h"
#include "common/text.h"
#include "worker/backend/pjrt/protocol.h"

namespace ringmaster::pjrt {
namespace {

using std::chrono::steady_clock;

constexpr std::chrono::seconds kSendTime{30};
constexpr char kStartsLate[] =
    "; libtpu waits for Google's cloud, outside of it for ever unless TPU_SKIP_MDS_QUERY=1, and on "
    "a host of a slice for the other hosts (docs/tpu.md); --start-limit says for how long it may";

std::vector<std::string> ProgramPaths() {
  if (const char* const named = std::getenv("RINGMASTER_PJRT_HOST")) return {named};
  std::error_code error;
  const auto folder = std::filesystem::read_symlink("/proc/self/exe", error).parent_path();
  return {(folder / kHostProgram).string(),
          (folder.parent_path() / "lib" / "ringmaster" / kHostProgram).string()};
}

StatusOr<std::string> FindProgram(const std::string& named) {
  const std::vector<std::string> paths =
      named.empty() ? ProgramPaths() : std::vector<std::string>{named};
  for (const std::string& path : paths) {
    std::error_code error;
    if (std::filesystem::exists(path, error)) return path;
  }
  return FailedPrecondition(
      "there is no {}, in which plugins run: install it beside this program, or name it with "
      "RINGMASTER_PJRT_HOST",
      fmt::join(paths, " and no "));
}

StatusOr<HostMessage> AskToStart(int control, const std::string& request, Deadline deadline) {
  RING_RETURN_IF_ERROR(Send(control, MessageKind::kStart, request, {}, deadline));
  return Receive(control, deadline);
}

// All that a numerics class has of a plugin.
std::string VersionOf(const PluginFacts& facts) {
  std::string text = fmt::format("{}, {}, API {}.{}", facts.platform,
                                 OneLine(facts.platform_version), facts.major, facts.minor);
  for (const PluginAttribute& attribute : facts.attributes) {
    text += fmt::format(", {} {}", OneLine(attribute.name), OneLine(attribute.value));
  }
  return text;
}

// Programs that were bound to one must mean the same on the other, to the bit.
Status CheckSame(const PluginFacts& now, const PluginFacts& before) {
  const std::string version = VersionOf(now), expected = VersionOf(before);
  if (version != expected) {
    return FailedPrecondition(
        "the plugin was started again and is another version: {}; expected {}: restart the worker, "
        "which then has another numerics class",
        version, expected);
  }
  bool same = now.devices.size() == before.devices.size();
  for (size_t i = 0; same && i < now.devices.size(); ++i) {
    same =
        now.devices[i].id == before.devices[i].id && now.devices[i].kind == before.devices[i].kind;
  }
  if (same) return absl::OkStatus();
  return FailedPrecondition(
      "the plugin was started again and finds other devices: {} of {}, expected {} of {}",
      now.devices.size(), now.platform, before.devices.size(), before.platform);
}

}  // namespace

Status FromReply(const HostMessage& reply) {
  const auto error = Decode<ErrorReply>(reply);
  if (!error.ok()) return error.status();
  return Status(static_cast<absl::StatusCode>(error->code), OneLine(error->message));
}

StatusOr<std::unique_ptr<PluginHost>> PluginHost::Start(const PluginOptions& options) {
  PluginOptions found = options;
  RING_ASSIGN_OR_RETURN(found.program, FindProgram(options.program));
  std::unique_ptr<PluginHost> host(new PluginHost(std::move(found)));
  RING_ASSIGN_OR_RETURN(Started started, host->StartProcess(std::stop_token()));
  host->facts_ = std::move(started.facts);
  MutexLock lock(host->mu_);
  host->current_ = std::move(started.process);
  return host;
}

StatusOr<PluginHost::Started> PluginHost::StartProcess(const std::stop_token& stop) const {
  RING_ASSIGN_OR_RETURN(auto process,
                        Subprocess::Start({.called = "the plugin's process",
                                           .thread = "pjrt-host",
                                           .log = "plugin",
                                           .command = {options_.program, std::to_string(getpid())},
                                           .environment = OwnEnvironment(),
                                           .end_limit = options_.end_limit}));
  const std::stop_callback end(stop, [&] { process->Kill(JobEnds()); });
  const Deadline deadline = steady_clock::now() + options_.start_limit;
  const std::string request = Encode(
      StartRequest{.plugin = options_.path,
                   .client = {.memory_fraction = static_cast<float>(options_.memory_fraction)}});
  const auto reply = AskToStart(process->control(), request, deadline);
  if (absl::IsUnavailable(reply.status())) return process->Fate();
  if (absl::IsDeadlineExceeded(reply.status())) {
    process->Kill(Error(absl::StatusCode::kDeadlineExceeded,
                        "the plugin {} did not start within {}", options_.path,
                        ExactDuration(options_.start_limit)));
    const Status fate = process->Fate();
    return Status(fate.code(), Message(fate) + kStartsLate);
  }
  RING_RETURN_IF_ERROR(reply.status());
  if (reply->kind == MessageKind::kError) return FromReply(*reply);
  if (reply->kind != MessageKind::kStarted) {
    return DataLoss("the plugin's process answers its start with message {}",
                    static_cast<int>(reply->kind));
  }
  RING_ASSIGN_OR_RETURN(PluginFacts facts, Decode<PluginFacts>(*reply));
  return Started{std::move(process), std::move(facts)};
}

StatusOr<PluginHost::Connection> PluginHost::Connect(const std::stop_token& stop) {
  MutexLock lock(mu_);
  if (buried_ || current_->doomed()) {
    RING_RETURN_IF_ERROR(BuryCurrent("nothing"));
    RING_ASSIGN_OR_RETURN(Started started, StartProcess(stop));
    RING_RETURN_IF_ERROR(CheckSame(started.facts, facts_));
    current_ = std::move(started.process);
    buried_ = false;
    spdlog::info("the plugin runs again, in process {}", current_->id());
  }
  std::array<int, 2> ends = {};
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0) {
    return Error(absl::StatusCode::kResourceExhausted, "cannot make a socket: {}",
                 std::strerror(errno));
  }
  OwnedFile ours(ends[0]);
  const OwnedFile theirs(ends[1]);
  // What is wrong with it the lane will find out.
  const std::array<int, 1> files = {theirs.get()};
  (void)Send(current_->control(), MessageKind::kOpenLane, "", files,
             steady_clock::now() + kSendTime);
  return Connection{current_, std::move(ours)};
}

Status PluginHost::Bury(const std::shared_ptr<Subprocess>& process, const std::string& what) {
  MutexLock lock(mu_);
  // A later one runs already, or was tried in vain.
  if (process != current_) return absl::OkStatus();
  return BuryCurrent(what);
}

Status PluginHost::BuryCurrent(const std::string& what) {
  if (!buried_) {
    buried_ = true;
    last_fate_ = current_->Fate();
    if (absl::IsCancelled(last_fate_)) {
      spdlog::info("the plugin was stopped: {}", Message(last_fate_));
    } else {
      deaths_.push_back(steady_clock::now());
      spdlog::warn("the plugin died, death {} within {}: in the middle of {}: {}", deaths_.size(),
                   ExactDuration(options_.deaths_within), what, Message(last_fate_));
    }
  }
  if (!current_->ended()) return last_fate_;
  while (!deaths_.empty() && deaths_.front() + options_.deaths_within < steady_clock::now()) {
    deaths_.pop_front();
  }
  if (deaths_.size() <= options_.max_deaths) return absl::OkStatus();
  return Annotate(last_fate_, fmt::format("the plugin died {} times within {}", deaths_.size(),
                                          ExactDuration(options_.deaths_within)));
}

}  // namespace ringmaster::pjrt
