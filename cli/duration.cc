#include "cli/duration.h"

#include <charconv>
#include <utility>

namespace ringmaster::cli {
namespace {

constexpr std::pair<const char*, double> kUnits[] = {
    {"ms", 1}, {"s", 1e3}, {"m", 60e3}, {"h", 3600e3}};
constexpr double kYear = 365 * 24 * 3600e3;

}  // namespace

StatusOr<std::chrono::milliseconds> ParseDuration(const std::string& text,
                                                  const std::string& what) {
  double number = 0;
  const char* const last = text.data() + text.size();
  const auto [end, error] = std::from_chars(text.data(), last, number, std::chars_format::fixed);
  const std::string unit(end, last);
  if (error == std::errc()) {
    for (const auto& [name, milliseconds] : kUnits) {
      const double total = number * milliseconds;
      if (unit == name && total >= 1 && total <= kYear) {
        return std::chrono::milliseconds(static_cast<int64_t>(total));
      }
    }
  }
  return InvalidArgument(
      "{} {}: expected a positive number and ms, s, m or h, for example 90s, 10m or 1h", what,
      text);
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

}  // namespace ringmaster::cli
