#include "cli/worker_share.h"

#include <sched.h>

#include <algorithm>

#include <nlohmann/json.hpp>

#include "cli/show/names.h"
#include "common/amount.h"

namespace ringmaster::cli {

std::vector<int> AvailableCpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<int> cpus;
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &set)) cpus.push_back(cpu);
  }
  return cpus;
}

std::vector<std::string> DisjointCpuLists(const std::vector<int>& available, uint32_t workers,
                                          uint32_t per_worker) {
  std::vector<std::string> lists;
  if (uint64_t{workers} * per_worker > available.size()) return lists;
  auto next = available.begin();
  for (uint32_t worker = 0; worker < workers; ++worker) {
    std::string list;
    for (uint32_t i = 0; i < per_worker; ++i) {
      list += (i == 0 ? "" : ",") + std::to_string(*next++);
    }
    lists.push_back(list);
  }
  return lists;
}

namespace {

uint32_t Over(uint32_t number, uint32_t parts) { return (number + parts - 1) / parts; }

std::vector<WorkerShare> ShareCpus(const HostDevices& host, const ShareOptions& options) {
  const uint32_t threads = options.workers * options.threads_per_core;
  WorkerShare share;
  share.device = host.device;
  share.cores = options.cores != 0
                    ? options.cores
                    : std::max(1U, static_cast<uint32_t>(host.cpus.size()) / threads);
  share.memory_per_core = host.memory / 5 * 4 / options.workers / share.cores;
  std::vector<WorkerShare> shares(options.workers, share);
  const std::vector<std::string> lists =
      DisjointCpuLists(host.cpus, options.workers, share.cores * options.threads_per_core);
  for (size_t i = 0; i < lists.size(); ++i) shares[i].cpus = lists[i];
  return shares;
}

std::vector<WorkerShare> ShareGpus(const HostDevices& host, const ShareOptions& options) {
  const bool one_gpu = options.device.find(':') != std::string::npos;
  const bool all_gpus = !one_gpu && options.workers == 1;
  const uint32_t gpus_used = one_gpu ? 1 : host.devices;
  WorkerShare share;
  share.cores = options.cores != 0 ? options.cores : (all_gpus ? gpus_used : 1);
  const uint32_t cores_on_a_gpu =
      all_gpus ? Over(share.cores, gpus_used) : Over(options.workers, gpus_used) * share.cores;
  share.memory_per_core = host.memory / cores_on_a_gpu;
  std::vector<WorkerShare> shares(options.workers, share);
  for (uint32_t i = 0; i < options.workers; ++i) {
    shares[i].device = one_gpu    ? options.device
                       : all_gpus ? host.device
                                  : fmt::format("{}:{}", host.device, i % gpus_used);
  }
  return shares;
}

std::vector<WorkerShare> SharePlugin(const HostDevices& host, const ShareOptions& options) {
  WorkerShare share;
  share.device = options.device == "auto" ? host.device : options.device;
  share.cores = options.cores != 0 ? options.cores : std::max(1U, host.devices / options.workers);
  share.memory_per_core = host.memory / Over(options.workers * share.cores, host.devices);
  return std::vector<WorkerShare>(options.workers, share);
}

}  // namespace

StatusOr<HostDevices> ParseHostDevices(const std::string& line) {
  const auto json = nlohmann::json::parse(line, nullptr, false);
  const auto number = [&](const char* key) {
    return json.is_object() && json.contains(key) && json[key].is_number_unsigned()
               ? json[key].get<uint64_t>()
               : 0;
  };
  const auto text = [&](const char* key) {
    return json.is_object() && json.contains(key) && json[key].is_string()
               ? json[key].get<std::string>()
               : "";
  };
  HostDevices host;
  host.device = text("device");
  host.model = text("device_model");
  host.devices = static_cast<uint32_t>(number("devices"));
  host.memory = number("memory_bytes");
  host.exclusive = json.is_object() && json.contains("exclusive") && json["exclusive"] == true;
  if (!host.device.empty() && host.devices > 0 && host.memory > 0) return host;
  return Internal(
      "`ringworker devices` said \"{}\": expected one line of JSON; is it of another "
      "build?",
      Printable(line));
}

StatusOr<std::vector<WorkerShare>> ShareHost(const HostDevices& host, const ShareOptions& options) {
  if (host.exclusive && options.workers > 1) {
    return InvalidArgument(
        "--workers {}: one process at a time may have the devices of {}: leave --workers out, and "
        "one worker has all {}",
        options.workers, Printable(host.model), host.devices);
  }
  std::vector<WorkerShare> shares = host.device == "cpu"    ? ShareCpus(host, options)
                                    : host.device == "pjrt" ? SharePlugin(host, options)
                                                            : ShareGpus(host, options);
  if (options.memory_per_core != 0) {
    for (WorkerShare& share : shares) share.memory_per_core = options.memory_per_core;
  }
  return shares;
}

std::string DescribeShares(const HostDevices& host, const std::vector<WorkerShare>& shares) {
  const WorkerShare& share = shares.front();
  return fmt::format("{}, each {} with {}{} on {}", Count(shares.size(), "worker"),
                     Count(share.cores, "core"), FormatBytes(share.memory_per_core),
                     share.cores == 1 ? "" : " a core",
                     Printable(host.model.substr(0, host.model.find(','))));
}

}  // namespace ringmaster::cli
