#include "worker/plan.h"

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <set>
#include <thread>
#include <utility>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "common/amount.h"
#include "common/files.h"
#include "common/job/field_names.h"
#include "common/job/offline_job.h"
#include "common/job/resolve.h"
#include "common/log.h"
#include "common/sha256.h"
#include "worker/backend/pjrt/tpus.h"
#include "worker/devices.h"
#include "worker/identity.h"

namespace ringmaster::worker {
namespace {

constexpr int kDoesNotFit = 1, kWrongPlan = 2;
constexpr mode_t kReadableProfile = 0644;
constexpr uint32_t kUsualWorkers = 2;

}  // namespace

StatusOr<FilePlan> PlanJob(const v1::JobSpec& spec, const PlanFlags& flags, Backend* backend) {
  RING_ASSIGN_OR_RETURN(const v1::ResultSpec result,
                        job::ResultWithoutCluster(spec, flags.data_root));
  const PlanOptions options = {.cores = flags.cores,
                               .threads_per_core = flags.threads_per_core,
                               .workers = flags.workers,
                               .memory_per_core = flags.memory_per_core,
                               .memory = spec.memory(),
                               .counts_known = !flags.data_root.empty() || spec.data().has_take()};
  RING_ASSIGN_OR_RETURN(JobPlan job, PlanResult(result, options, backend));
  return FilePlan{job::TitleOf(spec, result), Hex(job::ModelDigest(result.graph())),
                  job::ShortName(*v1::Policy_descriptor()->FindValueByNumber(result.policy())),
                  std::move(job)};
}

void PrintPlan(const FilePlan& plan, std::ostream& out) {
  const JobPlan& job = plan.job;
  out << plan.title << "\n"
      << fmt::format("batch {} in {} shards of at most {} samples, on {} cores of {} memory\n\n",
                     job.batch, job.shards, job.samples, job.cores,
                     FormatBytes(job.memory_per_core))
      << TableOf(job)
      << fmt::format("wire            at most {} a step, from each of {} workers\n",
                     FormatBytes(job.wire_bytes), job.workers);
  if (job.seconds_per_step) {
    out << fmt::format(
        "step            {:.3g} s, by the profile's times, and what the ring takes\n",
        *job.seconds_per_step);
  }
  for (const std::string& advice : job.advice) out << "\nadvice: " << advice;
  out << (job.advice.empty() ? "" : "\n");
}

namespace {

template <typename T>
nlohmann::ordered_json Known(const std::optional<T>& value) {
  return value ? nlohmann::ordered_json(*value) : nlohmann::ordered_json(nullptr);
}

nlohmann::ordered_json PartsJson(const std::vector<WorkerMemory::Part>& parts) {
  nlohmann::ordered_json json = nlohmann::ordered_json::array();
  for (const WorkerMemory::Part& part : parts) {
    json.push_back({{"what", part.what}, {"bytes", part.bytes}});
  }
  return json;
}

nlohmann::ordered_json JsonOf(const FilePlan& plan) {
  const JobPlan& job = plan.job;
  nlohmann::ordered_json peak = nlohmann::ordered_json::array();
  for (size_t i = 0; i < std::min(job.peak.buffers.size(), kShownBuffers); ++i) {
    const graph::PeakBuffer& buffer = job.peak.buffers[i];
    peak.push_back({{"name", buffer.name},
                    {"op", buffer.op},
                    {"shape", buffer.shape},
                    {"type", graph::Name(buffer.dtype)},
                    {"bytes", buffer.bytes}});
  }
  return nlohmann::ordered_json{{"fits", job.fits()},
                                {"largest_batch", job.largest_batch},
                                {"bytes_per_core", {{job.device, job.core_bytes}}},
                                {"memory_per_core_bytes", job.memory_per_core},
                                {"host_bytes", job.host.usual()},
                                {"host_most_bytes", job.host.most()},
                                {"worker_bytes", job.worker_bytes()},
                                {"checkpoint_copy_bytes", job.host.copy},
                                {"host", PartsJson(job.host.always)},
                                {"host_at_times", PartsJson(job.host.at_times)},
                                {"peak", std::move(peak)},
                                {"rematerialize",
                                 {{"on", job.rematerialize.on},
                                  {"needed_with_bytes", job.rematerialize.needed_with},
                                  {"needed_without_bytes", job.rematerialize.needed_without},
                                  {"operations", job.rematerialize.operations}}},
                                {"wire_bytes_per_step", job.wire_bytes},
                                {"seconds_per_step", Known(job.seconds_per_step)},
                                {"advice", job.advice}};
}

}  // namespace

std::string ToJson(const FilePlan& plan) { return JsonOf(plan).dump(2); }

std::string ToJson(const std::vector<ClassPlan>& classes, const std::optional<SpeedPlan>& speeds) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  bool fits = false;
  for (const ClassPlan& one : classes) {
    fits = fits || (one.plan.ok() && one.plan->job.fits());
    list.push_back({{"profile", nlohmann::ordered_json::parse(worker::ToJson(one.profile))},
                    {"plan", one.plan.ok() ? JsonOf(*one.plan) : nlohmann::ordered_json(nullptr)},
                    {"error", one.plan.ok() ? nlohmann::ordered_json(nullptr)
                                            : nlohmann::ordered_json(Message(one.plan.status()))}});
  }
  return nlohmann::ordered_json{
      {"fits", fits},
      {"classes", std::move(list)},
      {"speed", speeds ? JsonOf(*speeds) : nlohmann::ordered_json(nullptr)}}
      .dump(2);
}

