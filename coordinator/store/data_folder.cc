#include "coordinator/store/data_folder.h"

#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>
#include <utility>

#include "common/files.h"
#include "common/ticket.h"

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

StatusOr<std::string> DataFolder::Secret() const {
  const std::string path = path_ + "/secret";
  {
    std::ifstream file(path, std::ios::binary);
    std::string secret{std::istreambuf_iterator<char>(file), {}};
    if (secret.size() == 2 * kTicketBytes) return secret;
  }
  std::string secret = RandomTicket() + RandomTicket();
  RING_RETURN_IF_ERROR(Annotate(WriteDurably(path, secret), "--data-dir"));
  return secret;
}

}  // namespace ringmaster::coordinator
