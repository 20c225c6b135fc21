// A backend for which this host has no device.
#include "worker/backend/plugin_entry.h"

const char* ringmaster_backend_compute_id() { return "beads of wood"; }

ringmaster::Backend* ringmaster_make_backend(const ringmaster::BackendOptions&,
                                             ringmaster::Status* status) {
  *status = ringmaster::Error(absl::StatusCode::kUnavailable, "this host has no abacus");
  return nullptr;
}
