// What is remembered of records, with a SHA-256 that fits whatever it is; and a quarantine.
#include "common/check.h"
#include "common/data/record_index.h"
#include "common/sha256.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ringmaster;
  const std::string text(reinterpret_cast<const char*>(data), size);
  const auto files = data::ParseRemembered(text + DigestBytes(Sha256Of(text)));
  if (files.ok()) {
    const std::string again = data::WriteRemembered(*files);
    RING_CHECK(data::ParseRemembered(again).ok(), "what was written is read");
  }
  const auto quarantine = data::Quarantine::Parse(text);
  if (!quarantine.ok()) return 0;
  const auto twice = data::Quarantine::Parse(quarantine->Text());
  RING_CHECK(twice.ok() && twice->Sha256() == quarantine->Sha256(), "the same list again");
  return 0;
}
