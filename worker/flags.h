// The command line of ringworker as a value. Thread-safe (free functions).
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/net/address.h"
#include "common/status.h"
#include "worker/backend/backend.h"
#include "worker/fetch/url_source.h"
#include "worker/notice.h"

namespace ringmaster::worker {

// What computes: auto, cpu, cuda, one GPU as cuda:INDEX, pjrt, or a plugin of PJRT as pjrt:FILE.
struct DeviceChoice {
  std::string kind = "auto";      // MakeBackend's
  std::optional<uint32_t> index;  // all cores are made on it; else they are dealt over all devices
  BackendOptions options = {};
};

struct Flags {
  Address coordinator;
  Address listen;             // without a host: SecurityOf chooses
  std::string advertise;      // host that predecessors connect to; empty: likewise
  std::string join;           // a token; empty: none
  bool shares_memory = true;  // with neighbours of this host, for what goes round the ring
  bool debuggable = false;    // else nobody but root looks into a process with a key
  uint32_t cores = 1;
  uint32_t threads_per_core = 1;
  DeviceChoice device;
  uint64_t memory_per_core = 0;           // bytes; 0: what the device has
  std::optional<uint32_t> input_threads;  // nothing: InputOptions of the host
  uint64_t input_memory = 0;              // bytes; 0: likewise
  std::string data_root;
  UrlOptions urls;  // of datasets under an address
  std::string state_dir;
  std::string data_cache;                         // folder; empty: `data` in state_dir
  uint64_t data_cache_bytes = 0;                  // 0: half of what is free there
  uint64_t log_spool_bytes = uint64_t{64} << 20;  // of log lines that were not acknowledged
  std::chrono::milliseconds drain{
      30'000};                          // between SIGTERM and the end of a run that nobody ended
  std::optional<NoticeOptions> notice;  // nothing: no cloud is asked
  std::string name;
  bool name_given = false;  // else it is the host's
  std::vector<int> cpus;    // empty: not pinned; else cores * threads_per_core of them
  std::map<std::string, std::string> python;  // interpreters of scripts: path of each by its name
  // After which a child of a script that comes up, or that computes a shard, is ended.
  std::chrono::milliseconds script_start{600'000}, script_shard{600'000};
};

struct ParsedFlags {
  Flags flags;
  bool exit = false;  // --help was printed, or the usage is wrong: end with `exit_code`
  int exit_code = 0;
};

// Prints --help to stdout, and what is wrong to stderr (exit code 2).
[[nodiscard]] ParsedFlags ParseFlags(int argc, char** argv);

[[nodiscard]] StatusOr<DeviceChoice> ParseDevice(const std::string& text);
// 0,2-3: ascending or not, each CPU once.
[[nodiscard]] StatusOr<std::vector<int>> ParseCpuList(const std::string& text);

}  // namespace ringmaster::worker