void PrintClasses(const std::vector<ClassPlan>& classes, std::ostream& out) {
  const ClassPlan* roomiest = nullptr;
  for (const ClassPlan& one : classes) {
    const WorkerProfile& profile = one.profile;
    const std::string who =
        fmt::format("{}: {} of {}, {} a core", profile.name,
                    profile.workers == 1 ? "a worker" : fmt::format("{} workers", profile.workers),
                    profile.cores == 1 ? "1 core" : fmt::format("{} cores", profile.cores),
                    FormatBytes(profile.memory_per_core));
    if (!one.plan.ok()) {
      out << fmt::format("{}: not known: {}\n", who, Message(one.plan.status()));
      continue;
    }
    const JobPlan& job = one.plan->job;
    out << fmt::format(
        "{}: {}, needs {} a core; largest batch {}{}\n", who, job.fits() ? "fits" : "does not fit",
        FormatBytes(job.needed()), job.largest_batch,
        job.seconds_per_step ? fmt::format("; a step {:.3g} s", *job.seconds_per_step) : "");
    if (roomiest == nullptr || job.largest_batch > roomiest->plan->job.largest_batch) {
      roomiest = &one;
    }
  }
  if (roomiest == nullptr) return;
  out << "\n" << roomiest->profile.name << ", ";
  PrintPlan(*roomiest->plan, out);
}

namespace {

void AddPlanOptions(CLI::App* app, PlanFlags* flags, std::string* device, std::string* memory) {
  app->add_option("FILE", flags->job_file, "the job file, YAML; - is stdin")->required();
  app->add_option("--set", flags->overrides,
                  "replace a value of the file, e.g. batch=512; repeatable")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false)
      ->take_all();
  app->add_option("--device", *device, "auto, cpu, cuda, one GPU as cuda:INDEX, pjrt or pjrt:FILE")
      ->capture_default_str()
      ->envname("RINGMASTER_DEVICE");
  app->add_option("--cores", flags->cores, "of one worker; default: those of this host")
      ->check(CLI::Range(1U, 4096U).description(""));
  app->add_option("--threads-per-core", flags->threads_per_core, "that compute one shard together")
      ->capture_default_str()
      ->check(CLI::Range(1U, 1024U).description(""));
  app->add_option("--memory-per-core", *memory,
                  "e.g. 8GiB; default: an equal part of what this host has")
      ->type_name("BYTES");
  app->add_option("--workers", flags->workers,
                  "in the ring, for what goes over the wire; default: the profile's, else 2")
      ->check(CLI::Range(1U, 4096U).description(""));
  app->add_option("--data-root", flags->data_root,
                  "folder that holds the dataset: its counts decide how large the last batch is");
  app->add_option("--profile", flags->profile,
                  "a class of worker, written down as JSON, or one with TPUs (tpu-v2-8, tpu-v3-8, "
                  "tpu-v4-8, tpu-v5e-8, tpu-v5p-8, tpu-v6e-8), in place of --cores, "
                  "--threads-per-core and --memory-per-core")
      ->type_name("FILE|NAME");
  app->add_flag("--measure", flags->measure,
                "train some steps here first, and keep their times in the profile");
  app->add_option(
         "--speeds", flags->speeds,
         "what workers of a cluster took for shards, as `ringctl plan --cluster` writes it")
      ->type_name("FILE");
  app->add_flag("--json", flags->json, "for programs");
}

// What the command line leaves to the device.
void FillIn(const Backend& backend, PlanFlags* flags) {
  const uint64_t device = backend.device_profile().memory_per_core();
  if (flags->cores == 0) {
    flags->cores =
        device != 0 ? backend.devices()
                    : std::max(1U, std::thread::hardware_concurrency() / flags->threads_per_core);
  }
  if (flags->memory_per_core != 0) return;
  flags->memory_per_core = device != 0 ? device : HostMemory() / 5 * 4 / flags->cores;
}

