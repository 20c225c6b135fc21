#include "common/data/kept_files.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <tuple>
#include <vector>

#include "common/amount.h"
#include "common/log.h"

namespace ringmaster::data {
namespace {

OwnedFile OpenKept(const std::string& path) {
  return OwnedFile(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
}

struct Kept {
  std::string path;
  uint64_t bytes = 0;
  timespec used = {};
};

// Of a folder, what was used longest ago first.
std::vector<Kept> KeptIn(const std::string& folder, const KeptFiles& kind) {
  namespace fs = std::filesystem;
  std::vector<Kept> all;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    struct stat status = {};
    const std::string path = at->path().string(), name = at->path().filename().string();
    if (!name.starts_with(kind.prefix) || !name.ends_with(kind.suffix)) continue;
    if (lstat(path.c_str(), &status) != 0 || !S_ISREG(status.st_mode)) continue;
    all.push_back({path, static_cast<uint64_t>(status.st_size), status.st_atim});
  }
  std::ranges::sort(all, {}, [](const Kept& one) {
    return std::tuple(one.used.tv_sec, one.used.tv_nsec, one.path);
  });
  return all;
}

// Whether nobody had it open.
bool RemoveUnused(const std::string& path) {
  const OwnedFile file = OpenKept(path);
  return file.valid() && flock(file.get(), LOCK_EX | LOCK_NB) == 0 && unlink(path.c_str()) == 0;
}

}  // namespace

void MarkUsed(const OwnedFile& file) {
  (void)flock(file.get(), LOCK_SH | LOCK_NB);
  timespec times[2] = {};
  times[0].tv_nsec = UTIME_NOW;
  times[1].tv_nsec = UTIME_OMIT;
  (void)futimens(file.get(), times);
}

std::optional<std::string> ReadKept(const std::string& path) {
  const OwnedFile file = OpenKept(path);
  struct stat status = {};
  if (!file.valid() || fstat(file.get(), &status) != 0) return std::nullopt;
  MarkUsed(file);
  return ReadText(file.get(), 0, static_cast<uint64_t>(status.st_size));
}

void DropOldest(const std::string& folder, const KeptFiles& kept) {
  const std::vector<Kept> all = KeptIn(folder, kept);
  size_t files = all.size();
  uint64_t bytes = 0;
  for (const Kept& one : all) bytes += one.bytes;
  const uint64_t most = kept.bytes.value_or((bytes + FreeBytes(folder).value_or(bytes)) / 2);
  for (const Kept& one : all) {
    const bool newest = &one == &all.back();
    if (newest || (files <= kept.files && bytes <= most)) return;
    if (!RemoveUnused(one.path)) continue;
    spdlog::info("removed {} ({}), which was used longest ago", one.path, FormatBytes(one.bytes));
    --files;
    bytes -= one.bytes;
  }
}

}  // namespace ringmaster::data
