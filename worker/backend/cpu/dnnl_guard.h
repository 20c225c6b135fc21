// The border to oneDNN: its exceptions and status codes become Status here. Thread-safe.
#pragma once

#include <dnnl.hpp>
#include <string>
#include <utility>

#include "common/status.h"

namespace ringmaster::cpu {

[[nodiscard]] Status DnnlStatus(dnnl_status_t status, const std::string& what);

// body() as a StatusOr; `what` says in an error what was tried.
template <typename Body>
[[nodiscard]] auto GuardDnnl(const std::string& what, Body&& body)
    -> StatusOr<decltype(std::forward<Body>(body)())> {
  try {
    return std::forward<Body>(body)();
  } catch (const dnnl::error& error) {
    return DnnlStatus(error.status, what + ": " + error.message);
  }
}

}  // namespace ringmaster::cpu
