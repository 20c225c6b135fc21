#include "coordinator/store/data_folder.h"

#include <filesystem>
#include <system_error>
#include <utility>

#include "common/files.h"

namespace ringmaster::coordinator {

StatusOr<std::unique_ptr<DataFolder>> DataFolder::Lock(const std::string& path,
                                                       std::chrono::milliseconds patience) {
  std::error_code error;
  const std::string absolute = std::filesystem::absolute(path, error).lexically_normal().string();
  Status made = error ? Error(absl::StatusCode::kUnavailable, "{}", error.message())
                      : MakePrivateFolder(absolute, IfThere::kKeep);
  if (made.ok()) made = MakePrivateFolder(absolute + "/checkpoints");
  if (!made.ok()) {
    return Error(absl::StatusCode::kUnavailable, "--data-dir {}: cannot be made: {}", path,
                 Message(made));
  }
  RING_ASSIGN_OR_RETURN(
      std::unique_ptr<FolderLock> lock,
      FolderLock::Take(absolute,
                       {.flag = "--data-dir", .program = "ringmaster", .patience = patience}));
  return std::unique_ptr<DataFolder>(new DataFolder(absolute, std::move(lock)));
}

}  // namespace ringmaster::coordinator
