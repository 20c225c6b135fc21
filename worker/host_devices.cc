#include "worker/host_devices.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "common/memory.h"

namespace ringmaster::worker {
namespace {

constexpr int kWrongDevice = 2;

}  // namespace

StatusOr<std::unique_ptr<Backend>> OpenBackend(const DeviceChoice& device) {
  RING_ASSIGN_OR_RETURN(std::unique_ptr<Backend> backend, MakeBackend(device.kind));
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
  return nlohmann::ordered_json{{"device", numerics.backend() == "cpu" ? "cpu" : "cuda"},
                                {"backend", numerics.backend()},
                                {"device_model", numerics.device_model()},
                                {"devices", backend.devices()},
                                {"memory_bytes", own > 0 ? own : HostMemory()}}
      .dump();
}

int DevicesMain(int argc, const char* const* argv) {
  CLI::App app{"says what this host computes on, as one line of JSON"};
  app.name("ringworker devices");
  std::string device = "auto";
  app.add_option("--device", device, "cpu, cuda, one GPU as cuda:INDEX, or auto")
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

}  // namespace ringmaster::worker
