// Status and StatusOr are Abseil's; this header is the one place that converts between its strings
// and ours. Thread-safe (free functions).
//
// Debian's Abseil has its own string_view, which std::string_view does not convert to, so messages
// are formatted with fmt into std::string.
#pragma once

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/strings/cord.h>
#include <fmt/format.h>

#include <string>
#include <utility>

namespace ringmaster {

using absl::Status;
using absl::StatusOr;

// An error whose message is formatted by fmt: Error(absl::StatusCode::kNotFound, "no job {}", id).
template <typename... Args>
[[nodiscard]] Status Error(absl::StatusCode code, fmt::format_string<Args...> format,
                           Args&&... args) {
  return Status(code, fmt::format(format, std::forward<Args>(args)...));
}

template <typename... Args>
[[nodiscard]] Status InvalidArgument(fmt::format_string<Args...> format, Args&&... args) {
  return Error(absl::StatusCode::kInvalidArgument, format, std::forward<Args>(args)...);
}

template <typename... Args>
[[nodiscard]] Status FailedPrecondition(fmt::format_string<Args...> format, Args&&... args) {
  return Error(absl::StatusCode::kFailedPrecondition, format, std::forward<Args>(args)...);
}

template <typename... Args>
[[nodiscard]] Status Internal(fmt::format_string<Args...> format, Args&&... args) {
  return Error(absl::StatusCode::kInternal, format, std::forward<Args>(args)...);
}

template <typename... Args>
[[nodiscard]] Status DataLoss(fmt::format_string<Args...> format, Args&&... args) {
  return Error(absl::StatusCode::kDataLoss, format, std::forward<Args>(args)...);
}

// The message alone, as a std::string.
[[nodiscard]] inline std::string Message(const Status& status) {
  return std::string(status.message().data(), status.message().size());
}

// What an error says to programs, beside its message for people: one value for each key. It stays
// when the error is annotated, and whoever says it first knows best.
[[nodiscard]] inline Status WithDetail(const char* key, const std::string& value, Status status) {
  if (!status.ok() && !status.GetPayload(key)) status.SetPayload(key, absl::Cord(value));
  return status;
}
// Empty where it says nothing of that.
[[nodiscard]] inline std::string DetailOf(const char* key, const Status& status) {
  const auto detail = status.GetPayload(key);
  return detail ? std::string(*detail) : "";
}

// The same code and details with `context: ` before the message; OK stays OK.
[[nodiscard]] inline Status Annotate(const Status& status, const std::string& context) {
  if (status.ok()) return status;
  Status annotated(status.code(), context + ": " + Message(status));
  status.ForEachPayload(
      [&](const auto& key, const absl::Cord& value) { annotated.SetPayload(key, value); });
  return annotated;
}

}  // namespace ringmaster

#define RING_CONCAT_INNER(a, b) a##b
#define RING_CONCAT(a, b) RING_CONCAT_INNER(a, b)

#define RING_RETURN_IF_ERROR(expression)       \
  do {                                         \
    ::absl::Status ring_status = (expression); \
    if (!ring_status.ok()) return ring_status; \
  } while (false)

#define RING_ASSIGN_OR_RETURN(target, expression) \
  RING_ASSIGN_OR_RETURN_INNER(RING_CONCAT(ring_or_, __LINE__), target, expression)
#define RING_ASSIGN_OR_RETURN_INNER(status_or, target, expression) \
  auto status_or = (expression);                                   \
  if (!status_or.ok()) return status_or.status();                  \
  target = std::move(status_or).value()
