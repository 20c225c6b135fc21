// A tar file of images.
#include "common/check.h"
#include "common/data/record_index.h"
#include "tests/support/memory_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ringmaster;
  const data::Format& format = **data::FindFormat("webdataset");
  const OwnedFile file = MemoryFile({data, size});
  data::RecordFile named;
  named.name = "train-000000.tar";
  named.bytes = size;
  const auto found = format.records->find({}, named, file.get(), {});
  if (!found.ok()) return 0;
  RING_CHECK(!found->records.empty() || !found->bad.empty(), "samples");
  for (const data::Record& record : found->records) {
    RING_CHECK(record.offset <= size && record.bytes <= size - record.offset, "in the file");
    RING_CHECK(record.label >= 0, "a class");
  }
  return 0;
}
