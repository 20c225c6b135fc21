#include "common/amount.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <iterator>
#include <utility>
#include <vector>

#include <absl/strings/str_split.h>
#include <absl/time/time.h>

namespace ringmaster {
namespace {

std::string ContentOf(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

// A limit stands alone in its file; `max`, or a file that is not there, is none.
std::optional<uint64_t> LimitIn(const std::string& path) {
  const std::string text = ContentOf(path);
  uint64_t bytes = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), bytes);
  if (error != std::errc() || bytes == 0) return std::nullopt;
  return bytes;
}

// Of `group` (`/user.slice/job`) and every group above it, the root included.
std::optional<uint64_t> SmallestLimit(const std::string& root, std::string group,
                                      const char* file) {
  std::optional<uint64_t> smallest;
  for (;;) {
    while (group.ends_with('/')) group.pop_back();
    const auto limit = LimitIn(root + group + '/' + file);
    if (limit && (!smallest || *limit < *smallest)) smallest = limit;
    if (group.empty()) return smallest;
    group.erase(group.rfind('/') == std::string::npos ? 0 : group.rfind('/'));
  }
}

}  // namespace

StatusOr<uint64_t> ParseBytes(const std::string& text, const std::string& what) {
  static constexpr std::pair<const char*, int> kUnits[] = {
      {"KiB", 10}, {"MiB", 20}, {"GiB", 30}, {"TiB", 40}, {"", 0}};
  uint64_t number = 0;
  const char* const last = text.data() + text.size();
  const auto [end, error] = std::from_chars(text.data(), last, number);
  if (error == std::errc() && number > 0) {
    for (const auto& [unit, shift] : kUnits) {
      if (std::string(end, last) == unit && number <= (uint64_t{1} << (63 - shift))) {
        return number << shift;
      }
    }
  }
  return InvalidArgument("{} {}: expected an amount of memory, for example 8GiB or 512MiB", what,
                         text);
}

std::string FormatHbm(uint64_t bytes) {
  constexpr double kMebi = 1 << 20, kGibi = 1 << 30;
  const auto amount = static_cast<double>(bytes);
  return amount < kGibi ? fmt::format("{:.2f}M", amount / kMebi)
                        : fmt::format("{:.2f}G", amount / kGibi);
}

std::string FormatBytes(uint64_t bytes) {
  static constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  auto amount = static_cast<double>(bytes);
  size_t unit = 0;
  for (; amount >= 1024 && unit + 1 < std::size(kUnits); ++unit) amount /= 1024;
  return unit == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.1f} {}", amount, kUnits[unit]);
}

uint64_t HostMemory() {
  const uint64_t physical =
      static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  const auto limit = CgroupMemoryLimit("/sys/fs/cgroup", ContentOf("/proc/self/cgroup"));
  return std::min(physical, limit.value_or(physical));
}

std::optional<uint64_t> CgroupMemoryLimit(const std::string& mount, const std::string& membership) {
  std::optional<uint64_t> smallest;
  const auto take = [&](std::optional<uint64_t> limit) {
    if (limit && (!smallest || *limit < *smallest)) smallest = limit;
  };
  const std::vector<std::string> lines = absl::StrSplit(membership, '\n');
  for (const std::string& line : lines) {  // `0::/group`, of version 1 `5:memory,hugetlb:/group`
    const std::vector<std::string> parts = absl::StrSplit(line, absl::MaxSplits(':', 2));
    if (parts.size() != 3) continue;
    const std::vector<std::string> controllers = absl::StrSplit(parts[1], ',');
    if (parts[1].empty()) take(SmallestLimit(mount, parts[2], "memory.max"));
    if (std::find(controllers.begin(), controllers.end(), "memory") != controllers.end()) {
      take(SmallestLimit(mount + "/memory", parts[2], "memory.limit_in_bytes"));
    }
  }
  return smallest;
}

namespace {

constexpr std::chrono::hours kDay(24);

// A year is no duration that anybody reads as 8760h.
std::string Limit(std::chrono::milliseconds limit) {
  if (limit >= 2 * kDay && limit % kDay == limit.zero()) {
    return fmt::format("{} days", limit / kDay);
  }
  return ExactDuration(limit);
}

}  // namespace

StatusOr<std::chrono::milliseconds> ParseDuration(const std::string& text, const std::string& what,
                                                  const DurationRange& range) {
  absl::Duration duration;
  if (absl::ParseDuration(text, &duration)) {
    const absl::Duration whole = absl::Trunc(duration, absl::Milliseconds(1));
    const std::chrono::milliseconds parsed = absl::ToChronoMilliseconds(whole);
    if (whole == duration && parsed >= range.least && parsed <= range.most) return parsed;
  }
  return InvalidArgument("{} {}: expected a time from {} to {}, with its unit: 500ms, 90s, 10m, 1h",
                         what, text, Limit(range.least), Limit(range.most));
}

std::string ExactDuration(std::chrono::milliseconds duration) {
  return absl::FormatDuration(absl::FromChrono(duration));
}

std::string FormatDuration(std::chrono::seconds duration) {
  const int64_t seconds = duration.count() < 0 ? 0 : duration.count();
  const int64_t minutes = seconds / 60;
  const int64_t hours = minutes / 60;
  if (minutes == 0) return fmt::format("{}s", seconds);
  if (hours == 0) return fmt::format("{}m{:02}s", minutes, seconds % 60);
  if (hours < 24) return fmt::format("{}h{:02}m", hours, minutes % 60);
  return fmt::format("{}d{:02}h", hours / 24, hours % 24);
}

}  // namespace ringmaster
