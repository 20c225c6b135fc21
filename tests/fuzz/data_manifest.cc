// ringmaster-data.json beside a dataset, and the address of one.
#include "common/data/manifest.h"

#include "common/check.h"
#include "common/data/data_url.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ringmaster;
  const std::string text(reinterpret_cast<const char*>(data), size);
  const auto url = data::ParseDataUrl(text);
  if (url.ok() && !url->folder()) {
    RING_CHECK(url->file_name().find('/') == std::string::npos && url->file_name() != "..",
               "a file's name that leaves its folder");
  }
  const auto manifest = data::ParseDataManifest(text);
  if (!manifest.ok()) return 0;
  for (const data::ManifestFile& file : *manifest) {
    RING_CHECK(data::CheckFileName(file.name).ok(), "a name that leaves its folder");
    RING_CHECK(file.pieces.size() == file.bytes / data::kManifestPieceBytes +
                                         (file.bytes % data::kManifestPieceBytes != 0 ? 1 : 0),
               "other pieces than the size has");
  }
  const auto again = data::ParseDataManifest(data::PrintDataManifest(*manifest));
  RING_CHECK(again.ok() && *again == *manifest, "what is printed is read");
  return 0;
}
