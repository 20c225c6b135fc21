// A compressed file of a dataset: the first byte says whether it is gzip or a bare deflate stream,
// the next two how many bytes are expected. The same bytes as a file of CIFAR and of MNIST.
#include "common/data/formats/gzip.h"

#include <algorithm>

#include "common/check.h"
#include "common/data/format.h"
#include "tests/support/memory_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ringmaster;
  if (size < 3) return 0;
  const std::span<const uint8_t> bytes(data + 3, size - 3);
  const OwnedFile file = MemoryFile(bytes);
  data::GzipSource source{.name = "x", .descriptor = file.get(), .bytes = bytes.size()};
  source.is_gzip = (data[0] & 1) == 0;
  const size_t expected = data[1] | static_cast<size_t>(data[2]) << 8;
  const auto start = data::GunzipStart(source, expected);
  RING_CHECK(!start.ok() || start->size() <= expected, "no more than was asked for");
  size_t seen = 0;
  const auto all =
      data::Gunzip(source, expected, [&](std::span<const uint8_t> part) { seen += part.size(); });
  if (all.ok()) {
    RING_CHECK(all->size() == expected && seen == bytes.size(), "all of it");
    RING_CHECK(start.ok() && std::ranges::equal(*start, *all), "begins like it begins");
  }

  for (const char* name : {"cifar10", "cifar100", "mnist"}) {
    const data::Format& format = **data::FindFormat(name);
    for (const data::FileKind& kind : format.files) {
      const auto layout =
          format.layout(kind, {.name = kind.name,
                               .head = bytes.first(std::min(bytes.size(), data::kHeadBytes)),
                               .bytes = bytes.size(),
                               .descriptor = file.get()});
      if (!layout.ok()) continue;
      for (const data::Array& array : layout->arrays) {
        const uint64_t end = array.begin + (array.samples - 1) * array.stride + array.row_bytes();
        RING_CHECK(array.samples > 0 && end <= layout->bytes, "rows in the file");
      }
    }
  }
  return 0;
}
