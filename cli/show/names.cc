#include "cli/show/names.h"

#include <absl/strings/match.h>
#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <ctime>

#include "common/amount.h"
#include "common/text.h"

namespace ringmaster::cli {
namespace {

std::tm LocalTime(int64_t unix_ms) {
  const std::time_t seconds = unix_ms / 1000;
  std::tm time{};
  localtime_r(&seconds, &time);
  return time;
}

}  // namespace

std::string StateName(v1::JobState state) {
  static const std::string kPrefix = "JOB_STATE_";
  const std::string& name = v1::JobState_Name(state);
  if (state == v1::JOB_STATE_UNSPECIFIED || name.size() <= kPrefix.size()) return "UNKNOWN";
  return name.substr(kPrefix.size());
}

Colour ColourOf(v1::JobState state) {
  switch (state) {
    case v1::JOB_STATE_RUNNING:
    case v1::JOB_STATE_SUCCEEDED:
      return Colour::kGreen;
    case v1::JOB_STATE_FAILED:
      return Colour::kRed;
    default:
      return Colour::kYellow;
  }
}

Colour ColourOfSeverity(const std::string& severity) {
  if (absl::EqualsIgnoreCase(severity, "error")) return Colour::kRed;
  if (absl::EqualsIgnoreCase(severity, "warning")) return Colour::kYellow;
  return Colour::kPlain;
}

std::string GenerationName(const v1::JobStatus& status) {
  const v1::Generation& generation = status.generation();
  if (generation.term() == 0 && generation.counter() == 0) return "";
  return fmt::format("{}.{}", generation.term(), generation.counter());
}

bool UpdatesKnown(const v1::JobStatus& status) {
  return status.updates() > 0 || status.step() == 0 || status.has_loss_scale();
}

uint64_t SkippedSteps(const v1::JobStatus& status) {
  return status.step() - std::min(status.step(), status.updates());
}

std::string StepOfTotal(const v1::JobStatus& status) {
  return status.total_steps() == 0 ? fmt::format("{}", status.step())
                                   : fmt::format("{}/{}", status.step(), status.total_steps());
}

std::string Count(uint64_t number, const std::string& noun) {
  return fmt::format("{} {}{}", number, noun, number == 1 ? "" : "s");
}

std::string WholeSeconds(double seconds) {
  constexpr double kLongest = 1e9;
  const double whole = std::round(std::clamp(seconds, 1.0, kLongest));
  return FormatDuration(std::chrono::seconds(static_cast<int64_t>(whole)));
}

std::string Seconds(double seconds) {
  if (!(seconds > 0)) return "0ms";
  if (seconds < 0.9995) return fmt::format("{:.0f}ms", 1000 * seconds);
  if (seconds < 9.95) return fmt::format("{:.1f}s", seconds);
  return WholeSeconds(seconds);
}

std::string Ranges(const google::protobuf::RepeatedField<uint32_t>& numbers) {
  std::string text;
  for (int i = 0; i < numbers.size();) {
    int j = i;
    while (j + 1 < numbers.size() && numbers[j + 1] == numbers[j] + 1) ++j;
    if (!text.empty()) text += ' ';
    text += i == j ? fmt::format("{}", numbers[i]) : fmt::format("{}-{}", numbers[i], numbers[j]);
    i = j + 1;
  }
  return text;
}

std::string DateAndTime(int64_t unix_ms) {
  return fmt::format("{:%Y-%m-%d %H:%M:%S}", LocalTime(unix_ms));
}

std::string TimeOfDay(int64_t unix_ms) {
  return fmt::format("{:%H:%M:%S}.{:03}", LocalTime(unix_ms), unix_ms % 1000);
}

std::string Printable(const std::string& text) { return OneLine(text, std::string::npos); }

std::string FirstLine(const std::string& text) {
  const std::string line = Printable(text);
  return line.substr(0, line.find("\\n"));
}

std::string OtherLines(const std::string& text) {
  const std::string line = Printable(text);
  std::string others;
  for (size_t at = line.find("\\n"); at != std::string::npos;) {
    const size_t end = line.find("\\n", at + 2);
    others += line.substr(at + 2, end == std::string::npos ? end : end - at - 2) + "\n";
    at = end;
  }
  return others;
}

}  // namespace ringmaster::cli
