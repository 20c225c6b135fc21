// Backends that are libraries of their own, found and loaded when the program starts, so that one
// package serves hosts with and without accelerators. Thread-safe (free functions). What is loaded
// stays loaded: libraries of device vendors do not survive being unloaded.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "common/status.h"
#include "worker/backend/backend.h"

namespace ringmaster {

// Where libringmaster_KIND.so may be, in the order in which it is looked for: beside the program
// and in ../lib/ringmaster; only at RINGMASTER_KIND_LIBRARY (upper case) where that is set.
[[nodiscard]] std::vector<std::string> PluginPaths(const std::string& kind);

// Loads the first of `paths` that is there, checks that it was built from the same headers as this
// program, and makes its backend. NOT_FOUND: none is there. FAILED_PRECONDITION: it cannot be
// loaded, is no backend, or one of another build. UNAVAILABLE: this host has no device for it. The
// backend's numerics class has the library's compute id.
[[nodiscard]] StatusOr<std::unique_ptr<Backend>> LoadBackend(const std::vector<std::string>& paths,
                                                             const BackendOptions& options = {});

}  // namespace ringmaster
