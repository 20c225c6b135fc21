// A backend of another build, which must never be made: its types may be others.
#include <cstdlib>

#include "worker/backend/plugin_entry.h"

const char* ringmaster_backend_abi() { return "0123456789abcdef"; }

const char* ringmaster_backend_compute_id() { std::abort(); }

ringmaster::Backend* ringmaster_make_backend(const ringmaster::BackendOptions&,
                                             ringmaster::Status*) {
  std::abort();
}
