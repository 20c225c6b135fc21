// A record of somebody's TFRecord file.
#include "common/data/formats/tf_example.h"
#include "common/check.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ringmaster;
  const auto features = data::ParseTfExample({data, size});
  if (!features.ok()) return 0;
  size_t values = 0;
  for (const data::TfFeature& feature : *features) {
    for (const std::span<const uint8_t> bytes : feature.bytes) {
      RING_CHECK(
          bytes.empty() || (bytes.data() >= data && bytes.data() + bytes.size() <= data + size),
          "bytes of the example");
      values += bytes.size();
    }
    values += feature.numbers.size() + feature.floats;
    RING_CHECK(data::FindFeature(*features, feature.key) != nullptr, "every key is found");
  }
  RING_CHECK(values <= size, "no more values than bytes");
  return 0;
}
