#include "worker/daemon.h"

#include <sched.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include "common/amount.h"
#include "common/data/formats/converted.h"
#include "common/failpoint.h"
#include "common/files.h"
#include "common/ticket.h"
#include "worker/devices.h"
#include "worker/identity.h"

namespace ringmaster::worker {
namespace {

// A coordinator that boots at the same time is there by then.
constexpr std::chrono::seconds kJoinLimit{15};
constexpr int kMostWaitingProgress = 1'024;

// One for each name: a copy of a state folder that another worker uses brings none of its lines.
std::string SpoolFolder(const Flags& flags) { return flags.state_dir + "/spool-" + flags.name; }

std::string CacheFolder(const Flags& flags) {
  return flags.data_cache.empty() ? flags.state_dir + "/data" : flags.data_cache;
}

// Moves this thread to each CPU once, and back: only the kernel knows which ones it may have.
Status CheckCpus(const std::vector<int>& cpus) {
  cpu_set_t before;
  CPU_ZERO(&before);
  if (sched_getaffinity(0, sizeof(before), &before) != 0) return absl::OkStatus();
  Status status;
  for (const int cpu : cpus) {
    cpu_set_t one;
    CPU_ZERO(&one);
    if (cpu < CPU_SETSIZE) CPU_SET(cpu, &one);
    if (sched_setaffinity(0, sizeof(one), &one) != 0) {
      status = FailedPrecondition(
          "--cpus: this process cannot run on CPU {}: {}; `nproc` and "
          "`lscpu` say which there are",
          cpu, std::strerror(errno));
      break;
    }
  }
  sched_setaffinity(0, sizeof(before), &before);
  return status;
}

// An equal part of the device for each core on it; of a CPU's host, four fifths are dealt out.
uint64_t DefaultMemory(const Flags& flags, const Backend& backend) {
  const uint64_t device = backend.device_profile().memory_per_core();
  if (device == 0) return HostMemory() / 5 * 4 / flags.cores;
  const uint32_t used = flags.device.index ? 1 : backend.devices();
  return device / ((flags.cores + used - 1) / used);
}

// A GPU's host has little else to do. 2 CPUs a GPU launch its kernels and serve its part of the
// ring.
uint32_t DefaultInputThreads(const Flags& flags, const Backend& backend) {
  if (backend.device_profile().memory_per_core() == 0) return 1;
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0) return 1;
  const uint32_t gpus = flags.device.index ? 1 : std::min(backend.devices(), flags.cores);
  return static_cast<uint32_t>(std::max(1, CPU_COUNT(&allowed) - 2 * static_cast<int>(gpus)));
}

// The host's that `flags` leave open.
void CompleteInput(const Backend& backend, Flags* flags) {
  if (!flags->input_threads) flags->input_threads = DefaultInputThreads(*flags, backend);
  if (flags->input_memory > 0) return;
  flags->input_memory = std::min(uint64_t{1} << 30, HostMemory() / 16);
}

uint32_t DeviceOf(const Flags& flags, const Backend& backend, uint32_t core) {
  return flags.device.index.value_or(core % backend.devices());
}

StatusOr<std::unique_ptr<FolderLock>> LockStateFolder(const std::string& path) {
  if (const Status made = MakePrivateFolder(path, IfThere::kKeep); !made.ok()) {
    return FailedPrecondition("--state-dir {}: cannot create it: {}", path, Message(made));
  }
  return FolderLock::Take(path, {.flag = "--state-dir", .program = "ringworker"});
}

}  // namespace

