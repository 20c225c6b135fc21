#include "common/data/hash_cache.h"

#include <chrono>
#include <fstream>
#include <sstream>
#include <utility>

#include "common/files.h"
#include "common/log.h"
#include "common/sha256.h"

namespace ringmaster::data {
namespace {

// File systems stamp times in steps of up to two seconds.
constexpr int64_t kSettledNs = 3'000'000'000;

}  // namespace

FileIdentity FileIdentity::Of(const struct stat& status) {
  const auto now = std::chrono::duration_cast<std::chrono::nanoseconds>(
                       std::chrono::system_clock::now().time_since_epoch())
                       .count();
  const int64_t modified_ns = status.st_mtim.tv_sec * 1'000'000'000 + status.st_mtim.tv_nsec;
  return {.device = status.st_dev,
          .inode = status.st_ino,
          .size = static_cast<uint64_t>(status.st_size),
          .modified_ns = modified_ns,
          .settled = now - modified_ns >= kSettledNs};
}

Status StillWanted(const std::stop_token& stop) {
  if (!stop.stop_requested()) return absl::OkStatus();
  return absl::CancelledError("the dataset is not wanted any more");
}

HashCache::HashCache(const std::string& state_dir, const std::string& format, std::stop_token stop)
    : folder_(state_dir), stop_(std::move(stop)) {
  if (state_dir.empty()) return;
  path_ = fmt::format("{}/{}.sha256", state_dir, format);
  std::ifstream file(path_);
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    FileIdentity id;
    KnownFile known;
    words >> id.device >> id.inode >> id.size >> id.modified_ns >> known.sha256;
    if (!words || !DigestFromHex(known.sha256)) continue;
    if (!(words >> known.largest)) known.largest = -1;
    entries_[id] = known;
  }
}

std::optional<KnownFile> HashCache::Find(const FileIdentity& file) const {
  const auto found = entries_.find(file);
  if (found == entries_.end()) return std::nullopt;
  return found->second;
}

void HashCache::Remember(const FileIdentity& file, const KnownFile& known) {
  if (path_.empty() || !file.settled) return;
  // What the same file was before is of no use any more.
  std::erase_if(entries_, [&](const auto& entry) {
    return entry.first.device == file.device && entry.first.inode == file.inode;
  });
  entries_[file] = known;
  changed_ = true;
}

void HashCache::Save() {
  if (!changed_) return;
  std::string content;
  for (const auto& [id, known] : entries_) {
    content +=
        fmt::format("{} {} {} {} {}", id.device, id.inode, id.size, id.modified_ns, known.sha256);
    content += known.largest < 0 ? "\n" : fmt::format(" {}\n", known.largest);
  }
  const Status written = WriteDurably(path_, content);
  if (!written.ok()) {
    spdlog::warn("the dataset is hashed again at the next start: {}", Message(written));
    return;
  }
  changed_ = false;
}

}  // namespace ringmaster::data
