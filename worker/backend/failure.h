// Why a job cannot go on here, said where it is known: a code that travels with an error, however
// often that is annotated, until it stands in a message for the coordinator. Texts are for people.
// Values; thread-safe (free functions). Backends that are libraries of their own use it, too, so it
// asks nothing of the messages' descriptors.
#pragma once

#include <string>
#include <utility>

#include "common/status.h"
#include "ringmaster/v1/fleet.pb.h"

namespace ringmaster {

inline constexpr const char* kFailureKey = "ringmaster/failure";

// What is said already stays: who is nearer to the cause knows more.
[[nodiscard]] inline Status WithFailure(v1::FailureCode code, Status status) {
  return WithDetail(kFailureKey, std::to_string(code), std::move(status));
}

// UNSPECIFIED where nobody said why.
[[nodiscard]] inline v1::FailureCode FailureOf(const Status& status) {
  const std::string code = DetailOf(kFailureKey, status);
  return code.empty() ? v1::FAILURE_CODE_UNSPECIFIED
                      : static_cast<v1::FailureCode>(std::stoi(code));
}

// RESOURCE_EXHAUSTED: memory that a plan does not fit, or that cannot be had.
template <typename... Args>
[[nodiscard]] Status OutOfMemory(fmt::format_string<Args...> format, Args&&... args) {
  return WithFailure(v1::FAILURE_CODE_MEMORY, Error(absl::StatusCode::kResourceExhausted, format,
                                                    std::forward<Args>(args)...));
}

}  // namespace ringmaster
