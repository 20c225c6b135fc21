#include "common/data/cifar_records.h"

#include "common/check.h"

namespace ringmaster::data {

StatusOr<FileLayout> CifarLayout(const std::string& format, size_t label_bytes,
                                 const ContentStart& start) {
  const uint64_t record = label_bytes + kCifarPixels;
  if (start.bytes == 0) {
    return FailedPrecondition("{} is empty: a {} file holds records", start.name, format);
  }
  if (start.bytes % record != 0) {
    return FailedPrecondition(
        "{} has {} bytes: not a whole number of {} records of {} bytes ({} bytes left over); it is "
        "truncated or of another format",
        start.name, start.bytes, format, record, start.bytes % record);
  }
  FileLayout layout;
  layout.samples = start.bytes / record;
  layout.bytes = start.bytes;
  layout.labels = Column{label_bytes - 1, record};
  layout.pixels = Column{label_bytes, record};
  layout.height = kCifarHeight;
  layout.width = kCifarWidth;
  layout.channels = kCifarChannels;
  layout.planes = true;
  return layout;
}

void PlanesToInterleaved(std::span<const uint8_t> planes, uint32_t channels,
                         std::span<uint8_t> pixels) {
  RING_CHECK(channels > 0 && planes.size() == pixels.size(), "image size");
  const size_t plane = planes.size() / channels;
  for (size_t c = 0; c < channels; ++c) {
    const uint8_t* const from = planes.data() + c * plane;
    for (size_t i = 0; i < plane; ++i) pixels[i * channels + c] = from[i];
  }
}

}  // namespace ringmaster::data
