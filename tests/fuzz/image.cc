// A file in somebody's folder of images: its header, and windows of it.
#include <algorithm>

#include "common/check.h"
#include "common/image/orientation.h"
#include "common/image/placement.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ringmaster;
  if (size < 4) return 0;
  const std::span<const uint8_t> file(data, size);
  const auto header = image::ReadHeader(file);
  if (!header.ok()) return 0;
  const auto [height, width] = header->size;
  RING_CHECK(height > 0 && width > 0 && uint64_t{height} * width <= image::kMostPixels, "a size");
  if (uint64_t{height} * width > (1 << 20)) return 0;  // it would only take long
  // The last bytes choose a window.
  const auto chosen = [&](size_t i, uint32_t most) { return data[size - 1 - i] * most / 256; };
  const image::Window window = {chosen(0, height), chosen(1, width), {}};
  image::Window cut = window;
  cut.size = {1 + chosen(2, height - window.top), 1 + chosen(3, width - window.left)};
  cut.size = {std::min(cut.size.height, height - cut.top),
              std::min(cut.size.width, width - cut.left)};
  uint32_t rows = 0;
  const Status decoded = image::DecodeRows(file, *header, cut, [&](std::span<const uint8_t> row) {
    RING_CHECK(row.size() == size_t{cut.size.width} * image::LanesOf(header->channels), "a row");
    ++rows;
  });
  RING_CHECK(rows == cut.size.height || (!decoded.ok() && rows < cut.size.height),
             "rows of a window");
  image::Header turned = *header;
  turned.orientation = image::ReadOrientation(file);
  const image::Size shown = image::ShownSize(turned);
  RING_CHECK(uint64_t{shown.height} * shown.width == uint64_t{height} * width, "a turned size");
  std::vector<uint8_t> one(3);
  (void)image::Render(
      file, turned, {{shown.height - 1, shown.width / 2, {1, 1}}, {1, 1}, {0, 0, {1, 1}}}, 3, one);
  std::vector<uint8_t> small(size_t{5} * 7 * 3);
  const image::Size to{9, 8};
  (void)image::Render(file, *header, {cut, to, {1, 1, {5, 7}}}, 3, small);
  return 0;
}
