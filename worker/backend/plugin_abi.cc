#include "worker/backend/abi_tag.h"
#include "worker/backend/plugin_entry.h"

const char* ringmaster_backend_abi() { return ringmaster::kBackendAbi; }
