// What a library with a backend defines, and plugin.cc calls. Such a library is built from the same
// sources as the program that loads it, so C++ types cross between them once the tags are equal.
#pragma once

#include "common/status.h"
#include "worker/backend/backend.h"

extern "C" {

// Digest of the headers that both sides must share (abi_tag in CMakeLists.txt), defined by
// plugin_abi.cc. Called before anything else; nothing else is called when it differs.
const char* ringmaster_backend_abi();

// SHA-256, as hex, of what computes in the library: its own part of the compute id
// (common/build_id.h).
const char* ringmaster_backend_compute_id();

// A backend that the caller owns, made with what of the options is a GPU's; nullptr with `status`:
// UNAVAILABLE when this host has no device for it (one line that says what is missing), any other
// code when one is there and does not work. Any thread, before the first core.
ringmaster::Backend* ringmaster_make_backend(const ringmaster::BackendOptions& options,
                                             ringmaster::Status* status);

}  // extern "C"
