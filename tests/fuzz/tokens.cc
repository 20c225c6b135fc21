// A file of tokens, .bin or .npy, and a window: the first bytes choose.
#include <algorithm>

#include "common/check.h"
#include "common/data/format.h"
#include "tests/support/memory_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ringmaster;
  if (size < 2) return 0;
  const std::span<const uint8_t> bytes(data + 2, size - 2);
  v1::DataSource source;
  source.set_window(data[1]);
  if ((data[0] & 2) != 0) source.set_token_type(v1::TOKEN_TYPE_UINT32);
  if ((data[0] & 4) != 0) source.set_token_type(v1::TOKEN_TYPE_UINT16);
  const data::Format& format = **data::FindFormat("tokens");
  const OwnedFile file = MemoryFile(bytes);
  const auto layout = format.layout(format.files.front(),
                                    {.name = (data[0] & 1) != 0 ? "train.npy" : "train.bin",
                                     .head = bytes.first(std::min(bytes.size(), data::kHeadBytes)),
                                     .bytes = bytes.size(),
                                     .descriptor = file.get(),
                                     .source = &source});
  if (!layout.ok()) return 0;
  for (const data::Array& array : layout->arrays) {
    const uint64_t end = array.begin + (array.samples - 1) * array.stride + array.row_bytes();
    RING_CHECK(array.samples > 0 && end <= bytes.size(), "windows in the file");
  }
  return 0;
}
