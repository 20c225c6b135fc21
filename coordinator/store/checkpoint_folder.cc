#include "coordinator/store/checkpoint_folder.h"

#include <atomic>
#include <filesystem>
#include <set>
#include <system_error>

#include "common/durable_file.h"
#include "common/sha256.h"

namespace ringmaster::coordinator {
namespace {

namespace fs = std::filesystem;

constexpr char kStaging[] = ".staging";

Status Unavailable(const std::string& what, const std::string& path, const std::error_code& error) {
  return Error(absl::StatusCode::kUnavailable, "{} {}: {}", what, path, error.message());
}

}  // namespace

Status CheckpointFolder::Sweep(const std::vector<std::string>& known) const {
  const std::set<std::string> keep(known.begin(), known.end());
  std::error_code error;
  fs::remove_all(root_ + "/" + kStaging, error);
  if (error) return Unavailable("remove", root_ + "/" + kStaging, error);
  for (const fs::directory_entry& job : fs::directory_iterator(root_, error)) {
    std::error_code inner;
    for (const fs::directory_entry& step : fs::directory_iterator(job.path(), inner)) {
      const std::string path = step.path().string();
      if (keep.contains(path)) continue;
      RING_RETURN_IF_ERROR(Remove(path));
    }
  }
  return error ? Unavailable("list", root_, error) : absl::OkStatus();
}

StatusOr<std::unique_ptr<StagedCheckpoint>> CheckpointFolder::Stage(const JobId& job,
                                                                    uint64_t step) const {
  static std::atomic<uint64_t> sequence{0};
  const std::string target = fmt::format("{}/{}/step-{:08}", root_, job.value(), step);
  const std::string temporary =
      fmt::format("{}/{}/{}-{}-{}", root_, kStaging, job.value(), step, sequence.fetch_add(1));
  std::error_code error;
  fs::create_directories(temporary, error);
  if (error) return Unavailable("make", temporary, error);
  return std::make_unique<StagedCheckpoint>(temporary, target, step);
}

StatusOr<std::string> CheckpointFolder::Commit(const StagedCheckpoint& staged) const {
  const fs::path target = staged.target();
  std::error_code error;
  if (fs::exists(target, error)) {
    RING_ASSIGN_OR_RETURN(const std::string sha256,
                          Sha256HexOfFile((target / kManifestName).string()));
    if (sha256 == staged.manifest_sha256()) return target.string();
    return Error(absl::StatusCode::kAlreadyExists,
                 "{} holds another checkpoint: manifest {}, not {}", target.string(), sha256,
                 staged.manifest_sha256());
  }
  fs::create_directories(target.parent_path(), error);
  if (error) return Unavailable("make", target.parent_path().string(), error);
  RING_RETURN_IF_ERROR(SyncFolder(root_));
  RING_RETURN_IF_ERROR(SyncFolder(staged.temporary()));
  fs::rename(staged.temporary(), target, error);
  if (error) return Unavailable("rename to", target.string(), error);
  RING_RETURN_IF_ERROR(SyncFolder(target.parent_path().string()));
  return target.string();
}

Status CheckpointFolder::Remove(const std::string& path) const {
  std::error_code error;
  fs::remove_all(path, error);
  return error ? Unavailable("remove", path, error) : absl::OkStatus();
}

}  // namespace ringmaster::coordinator
