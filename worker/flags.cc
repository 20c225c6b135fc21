#include "worker/flags.h"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <charconv>
#include <cstring>
#include <iostream>
#include <set>
#include <sstream>
#include <string_view>

#include "common/amount.h"
#include "common/build_id.h"
#include "common/files.h"
#include "common/ids.h"
#include "common/pki/token.h"
#include "worker/identity.h"
#include "worker/log/spool.h"

namespace ringmaster::worker {
namespace {

constexpr int kUsage = 2;
constexpr char kDefaultCoordinator[] = "127.0.0.1:7700";
constexpr const char* kDefaultPython = "default";  // what jobs say that name none
constexpr DurationRange kDeviceLimit{std::chrono::seconds(1), std::chrono::hours(24)};
constexpr DurationRange kDrain{std::chrono::milliseconds(0), std::chrono::hours(24)};

struct RawFlags {
  std::string coordinator;
  std::string listen;
  std::string join, join_file;
  std::string device = "auto";
  std::string memory_per_core;
  double memory_fraction = 0;
  std::string start_limit, compile_limit, run_limit;
  std::vector<std::string> python;
  std::string input_memory;
  std::string data_cache_bytes;
  std::string log_spool = "64MiB";
  std::string drain = "30s";
  std::string notice, metadata;
  std::string cpus;
};

// Takes a secret out of what every user of this host may read in /proc.
void Blank(const std::string& secret, int argc, char** argv) {
  for (int i = 1; !secret.empty() && i < argc; ++i) {
    if (std::string_view(argv[i]).ends_with(secret))
      std::memset(argv[i], ' ', std::strlen(argv[i]));
  }
}

// Strict decimal; false when `text` is anything else.
template <typename T>
bool ParseNumber(const std::string& text, T* value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *value);
  return error == std::errc() && end == text.data() + text.size() && !text.empty();
}

Status CheckName(const std::string& name) {
  if (IsName(name)) return absl::OkStatus();
  return InvalidArgument(
      "--name '{}': expected 1 to 100 letters, digits, dots, dashes and underscores", name);
}

// Of the token the coordinator is the default. It is checked here, where nothing was done yet.
Status FinishJoin(const RawFlags& raw, Flags* flags) {
  std::string coordinator = raw.coordinator;
  flags->join = raw.join;
  if (!raw.join_file.empty()) {
    if (!raw.join.empty()) return InvalidArgument("give --join or --join-file, not both");
    RING_ASSIGN_OR_RETURN(flags->join, ReadNamedFile("--join-file", raw.join_file));
  }
  if (!flags->join.empty()) {
    StatusOr<pki::JoinToken> token = pki::ParseToken(flags->join);
    if (!token.ok()) return Annotate(token.status(), "--join");
    if (coordinator.empty()) coordinator = token->coordinator.ToString();
  }
  if (coordinator.empty()) coordinator = kDefaultCoordinator;
  RING_ASSIGN_OR_RETURN(flags->coordinator, ParseCoordinator(coordinator, "--coordinator"));
  return absl::OkStatus();
}

Status FinishNotice(const RawFlags& raw, Flags* flags) {
  if (raw.notice.empty()) {
    if (raw.metadata.empty()) return absl::OkStatus();
    return InvalidArgument("--metadata-address is for --drain-on-notice; give that, too");
  }
  flags->notice.emplace();
  if (raw.notice == "aws") flags->notice->cloud = Cloud::kAws;
  if (raw.notice == "gcp") flags->notice->cloud = Cloud::kGcp;
  if (raw.notice == "azure") flags->notice->cloud = Cloud::kAzure;
  if (!flags->notice->cloud && raw.notice != "auto") {
    return InvalidArgument("--drain-on-notice {}: expected aws, gcp, azure or auto", raw.notice);
  }
  if (!raw.metadata.empty()) {
    RING_ASSIGN_OR_RETURN(flags->notice->metadata,
                          ParseAddress(raw.metadata, "--metadata-address"));
  }
  return absl::OkStatus();
}

Status FinishDevice(const RawFlags& raw, DeviceChoice* device) {
  RING_ASSIGN_OR_RETURN(*device, ParseDevice(raw.device));
  BackendOptions& options = device->options;
  options.memory_fraction = raw.memory_fraction;
  options.device = device->index;
  if (!raw.start_limit.empty()) {
    RING_ASSIGN_OR_RETURN(options.start_limit,
                          ParseDuration(raw.start_limit, "--start-limit", kDeviceLimit));
  }
  if (!raw.compile_limit.empty()) {
    RING_ASSIGN_OR_RETURN(options.compile_limit,
                          ParseDuration(raw.compile_limit, "--compile-limit", kDeviceLimit));
  }
  if (!raw.run_limit.empty()) {
    RING_ASSIGN_OR_RETURN(options.run_limit,
                          ParseDuration(raw.run_limit, "--run-limit", kDeviceLimit));
  }
  return absl::OkStatus();
}

// Debian's, where nothing else is said.
Status FinishScripts(const RawFlags& raw, Flags* flags) {
  for (const std::string& python : raw.python) {
    const size_t equals = python.find('=');
    const std::string name =
        equals == std::string::npos ? kDefaultPython : python.substr(0, equals);
    const std::string path = equals == std::string::npos ? python : python.substr(equals + 1);
    if (name.empty() || access(path.c_str(), X_OK) != 0) {
      return InvalidArgument("--python {}: expected NAME=PATH of a Python interpreter, or its path",
                             python);
    }
    flags->python[name] = path;
  }
  constexpr const char* kDebians = "/usr/bin/python3";
  if (access(kDebians, X_OK) == 0) flags->python.try_emplace(kDefaultPython, kDebians);
  const BackendOptions& limits = flags->device.options;
  if (!raw.start_limit.empty()) flags->script_start = limits.start_limit;
  if (!raw.run_limit.empty()) flags->script_shard = limits.run_limit;
  return absl::OkStatus();
}

Status Finish(const RawFlags& raw, Flags* flags) {
  RING_RETURN_IF_ERROR(FinishJoin(raw, flags));
  if (!raw.listen.empty()) {
    RING_ASSIGN_OR_RETURN(flags->listen, ParseAddress(raw.listen, "--listen"));
  }
  RING_RETURN_IF_ERROR(CheckName(flags->name));
  if (flags->advertise.empty()) {
    if (flags->listen.host == "0.0.0.0" || flags->listen.host == "::") {
      return InvalidArgument(
          "--listen {} accepts on every address: say with --advertise HOST which one the other "
          "workers reach",
          flags->listen.ToString());
    }
    flags->advertise = flags->listen.host;
  }
  RING_RETURN_IF_ERROR(FinishDevice(raw, &flags->device));
  RING_RETURN_IF_ERROR(FinishScripts(raw, flags));
  if (!raw.memory_per_core.empty()) {
    RING_ASSIGN_OR_RETURN(flags->memory_per_core,
                          ParseBytes(raw.memory_per_core, "--memory-per-core"));
  }
  if (!raw.input_memory.empty()) {
    RING_ASSIGN_OR_RETURN(flags->input_memory, ParseBytes(raw.input_memory, "--input-memory"));
  }
  if (!raw.data_cache_bytes.empty()) {
    RING_ASSIGN_OR_RETURN(flags->data_cache_bytes,
                          ParseBytes(raw.data_cache_bytes, "--data-cache-bytes"));
  }
  RING_ASSIGN_OR_RETURN(flags->log_spool_bytes, ParseBytes(raw.log_spool, "--log-spool"));
  if (flags->log_spool_bytes < kMinSpoolBytes) {
    return InvalidArgument("--log-spool {}: expected at least {}KiB", raw.log_spool,
                           kMinSpoolBytes >> 10);
  }
  RING_ASSIGN_OR_RETURN(flags->drain, ParseDuration(raw.drain, "--drain", kDrain));
  RING_RETURN_IF_ERROR(FinishNotice(raw, flags));
  RING_RETURN_IF_ERROR(CheckUrlOptions(flags->urls));
  if (!raw.cpus.empty()) {
    RING_ASSIGN_OR_RETURN(flags->cpus, ParseCpuList(raw.cpus));
    const size_t needed = size_t{flags->cores} * flags->threads_per_core;
    if (flags->cpus.size() != needed) {
      return InvalidArgument(
          "--cpus {} names {} CPUs, but --cores {} x --threads-per-core {} is {}", raw.cpus,
          flags->cpus.size(), flags->cores, flags->threads_per_core, needed);
    }
  }
  return absl::OkStatus();
}

}  // namespace

