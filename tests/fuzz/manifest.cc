// manifest.json of an uploaded checkpoint.
#include "coordinator/store/manifest.h"

#include "common/check.h"
#include "common/files.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ringmaster;
  const auto manifest =
      coordinator::ParseManifest(std::string(reinterpret_cast<const char*>(data), size));
  if (!manifest.ok()) return 0;
  for (const auto& [name, file] : manifest->files) {
    RING_CHECK(IsPlainFileName(name), "a name that leaves its folder");
  }
  return 0;
}