StatusOr<std::unique_ptr<Daemon>> Daemon::Create(Flags flags) {
  if (!std::filesystem::is_directory(flags.data_root)) {
    return FailedPrecondition("--data-root {} is not a folder", flags.data_root);
  }
  RING_RETURN_IF_ERROR(CheckCpus(flags.cpus));
  RING_ASSIGN_OR_RETURN(std::unique_ptr<FolderLock> state, LockStateFolder(flags.state_dir));
  data::SweepConversions(flags.state_dir);
  RING_ASSIGN_OR_RETURN(Security security, SecurityOf(&flags, kJoinLimit));
  RING_ASSIGN_OR_RETURN(std::unique_ptr<Spool> spool,
                        Spool::Open({SpoolFolder(flags), flags.log_spool_bytes}));
  RING_ASSIGN_OR_RETURN(const uint64_t term, TermStore::Load(flags.state_dir));
  RING_ASSIGN_OR_RETURN(std::unique_ptr<Backend> backend, OpenBackend(flags.device));
  backend->KeepIn(flags.state_dir);
  if (flags.memory_per_core == 0) flags.memory_per_core = DefaultMemory(flags, *backend);
  CompleteInput(*backend, &flags);
  Services services = MakeServices(flags, security);
  ring::PortOptions options;
  options.security = security.server;
  options.dialer = security.dialer;
  options.state_channel = FetchChannelArguments();
  options.shares_memory = flags.shares_memory;
  options.services = {services.states.get(), services.files.get()};
  RING_ASSIGN_OR_RETURN(std::unique_ptr<ring::RingPort> port,
                        ring::RingPort::Create(flags.listen, std::move(options)));
  return std::unique_ptr<Daemon>(new Daemon(std::move(flags), std::move(security), std::move(state),
                                            std::move(spool), term, std::move(backend),
                                            std::move(services), std::move(port)));
}

Daemon::Services Daemon::MakeServices(const Flags& flags, const Security& security) {
  Services services;
  services.ticket = std::make_unique<HeldTicket>();
  JobDataOptions options;
  options.name = WorkerId(flags.name);
  options.folders = {flags.data_root, flags.state_dir};
  options.coordinator = flags.coordinator;
  options.dialer = security.dialer;
  options.ticket = [ticket = services.ticket.get()]() { return ticket->Get(); };
  options.cache.folder = CacheFolder(flags);
  options.cache.most_bytes = flags.data_cache_bytes;
  options.urls = flags.urls;
  services.data = std::make_unique<JobData>(std::move(options));
  data_files::DataFilesService::Options serves;
  serves.state_dir = flags.state_dir;
  serves.admit = [data = services.data.get()](const grpc::AuthContext& /*connection*/,
                                              const v1::DataAsker& asker) {
    return data->Admit(asker);
  };
  services.files = std::make_unique<data_files::DataFilesService>(std::move(serves));
  services.states = std::make_unique<StateService>();
  return services;
}

Daemon::Daemon(Flags flags, Security security, std::unique_ptr<FolderLock> state,
               std::unique_ptr<Spool> spool, uint64_t term, std::unique_ptr<Backend> backend,
               Services services, std::unique_ptr<ring::RingPort> port)
    : flags_(std::move(flags)),
      security_(std::move(security)),
      incarnation_(RandomName()),
      ring_address_(Address{flags_.advertise, port->port()}.ToString()),
      state_(std::move(state)),
      spool_(std::move(spool)),
      log_sink_(std::make_shared<SpoolSink>(spool_)),
      backend_(std::move(backend)),
      services_(std::move(services)),
      port_(std::move(port)),
      coordinator_(CoordinatorChannel(flags_.coordinator, security_.dialer)),
      logic_(Self(), term),
      shipper_(coordinator_, spool_.get(),
               {flags_.name, [this]() { return services_.ticket->Get(); }}),
      session_(coordinator_, [this](Event event) { Post(std::move(event)); }),
      runner_(RunnerOptions(), backend_.get(), port_.get(), services_.states.get(),
              services_.data.get(), coordinator_, [this](Event event) { Post(std::move(event)); }),
      heartbeat_([this]() { return runner_.heartbeat(); },
                 [this](v1::WorkerMessage message) { session_.Send(std::move(message)); }),
      devices_(
          FiguresOf(backend_, UsedDevices()),
          [this](v1::WorkerMessage message) { session_.Send(std::move(message)); }, {},
          HostFiguresOf(flags_.state_dir, CacheFolder(flags_), flags_.advertise)),
      renewal_({security_.folder, flags_.coordinator, coordinator_}),
      notice_(flags_.notice),
      terms_({flags_.state_dir}, [this](Event event) { Post(std::move(event)); }),
      loop_({.name = "loop", .on_tick = [this]() { terms_.GiveUpLate(); }}) {
  // No thread of ours runs yet, and none any more in the destructor: a logger's sinks have no lock.
  // First, so that what stands on stderr is in the spool too, whenever the process dies.
  auto& sinks = spdlog::default_logger()->sinks();
  sinks.insert(sinks.begin(), log_sink_);
}

