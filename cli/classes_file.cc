#include "cli/classes_file.h"

#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <map>
#include <system_error>
#include <tuple>

#include "cli/show/json.h"
#include "common/files.h"

namespace ringmaster::cli {
namespace {

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

}  // namespace

ClassesFile::~ClassesFile() {
  std::error_code ignored;
  if (!path_.empty()) std::filesystem::remove(path_, ignored);
}

StatusOr<std::string> ClassesFile::Write(const v1::ListWorkersResponse& workers) {
  std::string path = (std::filesystem::temp_directory_path() / "ringctl-plan-XXXXXX").string();
  const int file = mkstemp(path.data());
  if (file < 0) return FailedPrecondition("{}: cannot be made", path);
  close(file);
  path_ = path;
  RING_RETURN_IF_ERROR(WriteDurably(path_, ClassesOf(workers).dump(), 0600));
  return path_;
}

}  // namespace ringmaster::cli