StatusOr<DeviceChoice> ParseDevice(const std::string& text) {
  const size_t colon = text.find(':');
  DeviceChoice choice{text.substr(0, colon), std::nullopt};
  const std::string rest = colon == std::string::npos ? "" : text.substr(colon + 1);
  uint32_t index = 0;
  if (colon == std::string::npos) {
    for (const char* const kind : {"auto", "cpu", "cuda", "pjrt"}) {
      if (choice.kind == kind) return choice;
    }
  } else if (choice.kind == "cuda" && ParseNumber(rest, &index)) {
    choice.index = index;
    return choice;
  } else if (choice.kind == "pjrt" && !rest.empty()) {
    choice.options.plugin = rest;
    return choice;
  }
  return InvalidArgument(
      "--device '{}': expected auto, cpu, cuda, one GPU as cuda:INDEX, pjrt, or a plugin of PJRT "
      "as "
      "pjrt:FILE",
      text);
}

StatusOr<std::vector<int>> ParseCpuList(const std::string& text) {
  std::vector<int> cpus;
  std::istringstream parts(text);
  for (std::string part; std::getline(parts, part, ',');) {
    const size_t dash = part.find('-');
    int first = 0, last = 0;
    const bool good = ParseNumber(part.substr(0, dash), &first) &&
                      (dash == std::string::npos ? (last = first, true)
                                                 : ParseNumber(part.substr(dash + 1), &last));
    if (!good || first < 0 || last < first || last >= 65536) {
      return InvalidArgument("--cpus '{}': '{}' is not a CPU or a range; expected e.g. 0,2-3", text,
                             part);
    }
    for (int cpu = first; cpu <= last; ++cpu) cpus.push_back(cpu);
  }
  if (cpus.empty() || std::set<int>(cpus.begin(), cpus.end()).size() != cpus.size()) {
    return InvalidArgument("--cpus '{}': expected at least one CPU, and each only once", text);
  }
  return cpus;
}

