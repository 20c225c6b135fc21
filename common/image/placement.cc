#include "common/image/placement.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <vector>

#include "common/check.h"
#include "common/image/orientation.h"

namespace ringmaster::image {
namespace {

// Gives rows of a window of the source, which it is asked for once.
using RowsOf = std::function<Status(const Window& window, const RowSink& sink)>;

// `inner` lies within `outer`, and counts from its corner.
Window Within(const Window& outer, const Window& inner) {
  return {outer.top + inner.top, outer.left + inner.left, inner.size};
}

Status Place(const Placement& placement, uint32_t lanes, uint32_t channels, const RowsOf& rows,
             std::span<uint8_t> out) {
  const Size& kept = placement.kept.size;
  RING_CHECK(out.size() == size_t{kept.height} * kept.width * channels, "the size of an image");
  if (placement.resized == placement.source.size) {
    uint8_t* at = out.data();
    return rows(Within(placement.source, placement.kept), [&](std::span<const uint8_t> row) {
      PackRow(row, lanes, channels, at);
      at += size_t{kept.width} * channels;
    });
  }
  IntegerResize resize({placement.source.size, placement.resized, placement.kept, placement.filter,
                        placement.antialias},
                       lanes);
  RING_RETURN_IF_ERROR(rows(Within(placement.source, resize.needed()),
                            [&](std::span<const uint8_t> row) { resize.Feed(row); }));
  resize.Finish(channels, out);
  return absl::OkStatus();
}

}  // namespace

Size WithShort(const Size& size, uint32_t side) {
  const auto longer = [&](uint32_t a, uint32_t b) {
    return static_cast<uint32_t>(std::min<uint64_t>(uint64_t{side} * b / a, INT32_MAX));
  };
  return size.height <= size.width ? Size{side, longer(size.height, size.width)}
                                   : Size{longer(size.width, size.height), side};
}

Placement Whole(const Size& size) { return {{0, 0, size}, size, {0, 0, size}}; }

Status Render(std::span<const uint8_t> file, const Header& header, const Placement& placement,
              uint32_t channels, std::span<uint8_t> out) {
  const auto rows = [&](const Window& window, const RowSink& sink) {
    return DecodeShownRows(file, header, window, sink);
  };
  return Place(placement, LanesOf(header.channels), channels, rows, out);
}

void RenderStored(std::span<const uint8_t> pixels, const Size& size, uint32_t channels,
                  const Placement& placement, std::span<uint8_t> out) {
  const uint32_t lanes = LanesOf(channels);
  std::vector<uint8_t> row;
  const auto rows = [&](const Window& window, const RowSink& sink) {
    row.resize(size_t{window.size.width} * lanes);
    for (uint32_t y = 0; y < window.size.height; ++y) {
      const uint8_t* const begin =
          pixels.data() + (size_t{window.top + y} * size.width + window.left) * channels;
      for (uint32_t x = 0; x < window.size.width; ++x) {
        for (uint32_t c = 0; c < channels; ++c) row[x * lanes + c] = begin[x * channels + c];
      }
      sink(row);
    }
    return absl::OkStatus();
  };
  RING_CHECK(Place(placement, lanes, channels, rows, out).ok(), "stored pixels have no errors");
}

}  // namespace ringmaster::image
