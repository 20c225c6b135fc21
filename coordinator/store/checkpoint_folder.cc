#include "coordinator/store/checkpoint_folder.h"

#include <spdlog/spdlog.h>

#include <atomic>
#include <filesystem>
#include <system_error>
#include <utility>

#include "common/amount.h"
#include "common/files.h"
#include "common/sha256.h"
#include "coordinator/logic/logic.h"
#include "coordinator/store/checkpoint_reader.h"
#include "coordinator/store/data_folder.h"
#include "coordinator/store/store.h"

namespace ringmaster::coordinator {
namespace {

namespace fs = std::filesystem;

constexpr char kStaging[] = ".staging";

std::string FolderName(uint64_t step) { return fmt::format("step-{:08}", step); }

struct Whole {
  std::string sha256;  // of its manifest
  Manifest manifest;
};

// Reads all of a checkpoint; the error says what is not as its own manifest has it.
StatusOr<Whole> ReadWhole(const std::string& path) {
  Whole whole;
  RING_ASSIGN_OR_RETURN(whole.sha256, Sha256HexOfFile(path + "/" + kManifestName));
  RING_ASSIGN_OR_RETURN(const auto reader, CheckpointReader::Open(path, whole.sha256));
  for (;;) {
    RING_ASSIGN_OR_RETURN(const std::optional<v1::FilePiece> piece, reader->Next());
    if (!piece) break;
  }
  whole.manifest = reader->manifest();
  return whole;
}

}  // namespace

std::string CheckpointFolder::NewStagingPath(const std::string& name) const {
  static std::atomic<uint64_t> sequence{0};
  return fmt::format("{}/{}/{}-{}", root_, kStaging, name, sequence.fetch_add(1));
}

StatusOr<CheckpointFolder::Swept> CheckpointFolder::Sweep(const Known& known) const {
  std::error_code error;
  fs::remove_all(root_ + "/" + kStaging, error);
  if (error) return DiskError("remove", root_ + "/" + kStaging, error);
  Swept swept;
  for (const fs::directory_entry& job : fs::directory_iterator(root_, error)) {
    const std::string job_id = job.path().filename().string();
    if (known.removed.contains(job_id)) {
      const Status gone = RemoveJob(job_id);
      if (!gone.ok()) swept.warnings.push_back("of a job that was removed: " + Message(gone));
      continue;
    }
    if (!known.jobs.contains(job_id)) {
      swept.unknown_jobs.push_back(job_id);
      swept.warnings.push_back(fmt::format(
          "{} belongs to no job that the store knows; it is left as it is", job.path().string()));
      continue;
    }
    std::error_code inner;
    for (const fs::directory_entry& step : fs::directory_iterator(job.path(), inner)) {
      if (!known.paths.contains(step.path().string())) {
        Inspect(job_id, step.path().string(), swept);
      }
    }
    if (inner) return DiskError("list", job.path().string(), inner);
  }
  if (error) return DiskError("list", root_, error);
  return swept;
}

void CheckpointFolder::Inspect(const std::string& job, const std::string& path,
                               Swept& swept) const {
  const auto leave = [&](const std::string& why) {
    swept.warnings.push_back(
        fmt::format("{} is not in the store, and it is left as it is: {}", path, why));
  };
  const StatusOr<Whole> whole = ReadWhole(path);
  if (!whole.ok()) return leave("it is not a whole checkpoint: " + Message(whole.status()));
  const uint64_t step = whole->manifest.step;
  if (fs::path(path).filename() != FolderName(step)) {
    return leave(fmt::format("its manifest is of step {}", step));
  }
  StrayCheckpoint& stray = swept.strays.emplace_back();
  stray.job_id = job;
  stray.ref.set_path(path);
  stray.ref.set_step(step);
  stray.ref.set_sha256(whole->sha256);
  stray.result_digest = whole->manifest.result_digest;
  stray.class_maps = whole->manifest.class_maps;
}

StatusOr<std::unique_ptr<StagedCheckpoint>> CheckpointFolder::Stage(const JobId& job, uint64_t step,
                                                                    uint64_t max_bytes) const {
  const std::string target = fmt::format("{}/{}/{}", root_, job.value(), FolderName(step));
  const std::string temporary = NewStagingPath(fmt::format("{}-{}", job.value(), step));
  RING_RETURN_IF_ERROR(CheckQuota(max_bytes));
  RING_RETURN_IF_ERROR(MakePrivateFolder(temporary));
  auto staged = std::make_unique<StagedCheckpoint>(temporary, target, step, max_bytes);
  *arriving_ += max_bytes;
  staged->Hold(std::shared_ptr<const void>(
      nullptr, [arriving = arriving_, max_bytes](const void*) { *arriving -= max_bytes; }));
  return staged;
}

// The disk is asked each time: a count beside it could be wrong, and checkpoints are seldom.
Status CheckpointFolder::CheckQuota(uint64_t more) const {
  if (quota_ == kNoQuota) return absl::OkStatus();
  std::error_code error;
  uint64_t there = 0;
  for (auto entry = fs::recursive_directory_iterator(root_, error);
       !error && entry != fs::recursive_directory_iterator(); entry.increment(error)) {
    if (entry->path() == fs::path(root_) / kStaging) {
      entry.disable_recursion_pending();
      continue;
    }
    std::error_code gone;  // it is removed at this moment
    if (!entry->is_regular_file(gone)) continue;
    const uint64_t bytes = entry->file_size(gone);
    if (!gone) there += bytes;
  }
  if (error) return DiskError("list", root_, error);
  const uint64_t arriving = *arriving_;
  if (there + arriving + more <= quota_) return absl::OkStatus();
  return Error(absl::StatusCode::kResourceExhausted,
               "the checkpoints of all jobs have {} of the {} of --checkpoint-quota, those that "
               "arrive may need {}, and this one {}; give the coordinator a larger quota, "
               "remove jobs that ended (`ringctl remove JOB...`), or let jobs keep fewer "
               "(checkpoint.keep)",
               FormatBytes(there), FormatBytes(quota_), FormatBytes(arriving), FormatBytes(more));
}

// Whether the place is taken by the same checkpoint. One that is not whole is taken away, as nobody
// can use it; another whole one, which the store does not know or it would have been refused
// before, makes room and is kept: by other class maps, say, of a job whose store was put back. One
// that the store has just forgotten is usually gone by then.
StatusOr<bool> CheckpointFolder::HoldsSame(const StagedCheckpoint& staged) const {
  std::error_code error;
  if (!fs::exists(staged.target(), error)) return false;
  const StatusOr<Whole> there = ReadWhole(staged.target());
  if (absl::IsUnavailable(there.status())) return there.status();  // it may well be whole
  if (!there.ok()) {
    RING_RETURN_IF_ERROR(Remove(staged.target()));
    return false;
  }
  if (there->sha256 == staged.manifest_sha256()) return true;
  const std::string aside = fmt::format("{}.other-{}", staged.target(), there->sha256.substr(0, 8));
  if (fs::exists(aside, error)) {  // the same one came a second time
    RING_RETURN_IF_ERROR(Remove(staged.target()));
    return false;
  }
  fs::rename(staged.target(), aside, error);
  if (error) return DiskError("rename", staged.target(), error);
  spdlog::warn("{} held another checkpoint, which the store does not know: it is {} now",
               staged.target(), aside);
  return false;
}

StatusOr<std::string> CheckpointFolder::Commit(const StagedCheckpoint& staged) const {
  const fs::path target = staged.target();
  RING_ASSIGN_OR_RETURN(const bool same, HoldsSame(staged));
  if (same) return target.string();
  std::error_code error;
  RING_RETURN_IF_ERROR(MakePrivateFolder(target.parent_path().string()));
  RING_RETURN_IF_ERROR(SyncFolder(root_));
  RING_RETURN_IF_ERROR(SyncFolder(staged.temporary()));
  fs::rename(staged.temporary(), target, error);
  if (error) return DiskError("rename to", target.string(), error);
  const Status synced = SyncFolder(target.parent_path().string());
  if (synced.ok()) return target.string();
  // Another try must not find it here and take it for durable.
  (void)Remove(target.string());
  return synced;
}

Status CheckpointFolder::Remove(const std::string& path) const {
  std::error_code error;
  const std::string aside = NewStagingPath("removed");
  RING_RETURN_IF_ERROR(MakePrivateFolder(fs::path(aside).parent_path().string()));
  fs::rename(path, aside, error);
  if (error == std::errc::no_such_file_or_directory) return absl::OkStatus();
  if (error) return DiskError("rename", path, error);
  fs::remove_all(aside, error);
  return error ? DiskError("remove", aside, error) : absl::OkStatus();
}

StatusOr<Restored> LoadAll(Store& store, const CheckpointFolder& folder) {
  Restored restored;
  restored.term = store.term();
  RING_ASSIGN_OR_RETURN(restored.jobs, store.LoadJobs());
  RING_ASSIGN_OR_RETURN(restored.removed, store.LoadRemoved());
  RING_ASSIGN_OR_RETURN(restored.checkpoints, store.LoadCheckpoints());
  RING_ASSIGN_OR_RETURN(restored.drains, store.LoadDrains());
  CheckpointFolder::Known known;
  for (const JobRecord& job : restored.jobs) known.jobs.insert(job.id());
  for (const RemovedJob& job : restored.removed) known.removed.insert(job.job_id);
  for (const CheckpointRecord& checkpoint : restored.checkpoints) {
    known.paths.insert(checkpoint.ref.path());
  }
  RING_ASSIGN_OR_RETURN(CheckpointFolder::Swept swept, folder.Sweep(known));
  for (const std::string& warning : swept.warnings) spdlog::warn("checkpoints: {}", warning);
  restored.taken_ids = std::move(swept.unknown_jobs);
  restored.strays = std::move(swept.strays);
  return restored;
}

}  // namespace ringmaster::coordinator