ParsedFlags ParseFlags(int argc, char** argv) {
  ParsedFlags parsed;
  Flags& flags = parsed.flags;
  RawFlags raw;
  flags.name = HostName();
  if (flags.name.empty()) flags.name = "worker";
  CLI::App app{"ringworker: computes shards of a job on this host and joins its ring"};
  app.footer(
      "\nringworker devices: what this host computes on"
      "\nringworker plan --help: whether a job fits this host's cores, before it starts"
      "\nringworker tune --help: times kernels on this host's GPU before any job");
  app.add_option("--coordinator", raw.coordinator, "HOST:PORT of ringmaster, or unix:PATH")
      ->default_str(kDefaultCoordinator)
      ->envname("RINGMASTER_COORDINATOR");
  app.add_option("--listen", raw.listen, "HOST:PORT for the ring; port 0 picks one")
      ->default_str("127.0.0.1:0, or of the address that reaches the coordinator");
  app.add_option("--join", raw.join,
                 "a token of `ringctl token create --role worker`: gets this worker its "
                 "certificate, once")
      ->type_name("TOKEN")
      ->envname("RINGMASTER_JOIN");
  app.add_option("--join-file", raw.join_file, "a file with such a token; - is stdin");
  app.add_option("--advertise", flags.advertise, "host that other workers connect to");
  app.add_option("--cores", flags.cores, "shards computed side by side")
      ->capture_default_str()
      ->check(CLI::Range(1, 1024));
  app.add_option("--threads-per-core", flags.threads_per_core, "part of the numerics class")
      ->capture_default_str()
      ->check(CLI::Range(1, 1024));
  app.add_option(
         "--device", raw.device,
         "what computes: cpu, cuda, one GPU as cuda:INDEX, pjrt (this host's TPUs), any plugin of "
         "PJRT as pjrt:FILE, or auto: a TPU or a GPU where there is one")
      ->capture_default_str()
      ->envname("RINGMASTER_DEVICE");
  app.add_option("--memory-per-core", raw.memory_per_core,
                 "e.g. 8GiB; default: an equal part of the device's, or of 4/5 of the host's")
      ->type_name("BYTES");
  app.add_option("--memory-fraction", raw.memory_fraction,
                 "of a GPU's memory that is this worker's; default: all that is free, and with "
                 "NVIDIA's plugin three quarters; other plugins refuse it")
      ->check(CLI::Range(0.01, 1.0).description(""))
      ->type_name("0.01-1");
  app.add_option(
         "--start-limit", raw.start_limit,
         "after which a plugin of PJRT that starts is given up; default: 2m; and a child of a "
         "script that comes up; default: 10m")
      ->type_name("TIME");
  app.add_option("--compile-limit", raw.compile_limit,
                 "likewise, of one that compiles a program; default: 10m")
      ->type_name("TIME");
  app.add_option("--run-limit", raw.run_limit,
                 "likewise, of one that computes a shard; default: 2m, of a script 10m")
      ->type_name("TIME");
  app.add_option(
         "--python", raw.python,
         "interpreter of scripts, by the name that jobs call it by, or of the name default; "
         "default: /usr/bin/python3")
      ->type_name("NAME=PATH");
  app.add_option(
         "--input-threads", flags.input_threads,
         "threads that read and decode samples ahead; 0: the cores do; default: 1, or beside "
         "GPUs all CPUs but 2 for each GPU")
      ->type_name("N")
      ->check(CLI::Range(0, 1024));
  app.add_option("--input-memory", raw.input_memory,
                 "samples held ahead, e.g. 4GiB; default: 1GiB, at most 1/16 of the host's")
      ->type_name("BYTES");
  app.add_option("--data-root", flags.data_root, "folder that holds the datasets")->required();
  app.add_flag("--data-http", flags.urls.allow_http,
               "fetch data from http:// addresses, too: without TLS");
  app.add_flag("--data-private-addresses", flags.urls.allow_private,
               "fetch data from this host itself and from link-local addresses, too");
  app.add_option("--s3-endpoint", flags.urls.s3_endpoint,
                 "what serves s3:// addresses, e.g. https://minio.example:9000; default: Amazon's")
      ->type_name("URL");
  app.add_option("--s3-region", flags.urls.s3_region,
                 "of the buckets; default: AWS_REGION, AWS_DEFAULT_REGION, else us-east-1")
      ->type_name("REGION");
  app.add_option("--state-dir", flags.state_dir, "folder for what outlives the process")
      ->required();
  app.add_option("--data-cache", flags.data_cache,
                 "folder for datasets that are not beneath --data-root and were fetched; default: "
                 "`data` in --state-dir");
  app.add_option("--data-cache-bytes", raw.data_cache_bytes,
                 "that they may take, e.g. 60GiB; default: half of what is free there")
      ->type_name("BYTES");
  app.add_option("--log-spool", raw.log_spool,
                 "log lines kept on disk until the coordinator has them; then the oldest go")
      ->type_name("BYTES")
      ->capture_default_str();
  app.add_option("--drain", raw.drain,
                 "after SIGTERM, wait so long for the ring to go on without it; 0: leave at once")
      ->type_name("DURATION")
      ->capture_default_str();
  app.add_option("--drain-on-notice", raw.notice,
                 "leave as after SIGTERM when the cloud says that it takes this host away: aws, "
                 "gcp, azure, or auto: whose metadata service answers")
      ->type_name("CLOUD");
  app.add_option("--metadata-address", raw.metadata, "HOST:PORT of that service")
      ->default_str("169.254.169.254:80");
  const CLI::Option* const name =
      app.add_option("--name", flags.name, "worker id")->capture_default_str();
  app.add_option("--cpus", raw.cpus, "pin the cores to these CPUs, e.g. 0,2-3");
  app.add_flag("!--no-shared-memory", flags.shares_memory,
               "send a neighbour of this host over TCP what goes round the ring, too");
  app.add_flag("--debuggable", flags.debuggable,
               "its user may attach a debugger and get core dumps, which have its key");
  app.set_version_flag("--version", VersionLine("ringworker"),
                       "print version, build and compute id, then end");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    parsed.exit = true;
    parsed.exit_code = app.exit(error) == 0 ? 0 : kUsage;
    return parsed;
  }
  flags.name_given = name->count() > 0;
  Blank(raw.join, argc, argv);
  const Status status = Finish(raw, &flags);
  if (!status.ok()) {
    std::cerr << "ringworker: " << Message(status) << "\n";
    parsed.exit = true;
    parsed.exit_code = kUsage;
  }
  return parsed;
}

}  // namespace ringmaster::worker
