// What the disk refused: UNAVAILABLE, since it may work again later. Thread-safe (free functions).
#pragma once

#include <cerrno>
#include <string>
#include <system_error>

#include "common/status.h"

namespace ringmaster::coordinator {

// `what` as in "rename to": followed by the path and the system's reason.
[[nodiscard]] inline Status DiskError(const std::string& what, const std::string& path,
                                      const std::error_code& error) {
  return Error(absl::StatusCode::kUnavailable, "{} {}: {}", what, path, error.message());
}

// The reason is in errno.
[[nodiscard]] inline Status DiskError(const std::string& what, const std::string& path) {
  return DiskError(what, path, std::error_code(errno, std::generic_category()));
}

}  // namespace ringmaster::coordinator