Daemon::~Daemon() {
  Stop("the daemon ends");
  std::erase(spdlog::default_logger()->sinks(), log_sink_);
}

v1::Attach Daemon::Self() const {
  v1::Attach self;
  self.set_protocol(kProtocolVersion);
  self.set_name(flags_.name);
  self.set_incarnation(incarnation_);
  self.set_ring_address(ring_address_);
  self.set_cores(flags_.cores);
  self.set_host(HostName());
  *self.mutable_numerics_class() = NumericsOf(*backend_, flags_.threads_per_core);
  *self.mutable_device_profile() = backend_->device_profile();
  self.mutable_device_profile()->set_memory_per_core(flags_.memory_per_core);
  for (const auto& [name, path] : flags_.python) self.add_interpreters(name);
  return self;
}

JobRunnerOptions Daemon::RunnerOptions() {
  JobRunnerOptions options;
  options.name = WorkerId(flags_.name);
  options.incarnation = incarnation_;
  options.begins = [sink = log_sink_](const JobId& job) { sink->BeginJob(job); };
  options.lost = [this](const Status& why) {
    spdlog::critical("{}: this process can compute no more on its devices, and ends", Message(why));
    lost_ = exited_ = true;
  };
  options.ended = [sink = log_sink_](const JobId& job) { sink->EndJob(job); };
  options.data_root = flags_.data_root;
  options.dialer = security_.dialer;
  options.ticket = [this]() { return services_.ticket->Get(); };
  options.input = {flags_.input_threads.value_or(1), flags_.input_memory};
  options.script = {.folder = flags_.state_dir + "/script",
                    .package = script::FindPackage(),
                    .interpreters = flags_.python,
                    .threads = flags_.threads_per_core,
                    .numerics = Self().numerics_class(),
                    .attach_limit = flags_.script_start,
                    .shard_limit = flags_.script_shard};
  for (uint32_t i = 0; i < flags_.cores; ++i) {
    CoreOptions& core = options.cores.emplace_back();
    core.name = fmt::format("core{}", i);
    core.threads = flags_.threads_per_core;
    core.memory_bytes = flags_.memory_per_core;
    core.device = DeviceOf(flags_, *backend_, i);
    if (!flags_.cpus.empty()) {
      const auto first = flags_.cpus.begin() + i * flags_.threads_per_core;
      core.cpus.assign(first, first + flags_.threads_per_core);
    }
  }
  return options;
}

std::set<uint32_t> Daemon::UsedDevices() const {
  std::set<uint32_t> used;
  for (uint32_t i = 0; i < flags_.cores; ++i) used.insert(DeviceOf(flags_, *backend_, i));
  return used;
}

void Daemon::Start() {
  services_.states->Start();
  services_.files->Start();
  shipper_.Start();
  loop_.Start();
  terms_.Start();
  runner_.Start();
  heartbeat_.Start();
  devices_.Start();
  session_.Start();
  renewal_.Start();
  notice_.Start();
}

void Daemon::Post(Event event) {
  // Progress may be lost, as the next one says the same and more, unless it has what the history
  // keeps; it leaves room for what is said once. What comes after a stop is about things that end
  // anyway.
  const auto* const progress = std::get_if<RunProgress>(&event);
  const bool may_be_lost = progress != nullptr && progress->progress.lasting().empty();
  if (may_be_lost && waiting_progress_ >= kMostWaitingProgress) return;
  waiting_progress_ += may_be_lost ? 1 : 0;
  const bool posted = loop_.Post([this, may_be_lost, event = std::move(event)]() {
    waiting_progress_ -= may_be_lost ? 1 : 0;
    Handle(event);
  });
  if (posted) return;
  waiting_progress_ -= may_be_lost ? 1 : 0;
  if (!may_be_lost && !stopped_) spdlog::warn("an event was dropped: the loop is full");
}