// This host, as the flags have it.
WorkerProfile HostProfile(const PlanFlags& flags, Backend* backend) {
  const v1::NumericsClass numerics = backend->numerics_class(flags.threads_per_core);
  return {.name = HostName(),
          .device = numerics.backend(),
          .device_model = numerics.device_model(),
          .instruction_set = numerics.instruction_set(),
          .cores = flags.cores,
          .threads_per_core = flags.threads_per_core,
          .memory_per_core = flags.memory_per_core};
}

StatusOr<FilePlan> PlanFor(const v1::JobSpec& spec, PlanFlags flags, const WorkerProfile& profile,
                           Backend* backend) {
  flags.cores = profile.cores;
  flags.threads_per_core = profile.threads_per_core;
  flags.memory_per_core = profile.memory_per_core;
  RING_ASSIGN_OR_RETURN(FilePlan plan, PlanJob(spec, flags, backend));
  plan.job.seconds_per_step = SecondsPerStep(profile, plan.job, plan.model_sha256, plan.policy);
  const std::string here = backend->numerics_class(1).instruction_set();
  if (!profile.instruction_set.empty() && profile.instruction_set != here) {
    plan.job.advice.push_back(
        fmt::format("planned with the kernels of {}: those of {} may take other memory", here,
                    profile.instruction_set));
  }
  return plan;
}

// What knows the memory of the profile's kind: the backend itself, but for TPUs, which are planned
// on any host.
StatusOr<std::unique_ptr<Backend>> OpenPlanner(const WorkerProfile& profile) {
  if (profile.device == "tpu") return pjrt::MakeTpuPlanner(profile.device_model);
  return OpenBackend({profile.device, std::nullopt});
}

// On a host of the profile's kind, or of any for TPUs.
StatusOr<FilePlan> PlanClass(const v1::JobSpec& spec, PlanFlags flags,
                             const WorkerProfile& profile) {
  if (flags.workers == 0) flags.workers = profile.workers;
  RING_ASSIGN_OR_RETURN(const auto backend, OpenPlanner(profile));
  return PlanFor(spec, flags, profile, backend.get());
}

// Measures, keeps the times in the profile's file, and plans with them.
StatusOr<FilePlan> PlanMeasured(const v1::JobSpec& spec, PlanFlags flags, Backend* backend) {
  if (flags.workers == 0) flags.workers = 1;
  WorkerProfile profile = HostProfile(flags, backend);
  const std::string path = ProfilePath(flags.profile.empty() ? profile.name : flags.profile);
  if (std::error_code ignored; std::filesystem::exists(path, ignored)) {
    RING_ASSIGN_OR_RETURN(const std::string text, ReadNamedFile("profile", path));
    RING_ASSIGN_OR_RETURN(std::vector<WorkerProfile> there, ParseProfiles(text, path));
    if (there.size() != 1 || there[0].device_model != profile.device_model ||
        there[0].threads_per_core != profile.threads_per_core) {
      return FailedPrecondition(
          "{} is not the profile of this host: expected {} with {} threads a core; name another "
          "file with --profile",
          path, profile.device_model, profile.threads_per_core);
    }
    profile.measured = std::move(there[0].measured);
  }
  RING_ASSIGN_OR_RETURN(const FilePlan plan, PlanJob(spec, flags, backend));
  RING_RETURN_IF_ERROR(plan.job.Check());
  // Half a shard too: what a round takes beside its samples shows in the difference.
  const auto samples = static_cast<uint32_t>(plan.job.samples);
  for (const uint32_t measured : std::set{samples, std::max(samples / 2, 1U)}) {
    RING_ASSIGN_OR_RETURN(const MeasuredSteps steps,
                          MeasureSteps(spec,
                                       {.samples = measured,
                                        .shards = static_cast<uint32_t>(plan.job.shards),
                                        .cores = flags.cores,
                                        .threads_per_core = flags.threads_per_core,
                                        .memory_per_core = flags.memory_per_core,
                                        .data_root = flags.data_root},
                                       backend));
    Keep(steps, &profile);
  }
  if (const auto folder = std::filesystem::path(path).parent_path(); !folder.empty()) {
    std::error_code ignored;  // writing says why
    std::filesystem::create_directories(folder, ignored);
  }
  RING_RETURN_IF_ERROR(WriteDurably(path, worker::ToJson(profile), kReadableProfile));
  std::cerr << fmt::format("ringworker plan: wrote {}\n", path);
  return PlanFor(spec, flags, profile, backend);
}

Status ShowOne(const StatusOr<FilePlan>& plan, bool json, bool* fits) {
  RING_RETURN_IF_ERROR(plan.status());
  *fits = plan->job.fits();
  if (json) {
    std::cout << ToJson(*plan) << "\n";
  } else {
    PrintPlan(*plan, std::cout);
  }
  return absl::OkStatus();
}

