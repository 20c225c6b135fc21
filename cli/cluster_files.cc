#include "cli/cluster_files.h"

#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <map>
#include <set>
#include <system_error>
#include <tuple>
#include <utility>

#include "cli/show/json.h"
#include "common/files.h"
#include "common/job/field_names.h"
#include "common/job/resolve.h"

namespace ringmaster::cli {
namespace {

constexpr int kMostJobs = 32;  // that are asked what they took

// What workers have in common for which one plan is true, as ringworker reads it from a profile.
Json ClassesOf(const v1::ListWorkersResponse& workers) {
  using Class = std::tuple<std::string, std::string, std::string, uint32_t, uint32_t, uint64_t>;
  std::map<Class, uint32_t> counts;
  for (const v1::WorkerStatus& worker : workers.workers()) {
    const v1::NumericsClass& numerics = worker.numerics_class();
    ++counts[{numerics.backend(), numerics.device_model(), numerics.instruction_set(),
              worker.cores(), worker.threads_per_core(), worker.memory_per_core()}];
  }
  Json classes = Json::array();
  for (const auto& [one, count] : counts) {
    const auto& [backend, model, instructions, cores, threads, memory] = one;
    classes.push_back({{"name", fmt::format("{} {}", backend, model)},
                       {"device", backend},
                       {"device_model", model},
                       {"instruction_set", instructions},
                       {"cores", cores},
                       {"threads_per_core", threads},
                       {"memory_per_core", memory},
                       {"workers", count}});
  }
  return classes;
}

// Shards of one job that were measured on workers of these names; null: none.
Json SpeedsIn(const v1::JobStatus& job, const std::set<std::string>& names) {
  Json took = Json::array();
  const auto add = [&](const v1::JobWorker& worker) {
    if (!(worker.shard_seconds() > 0) || !names.contains(worker.name())) return;
    took.push_back({{"name", worker.name()},
                    {"class", worker.class_()},
                    {"shard_seconds", worker.shard_seconds()}});
  };
  for (const v1::JobWorker& worker : job.workers()) add(worker);
  for (const v1::JobWorker& worker : job.left_out()) add(worker);
  if (took.empty() || job.model_sha256().empty()) return nullptr;
  const v1::JobSpec spec = job::WithDefaults(job.spec());
  const auto* const policy = v1::Policy_descriptor()->FindValueByNumber(spec.precision().policy());
  if (policy == nullptr || spec.shards() == 0) return nullptr;
  return {{"job_id", job.job_id()},
          {"model_sha256", job.model_sha256()},
          {"policy", job::ShortName(*policy)},
          {"samples", (spec.batch() + spec.shards() - 1) / spec.shards()},
          {"workers", std::move(took)}};
}

}  // namespace

std::string SpeedsOf(const v1::ListWorkersResponse& workers, const v1::ListResponse& jobs) {
  Json attached = Json::array(), measured = Json::array();
  std::set<std::string> names;
  for (const v1::WorkerStatus& worker : workers.workers()) {
    if (worker.state() == "DRAINING" || worker.state() == "DRAINED") continue;
    names.insert(worker.name());
    attached.push_back(
        {{"name", worker.name()}, {"class", worker.class_()}, {"cores", worker.cores()}});
  }
  for (const v1::JobStatus& job : jobs.jobs()) {
    Json speeds = SpeedsIn(job, names);
    if (!speeds.is_null()) measured.push_back(std::move(speeds));
    if (measured.size() == kMostJobs) break;
  }
  return Json{{"workers", std::move(attached)}, {"jobs", std::move(measured)}}.dump();
}

ClusterFiles::~ClusterFiles() {
  std::error_code ignored;
  for (const std::string& path : paths_) std::filesystem::remove(path, ignored);
}

StatusOr<std::string> ClusterFiles::WriteClasses(const v1::ListWorkersResponse& workers) {
  return Write(ClassesOf(workers).dump());
}

StatusOr<std::string> ClusterFiles::WriteSpeeds(const v1::ListWorkersResponse& workers,
                                                const v1::ListResponse& jobs) {
  return Write(SpeedsOf(workers, jobs));
}

StatusOr<std::string> ClusterFiles::Write(const std::string& text) {
  std::string path = (std::filesystem::temp_directory_path() / "ringctl-plan-XXXXXX").string();
  const int file = mkstemp(path.data());
  if (file < 0) return FailedPrecondition("{}: cannot be made", path);
  close(file);
  paths_.push_back(path);
  RING_RETURN_IF_ERROR(WriteDurably(path, text, 0600));
  return path;
}

}  // namespace ringmaster::cli
