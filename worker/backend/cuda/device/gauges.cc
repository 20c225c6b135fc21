#include "worker/backend/cuda/device/gauges.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <utility>

namespace ringmaster::cuda {

Gauges::Gauges(std::vector<DeviceFacts> devices, std::string library)
    : devices_(std::move(devices)), library_(std::move(library)) {}

std::vector<v1::DeviceFigures> Gauges::Read() {
  std::call_once(opening_, [this] { Open(); });
  std::vector<v1::DeviceFigures> devices;
  for (const DeviceFacts& facts : devices_) {
    v1::DeviceFigures& device = devices.emplace_back();
    device.set_kind("cuda");
    device.set_index(static_cast<uint32_t>(devices.size() - 1));
    device.set_name(facts.name);
    device.set_memory_total(facts.memory_bytes);
    if (nvml_ != nullptr) AddFigures(facts, &device);
  }
  return devices;
}

void Gauges::Open() {
  auto nvml = Nvml::Open(library_);
  if (nvml.ok()) {
    nvml_ = *std::move(nvml);
  } else {
    spdlog::info("of GPUs only name and memory size are reported: {}", Message(nvml.status()));
  }
}

void Gauges::AddFigures(const DeviceFacts& facts, v1::DeviceFigures* device) {
  const auto figures = nvml_->Read(facts.pci_bus_id);
  if (!figures.ok()) {
    const MutexLock lock(mu_);
    if (std::find(unreadable_.begin(), unreadable_.end(), facts.pci_bus_id) == unreadable_.end()) {
      unreadable_.push_back(facts.pci_bus_id);
      spdlog::warn("only name and memory size are reported while this fails: {}",
                   Message(figures.status()));
    }
    return;
  }
  device->set_name(figures->name);
  device->set_memory_used(figures->memory_used);
  device->set_memory_total(figures->memory_total);
  if (figures->utilization) device->set_utilization(*figures->utilization);
  if (figures->temperature) device->set_temperature(*figures->temperature);
  if (figures->power) device->set_power(*figures->power);
  if (figures->power_limit) device->set_power_limit(*figures->power_limit);
}

}  // namespace ringmaster::cuda
