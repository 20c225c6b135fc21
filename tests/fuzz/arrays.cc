// A .npz archive or a .npy file, as somebody's data set may be.
#include <algorithm>

#include "common/check.h"
#include "common/data/formats/npz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ringmaster;
  const data::ReadBytes read = [&](uint64_t offset, std::span<uint8_t> bytes) {
    RING_CHECK(offset <= size && bytes.size() <= size - offset, "what is read lies in the file");
    std::copy_n(data + offset, bytes.size(), bytes.begin());
    return absl::OkStatus();
  };
  const auto look = [&](uint64_t begin, uint64_t bytes) {
    const auto array = data::FindNpyArray("x.npy", begin, bytes, read);
    if (!array.ok()) return;
    RING_CHECK(array->begin >= begin && array->samples > 0, "an array in its file");
    RING_CHECK(array->begin - begin + array->samples * array->stride == bytes, "all of it");
    const std::span<const uint8_t> row(data + array->begin, array->row_bytes());
    if (data::IsFloat(array->number)) {
      std::vector<float> values(array->elements());
      data::ToFloat32(*array, row, values);
    } else {
      data::Range range;
      data::FindRange(*array, row, &range);
    }
  };
  look(0, size);
  const auto members = data::ReadZipDirectory(size, read);
  if (!members.ok()) return 0;
  for (const data::ZipMember& member : *members) {
    RING_CHECK(member.begin <= size && member.stored_bytes <= size - member.begin, "in the file");
    (void)data::SplitOfName(member.name);
    if (!member.deflated) look(member.begin, member.bytes);
  }
  return 0;
}
