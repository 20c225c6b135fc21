// A text of numbers, and what a job says of it: the first byte chooses.
#include "common/check.h"
#include "common/data/format.h"
#include "tests/support/memory_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ringmaster;
  if (size == 0) return 0;
  const std::span<const uint8_t> text(data + 1, size - 1);
  v1::DataSource source;
  if ((data[0] & 1) != 0) source.mutable_csv()->set_header(false);
  if ((data[0] & 2) != 0) source.mutable_csv()->set_delimiter(";");
  if ((data[0] & 4) != 0) source.add_targets("c1");
  if ((data[0] & 8) != 0) source.add_inputs("c0");
  const data::Format& format = **data::FindFormat("csv");
  const OwnedFile file = MemoryFile(text);
  uint64_t written = 0;
  const auto layout = format.convert(format.files.front(),
                                     {.name = "train.csv",
                                      .head = {},
                                      .bytes = text.size(),
                                      .descriptor = file.get(),
                                      .source = &source},
                                     [&](std::span<const uint8_t> bytes) {
                                       written += bytes.size();
                                       return absl::OkStatus();
                                     });
  if (!layout.ok()) return 0;
  RING_CHECK(layout->bytes == written, "as many bytes as it says");
  for (const data::Array& array : layout->arrays) {
    RING_CHECK(array.samples > 0 && array.begin + array.row_bytes() <= array.stride, "a row");
    RING_CHECK(array.samples * array.stride == written, "all rows");
    RING_CHECK(array.limit >= 0 && array.limit <= INT32_MAX, "a limit");
  }
  return 0;
}
