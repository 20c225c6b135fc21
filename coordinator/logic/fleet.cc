#include "coordinator/logic/fleet.h"

#include <algorithm>
#include <cctype>

#include "common/ids.h"
#include "common/job/class_map.h"
#include "common/net/address.h"
#include "common/text.h"
#include "coordinator/logic/run/member.h"

namespace ringmaster::coordinator {
namespace {

constexpr size_t kMaxHostLength = 255;
constexpr uint32_t kMaxCores = 4'096;
constexpr int kMaxDevices = 64;  // shown of one worker
constexpr int kMaxInterpreters = 64;

// Printable, without blanks: it stands in sentences. Empty is allowed.
bool IsHost(const std::string& text) {
  return text.size() <= kMaxHostLength &&
         std::all_of(text.begin(), text.end(), [](unsigned char c) { return std::isgraph(c); });
}

bool IsIncarnation(const std::string& text) {
  return text.size() == 32 &&
         std::all_of(text.begin(), text.end(), [](unsigned char c) { return std::isxdigit(c); });
}

Refusal Bad(const std::string& message) {
  return {InvalidArgument("{}", message), "INVALID_ATTACH"};
}

Refusal CheckFields(const v1::Attach& attach) {
  if (attach.protocol() != kProtocolVersion) {
    return {FailedPrecondition(
                "worker {} speaks protocol {}, this coordinator {}; install the same "
                "release on both",
                OneLine(attach.name(), kMaxNameLength), attach.protocol(), kProtocolVersion),
            "PROTOCOL_MISMATCH"};
  }
  if (!IsName(attach.name())) {
    return Bad(fmt::format("worker name \"{}\" is not 1 to {} of letters, digits, '.', '_', '-'",
                           OneLine(attach.name(), kMaxNameLength), kMaxNameLength));
  }
  if (!IsIncarnation(attach.incarnation())) {
    return Bad(fmt::format("worker {}: incarnation is not 32 hex digits", attach.name()));
  }
  if (attach.cores() < 1 || attach.cores() > kMaxCores) {
    return Bad(fmt::format("worker {}: {} cores; expected 1 to {}", attach.name(), attach.cores(),
                           kMaxCores));
  }
  if (!IsHost(attach.host())) {
    return Bad(fmt::format(
        "worker {}: its host's name is not at most {} printable characters without blanks",
        attach.name(), kMaxHostLength));
  }
  const auto ring_address = ParsePeerAddress(attach.ring_address(), "ring_address");
  if (!ring_address.ok()) {
    return Bad(fmt::format("worker {}: {}", attach.name(), Message(ring_address.status())));
  }
  if (!attach.has_numerics_class()) {
    return Bad(fmt::format("worker {}: numerics_class is required", attach.name()));
  }
  const bool named = std::ranges::all_of(attach.interpreters(), IsName);
  if (!named || attach.interpreters_size() > kMaxInterpreters) {
    return Bad(
        fmt::format("worker {}: interpreters: expected at most {} names of letters, digits, "
                    "'.', '_', '-'",
                    attach.name(), kMaxInterpreters));
  }
  return {};
}

const char* StateOf(const Worker& worker) {
  if (worker.draining) return worker.idle() ? "DRAINED" : "DRAINING";
  if (worker.measuring) return "BENCH";
  if (worker.idle()) return "FREE";
  return worker.joining && !worker.job.empty() ? "JOINING" : "BUSY";
}

}  // namespace

bool HasInterpreter(const v1::Attach& attach, const std::string& name) {
  return name.empty() || std::ranges::count(attach.interpreters(), name) > 0;
}

void Fleet::Open(SessionId session, Now now) { waiting_[session] = now.steady; }

std::optional<Worker> Fleet::Close(SessionId session) {
  waiting_.erase(session);
  const auto name = names_.find(session);
  if (name == names_.end()) return std::nullopt;
  auto worker = workers_.extract(name->second);
  names_.erase(name);
  return std::move(worker.mapped());
}

Refusal Fleet::Check(const v1::Attach& attach, std::optional<SessionId>* superseded) const {
  Refusal refusal = CheckFields(attach);
  if (!refusal.status.ok()) return refusal;
  const auto other = workers_.find(attach.name());
  if (other != workers_.end()) {
    if (other->second.attach.incarnation() != attach.incarnation()) {
      return {Error(absl::StatusCode::kAlreadyExists,
                    "a living worker is called {} (it listens at {}); choose another --name, or "
                    "stop that one first",
                    attach.name(), other->second.attach.ring_address()),
              "WORKER_NAME_TAKEN"};
    }
    *superseded = other->second.session;
  } else if (workers_.size() >= options_.max_workers) {
    return {Error(absl::StatusCode::kResourceExhausted, "{} workers are attached, the most allowed",
                  workers_.size()),
            "TOO_MANY_WORKERS"};
  }
  return {};
}

Worker& Fleet::Add(SessionId session, const v1::Attach& attach, Now now) {
  waiting_.erase(session);
  names_[session] = attach.name();
  Worker& worker = workers_[attach.name()];
  worker.session = session;
  worker.attach = attach;
  worker.class_name = job::ClassName(attach.numerics_class());
  worker.last_heard = now.heard;
  const auto drained = drained_.find(attach.name());
  if (drained == drained_.end()) return worker;
  worker.draining = drained->second == attach.incarnation();
  if (!worker.draining) drained_.erase(drained);
  return worker;
}

void Fleet::KeepDevices(Worker& worker, const v1::DeviceReport& report, Now now) {
  worker.devices.Clear();
  if (report.has_host()) {
    v1::HostFigures& host = *worker.devices.mutable_host();
    host = report.host();
    host.DiscardUnknownFields();
    host.set_interface(CleanText(host.interface(), kMaxNameLength));
    // Of an absurd clock a difference that can be told all the same.
    const int64_t said = std::clamp(host.unix_ms(), int64_t{0}, int64_t{1} << 53);
    worker.clock_ahead = std::chrono::milliseconds(said - now.unix_ms);
  }
  for (int i = 0; i < std::min(report.devices_size(), kMaxDevices); ++i) {
    v1::DeviceFigures& device = *worker.devices.add_devices();
    device = report.devices(i);
    device.DiscardUnknownFields();
    device.set_kind(CleanText(device.kind(), kMaxNameLength));
    device.set_name(CleanText(device.name(), kMaxNameLength));
  }
}

void Fleet::RestoreDrains(const std::vector<DrainRecord>& drains) {
  for (const DrainRecord& drain : drains) drained_[drain.worker] = drain.incarnation;
}

void Fleet::SetDraining(Worker& worker, bool draining) {
  worker.draining = draining;
  if (draining) {
    drained_[worker.name()] = worker.attach.incarnation();
  } else {
    drained_.erase(worker.name());
  }
}

Worker* Fleet::Find(SessionId session) {
  const auto name = names_.find(session);
  return name == names_.end() ? nullptr : &workers_.at(name->second);
}

Worker* Fleet::Find(const std::string& name) {
  const auto worker = workers_.find(name);
  return worker == workers_.end() ? nullptr : &worker->second;
}

std::vector<Fleet::Overdue> Fleet::FindOverdue(Now now) const {
  std::vector<Overdue> overdue;
  for (const auto& [session, opened] : waiting_) {
    if (now.steady - opened > options_.attach_limit) {
      overdue.push_back(
          {session, fmt::format("no Attach within {} ms", options_.attach_limit.count())});
    }
  }
  for (const auto& [name, worker] : workers_) {
    const auto silence = now.heard - worker.last_heard;
    if (silence > options_.lease) {
      overdue.push_back({worker.session, fmt::format("it was silent for {} ms, its lease is {} ms",
                                                     silence.count(), options_.lease.count())});
    } else if (worker.releasing && now.steady - worker.released_at > options_.release_limit) {
      overdue.push_back({worker.session, fmt::format("it did not end its released job within {} ms",
                                                     options_.release_limit.count())});
    }
  }
  return overdue;
}

void Fleet::Excuse(std::chrono::milliseconds late) {
  for (auto& [session, opened] : waiting_) opened += late;
}

v1::ListWorkersResponse Fleet::View() const {
  v1::ListWorkersResponse view;
  for (const auto& [name, worker] : workers_) {
    v1::WorkerStatus& status = *view.add_workers();
    status.set_name(name);
    status.set_state(StateOf(worker));
    status.set_cores(worker.attach.cores());
    status.set_threads_per_core(worker.attach.numerics_class().threads_per_core());
    status.set_memory_per_core(worker.attach.device_profile().memory_per_core());
    status.set_ring_address(worker.attach.ring_address());
    status.set_job_id(worker.job.value());
    *status.mutable_numerics_class() = worker.attach.numerics_class();
    status.set_class_(worker.class_name);
    status.set_host(worker.attach.host());
    *status.mutable_interpreters() = worker.attach.interpreters();
    *status.mutable_devices() = worker.devices.devices();
    if (worker.devices.has_host()) {
      *status.mutable_host_figures() = worker.devices.host();
      status.set_clock_ahead_ms(worker.clock_ahead.count());
    }
    if (worker.heartbeat.has_data_fetch()) {
      *status.mutable_data_fetch() = Shown(worker.heartbeat.data_fetch());
    }
  }
  return view;
}

}  // namespace ringmaster::coordinator
