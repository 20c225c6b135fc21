// Files of a state folder, as if they had been used at some time. Main thread.
#pragma once

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <chrono>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "common/check.h"
#include "tests/support/temporary_folder.h"

namespace ringmaster::testing {

inline constexpr std::chrono::sys_seconds kLongAgo{std::chrono::seconds(1'000'000'000)};

// When a file was read last; its time of change stays.
inline void SetUsed(const std::string& path, std::chrono::sys_seconds when) {
  timespec times[2] = {{.tv_sec = when.time_since_epoch().count(), .tv_nsec = 0}, {}};
  times[1].tv_nsec = UTIME_OMIT;
  RING_CHECK(utimensat(AT_FDCWD, path.c_str(), times, 0) == 0, "utimensat");
}

// The paths of so many new files, each used a second after the one before it.
inline std::vector<std::string> WriteOld(const std::string& folder, const std::string& prefix,
                                         const std::string& suffix, size_t count) {
  std::vector<std::string> paths;
  for (size_t i = 0; i < count; ++i) {
    paths.push_back(fmt::format("{}/{}old{:03}{}", folder, prefix, i, suffix));
    WriteWhole(paths.back(), "old");
    SetUsed(paths.back(), kLongAgo + std::chrono::seconds(i));
  }
  return paths;
}

// Of the files in a folder, those whose names end so.
inline std::set<std::string> NamesIn(const std::string& folder, const std::string& suffix) {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (name.ends_with(suffix)) names.insert(name);
  }
  return names;
}

}  // namespace ringmaster::testing
