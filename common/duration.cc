#include "common/duration.h"

#include <absl/time/time.h>

namespace ringmaster {
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