// A file with a list has classes, even if it is one.
// Nothing where no cluster was asked, or nothing is known of the job's shards.
StatusOr<std::optional<SpeedPlan>> PlanCluster(const v1::JobSpec& spec, const PlanFlags& flags,
                                               const std::vector<ClassPlan>& classes) {
  const auto known = std::ranges::find_if(classes, [](const ClassPlan& c) { return c.plan.ok(); });
  if (flags.speeds.empty() || known == classes.end()) return std::optional<SpeedPlan>();
  RING_ASSIGN_OR_RETURN(const std::string text, ReadNamedFile("speeds", flags.speeds));
  RING_ASSIGN_OR_RETURN(const ClusterSpeeds cluster, ParseSpeeds(text, flags.speeds));
  const FilePlan& plan = *known->plan;
  return std::optional(PlanSpeeds(cluster, spec, plan.model_sha256, plan.policy,
                                  static_cast<double>(plan.job.samples)));
}

Status PlanProfiles(const v1::JobSpec& spec, const PlanFlags& flags, bool* fits) {
  const std::string path = ProfilePath(flags.profile);
  const auto shipped = ShippedProfile(flags.profile);
  if (std::error_code ignored; shipped && !std::filesystem::exists(path, ignored)) {
    return ShowOne(PlanClass(spec, flags, *shipped), flags.json, fits);
  }
  RING_ASSIGN_OR_RETURN(const std::string text, ReadNamedFile("profile", path));
  RING_ASSIGN_OR_RETURN(std::vector<WorkerProfile> profiles, ParseProfiles(text, path));
  const bool list = text.find_first_not_of(" \t\r\n") == text.find('[');
  if (!list) return ShowOne(PlanClass(spec, flags, profiles[0]), flags.json, fits);
  std::vector<ClassPlan> classes;
  for (WorkerProfile& profile : profiles) {
    StatusOr<FilePlan> plan = PlanClass(spec, flags, profile);
    *fits = *fits || (plan.ok() && plan->job.fits());
    classes.push_back({std::move(profile), std::move(plan)});
  }
  RING_ASSIGN_OR_RETURN(const std::optional<SpeedPlan> speeds, PlanCluster(spec, flags, classes));
  if (flags.json) {
    std::cout << ToJson(classes, speeds) << "\n";
  } else {
    PrintClasses(classes, std::cout);
    if (speeds) PrintSpeeds(*speeds, std::cout);
  }
  return absl::OkStatus();
}

Status Plan(PlanFlags flags, bool* fits) {
  if (!flags.profile.empty() && !flags.measure &&
      (flags.cores != 0 || flags.memory_per_core != 0)) {
    return InvalidArgument(
        "--profile {} says cores and memory: leave --cores and "
        "--memory-per-core out, or the profile",
        flags.profile);
  }
  RING_ASSIGN_OR_RETURN(const v1::JobSpec spec, job::ReadJob(flags.job_file, flags.overrides));
  if (!flags.profile.empty() && !flags.measure) {
    RING_RETURN_IF_ERROR(PlanProfiles(spec, flags, fits));
  } else {
    RING_ASSIGN_OR_RETURN(const auto backend, OpenBackend(flags.device));
    FillIn(*backend, &flags);
    if (flags.workers == 0 && !flags.measure) flags.workers = kUsualWorkers;
    RING_RETURN_IF_ERROR(ShowOne(flags.measure ? PlanMeasured(spec, flags, backend.get())
                                               : PlanJob(spec, flags, backend.get()),
                                 flags.json, fits));
  }
  std::cout.flush();
  if (!*fits) std::cerr << "ringworker plan: " << spec.name() << " does not fit\n";
  return absl::OkStatus();
}

}  // namespace

int PlanMain(int argc, const char* const* argv) {
  PlanFlags flags;
  std::string device = "cpu", memory;
  CLI::App app{"says whether a job fits this host's cores, and what it takes, before it starts"};
  app.name("ringworker plan");
  AddPlanOptions(&app, &flags, &device, &memory);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kWrongPlan;
  }
  const auto fail = [](const Status& status) {
    std::cerr << "ringworker plan: " << Message(status) << "\n";
    return absl::IsInvalidArgument(status) ? kWrongPlan : kDoesNotFit;
  };
  const auto choice = ParseDevice(device);
  if (!choice.ok()) return fail(choice.status());
  flags.device = *choice;
  if (!memory.empty()) {
    const auto bytes = ParseBytes(memory, "--memory-per-core");
    if (!bytes.ok()) return fail(bytes.status());
    flags.memory_per_core = *bytes;
  }
  bool fits = false;
  const Status planned = Plan(flags, &fits);
  if (!planned.ok()) return fail(planned);
  return fits ? 0 : kDoesNotFit;
}

}  // namespace ringmaster::worker
