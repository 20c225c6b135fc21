#include "worker/devices.h"

#include <pthread.h>

#include <chrono>
#include <cstdio>
#include <utility>

#include <fmt/format.h>
#include <spdlog/spdlog.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "common/amount.h"
#include "common/files.h"
#include "common/mutex.h"
#include "common/net/address.h"

namespace ringmaster::worker {
namespace {

constexpr int kWrongDevice = 2;

}  // namespace

StatusOr<std::unique_ptr<Backend>> OpenBackend(const DeviceChoice& device) {
  RING_ASSIGN_OR_RETURN(std::unique_ptr<Backend> backend, MakeBackend(device.kind, device.options));
  if (device.index && *device.index >= backend->devices()) {
    return FailedPrecondition("--device {}:{}: this host has {} of them, counted from 0",
                              device.kind, *device.index, backend->devices());
  }
  const v1::NumericsClass numerics = backend->numerics_class(1);
  if (numerics.backend() != "cpu") {
    spdlog::info("computing on {}: {}", numerics.backend(), numerics.device_model());
  }
  return backend;
}

std::string DescribeDevices(const Backend& backend) {
  const v1::NumericsClass numerics = backend.numerics_class(1);
  const uint64_t own = backend.device_profile().memory_per_core();
  const std::string kind = numerics.backend();
  return nlohmann::ordered_json{{"device", kind == "cpu" || kind == "pjrt" ? kind : "cuda"},
                                {"backend", numerics.backend()},
                                {"device_model", numerics.device_model()},
                                {"devices", backend.devices()},
                                {"memory_bytes", own > 0 ? own : HostMemory()},
                                {"exclusive", backend.exclusive()}}
      .dump();
}

int DevicesMain(int argc, const char* const* argv) {
  CLI::App app{"says what this host computes on, as one line of JSON"};
  app.name("ringworker devices");
  std::string device = "auto";
  app.add_option("--device", device, "cpu, cuda, one GPU as cuda:INDEX, pjrt, pjrt:FILE or auto")
      ->capture_default_str()
      ->envname("RINGMASTER_DEVICE");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kWrongDevice;
  }
  const StatusOr<DeviceChoice> choice = ParseDevice(device);
  if (!choice.ok()) {
    fmt::print(stderr, "ringworker devices: {}\n", Message(choice.status()));
    return kWrongDevice;
  }
  const StatusOr<std::unique_ptr<Backend>> backend = OpenBackend(*choice);
  if (!backend.ok()) {
    fmt::print(stderr, "ringworker devices: {}\n", Message(backend.status()));
    return 1;
  }
  fmt::print("{}\n", DescribeDevices(**backend));
  return 0;
}

namespace {

using Clock = std::chrono::steady_clock;

}  // namespace

struct DeviceReporter::Shared {
  const Read read;
  const ReadHost read_host;
  const Send send;
  const std::chrono::milliseconds interval;

  Mutex mu;
  Condition changed;
  bool enabled ABSL_GUARDED_BY(mu) = false;
  bool stopping ABSL_GUARDED_BY(mu) = false;
  bool reading ABSL_GUARDED_BY(mu) = false;
  Clock::time_point next ABSL_GUARDED_BY(mu);
};

DeviceReporter::DeviceReporter(Read read, Send send, Pace pace, ReadHost read_host)
    : shared_(new Shared{.read = std::move(read),
                         .read_host = std::move(read_host),
                         .send = std::move(send),
                         .interval = pace.interval}),
      patience_(pace.patience) {}

DeviceReporter::~DeviceReporter() { Stop(); }

void DeviceReporter::Start() {
  thread_ = std::jthread([shared = shared_] { Run(*shared); });
  pthread_setname_np(thread_.native_handle(), "devices");
}

void DeviceReporter::Stop() {
  bool hangs = false;
  {
    MutexLock lock(shared_->mu);
    shared_->stopping = true;
    shared_->changed.NotifyAll();
    hangs = !shared_->changed.WaitUntil(
        shared_->mu, Clock::now() + patience_,
        [this]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return !shared_->reading; });
  }
  if (!thread_.joinable()) return;
  if (hangs) {
    // A call into a sick driver cannot be interrupted, and a worker must be able to end.
    spdlog::warn("a device does not answer: its reading is left behind");
    thread_.detach();
  } else {
    thread_.join();
  }
}

void DeviceReporter::Enable(bool enabled) {
  MutexLock lock(shared_->mu);
  if (enabled && !shared_->enabled) {
    shared_->next = Clock::now();
    shared_->changed.NotifyAll();
  }
  shared_->enabled = enabled;
}

void DeviceReporter::Run(Shared& shared) {
  while (true) {
    {
      MutexLock lock(shared.mu);
      const auto due = [&]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
        return shared.stopping || (shared.enabled && Clock::now() >= shared.next);
      };
      const auto until = shared.enabled ? shared.next : Clock::now() + shared.interval;
      if (!shared.changed.WaitUntil(shared.mu, until, due)) continue;
      if (shared.stopping) return;
      shared.next = Clock::now() + shared.interval;
      shared.reading = true;
    }
    std::vector<v1::DeviceFigures> devices = shared.read();
    v1::WorkerMessage message;
    v1::DeviceReport& report = *message.mutable_device_report();
    for (v1::DeviceFigures& device : devices) *report.add_devices() = std::move(device);
    if (shared.read_host) *report.mutable_host() = shared.read_host();
    {
      MutexLock lock(shared.mu);
      shared.reading = false;
      shared.changed.NotifyAll();
      if (shared.stopping) return;
      if (!shared.enabled || (devices.empty() && !report.has_host())) continue;
    }
    shared.send(std::move(message));
  }
}

DeviceReporter::ReadHost HostFiguresOf(std::string state_dir, std::string data_cache,
                                       const std::string& address) {
  return [state_dir = std::move(state_dir), data_cache = std::move(data_cache),
          interface = InterfaceOf(address)] {
    v1::HostFigures host;
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    if (const auto free = FreeBytes(state_dir)) host.set_state_free(*free);
    if (const auto free = FreeBytes(data_cache)) host.set_cache_free(*free);
    host.set_interface(interface);
    host.set_unix_ms(std::chrono::duration_cast<std::chrono::milliseconds>(now).count());
    return host;
  };
}

DeviceReporter::Read FiguresOf(std::shared_ptr<Backend> backend, std::set<uint32_t> devices) {
  return [backend = std::move(backend), devices = std::move(devices)] {
    std::vector<v1::DeviceFigures> figures = backend->figures();
    std::erase_if(figures, [&](const v1::DeviceFigures& device) {
      return !devices.contains(device.index());
    });
    return figures;
  };
}

}  // namespace ringmaster::worker