void Daemon::Handle(const Event& event) {
  const Decision decision = logic_.Step(event, std::chrono::steady_clock::now());
  heartbeat_.SetInterval(logic_.heartbeat_interval());
  devices_.Enable(logic_.attached());
  Log(event, decision.reason);
  for (const Action& action : decision.actions) Do(action);
}

void Daemon::Log(const Event& event, const std::string& reason) {
  if (std::holds_alternative<RunProgress>(event) || std::holds_alternative<Connected>(event)) {
    return;
  }
  // A coordinator that is away, or refuses this worker, gives the same answer twice a second.
  if (reason == last_reason_) return;
  last_reason_ = reason;
  const bool lost = std::holds_alternative<Disconnected>(event);
  spdlog::log(lost ? spdlog::level::warn : spdlog::level::info, "{}", reason);
}

void Daemon::Do(const Action& action) {
  if (const auto* send = std::get_if<SendMessage>(&action)) {
    if (send->message.has_fence_ack()) {
      HitFailpoint("fence_ack", send->message.fence_ack().applied());
    }
    session_.Send(send->message);
  } else if (const auto* close = std::get_if<CloseSession>(&action)) {
    session_.Close(close->reason);
  } else if (const auto* save = std::get_if<SaveTerm>(&action)) {
    terms_.Store(save->term);
  } else if (const auto* use = std::get_if<UseTicket>(&action)) {
    services_.ticket->Set(use->ticket);
  } else if (const auto* inspect = std::get_if<InspectDataset>(&action)) {
    runner_.Submit(*inspect);
  } else if (std::holds_alternative<EndInspection>(action)) {
    runner_.EndInspection();
  } else if (std::holds_alternative<EndWaits>(action)) {
    runner_.EndWaits();
  } else if (const auto* prepare = std::get_if<PrepareJob>(&action)) {
    runner_.Submit(*prepare);
  } else if (const auto* run = std::get_if<RunJob>(&action)) {
    runner_.Submit(*run);
  } else if (const auto* cancel = std::get_if<CancelRun>(&action)) {
    runner_.Cancel(cancel->reason, cancel->when);
  } else if (const auto* deliver = std::get_if<DeliverState>(&action)) {
    runner_.Submit(*deliver);
  } else if (const auto* check = std::get_if<CheckHeldState>(&action)) {
    runner_.Submit(*check);
  } else if (const auto* forget = std::get_if<ForgetCopies>(&action)) {
    runner_.ForgetCopies(forget->step);
  } else if (const auto* drop = std::get_if<DropJob>(&action)) {
    runner_.Submit(*drop);
  } else if (const auto* measure = std::get_if<MeasureRing>(&action)) {
    runner_.Submit(*measure);
  } else if (std::holds_alternative<EndMeasuring>(action)) {
    runner_.EndMeasuring();
  } else if (std::holds_alternative<Exit>(action)) {
    session_.OpenNoMore();
    exited_ = true;
  }
}

void Daemon::Leave(const std::string& reason) {
  if (!std::exchange(leaving_, true)) Post(StopRequested{reason});
}

void Daemon::Stop(const std::string& reason) {
  if (stopped_.exchange(true)) return;
  Post(StopRequested{reason});
  heartbeat_.Stop();
  runner_.Stop();
  loop_.Stop();
  terms_.Stop();
  session_.Stop();
  renewal_.Stop();
  notice_.Stop();
  shipper_.Stop();
  services_.files->Stop();
  services_.states->Stop();
  port_->Stop();
  devices_.Stop();  // last: it may wait for a device
}

}  // namespace ringmaster::worker
