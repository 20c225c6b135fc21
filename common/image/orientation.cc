#include "common/image/orientation.h"

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

namespace ringmaster::image {
namespace {

using Part = std::span<const uint8_t>;

enum class Endian : uint8_t { kLittle, kBig };

// `size` bytes from `at` on, which are there.
uint32_t NumberAt(Part bytes, size_t at, size_t size, Endian endian) {
  uint32_t number = 0;
  for (size_t i = 0; i < size; ++i) {
    const size_t place = endian == Endian::kBig ? i : size - 1 - i;
    number = number << 8 | bytes[at + place];
  }
  return number;
}

bool HasBegin(Part bytes, std::string_view text) {
  return bytes.size() >= text.size() &&
         std::equal(text.begin(), text.end(), bytes.begin(),
                    [](char a, uint8_t b) { return static_cast<uint8_t>(a) == b; });
}

// The segment behind "Exif", or nothing.
Part FindExif(Part file) {
  using namespace std::string_view_literals;
  constexpr uint8_t kApp1 = 0xE1, kStartOfScan = 0xDA, kEndOfImage = 0xD9;
  size_t at = 2;  // behind the begin of the image
  while (at + 4 <= file.size() && file[at] == 0xFF) {
    const uint8_t marker = file[at + 1];
    if (marker == 0xFF) {  // one that fills
      ++at;
      continue;
    }
    if (marker == kStartOfScan || marker == kEndOfImage) break;
    const size_t length = NumberAt(file, at + 2, 2, Endian::kBig);
    if (length < 2 || at + 2 + length > file.size()) break;
    const Part segment = file.subspan(at + 4, length - 2);
    if (marker == kApp1 && HasBegin(segment, "Exif\0\0"sv)) return segment.subspan(6);
    at += 2 + length;
  }
  return {};
}

// What leads from a place of the image that is shown to one of what is stored: mirrored along x,
// along y, then rows and columns exchanged.
struct Turn {
  bool mirror_x, mirror_y, exchange;
};

Turn TurnOf(uint8_t orientation) {
  const auto one_of = [=](uint8_t a, uint8_t b, uint8_t c, uint8_t d) {
    return orientation == a || orientation == b || orientation == c || orientation == d;
  };
  return {one_of(2, 3, 6, 7), one_of(3, 4, 7, 8), orientation >= 5};
}

Window StoredWindow(const Turn& turn, const Size& shown, const Window& window) {
  const auto& [top, left, size] = window;
  const uint32_t down = turn.mirror_y ? shown.height - top - size.height : top;
  const uint32_t across = turn.mirror_x ? shown.width - left - size.width : left;
  if (turn.exchange) return {across, down, {size.width, size.height}};
  return {down, across, size};
}

}  // namespace

uint8_t ReadOrientation(Part file) {
  constexpr uint32_t kTag = 274, kByte = 1, kShort = 3, kLong = 4;
  const Part tiff = FindExif(file);
  const bool little = HasBegin(tiff, "II*"), big = HasBegin(tiff, "MM");
  if (tiff.size() < 8 || (!little && !big)) return 1;
  const Endian endian = big ? Endian::kBig : Endian::kLittle;
  const size_t directory = NumberAt(tiff, 4, 4, endian);
  if (directory + 2 > tiff.size()) return 1;
  const size_t entries = NumberAt(tiff, directory, 2, endian);
  for (size_t i = 0; i < entries; ++i) {
    const size_t at = directory + 2 + 12 * i;
    if (at + 12 > tiff.size()) return 1;
    if (NumberAt(tiff, at, 2, endian) != kTag) continue;
    const uint32_t type = NumberAt(tiff, at + 2, 2, endian);
    const size_t size = type == kByte ? 1 : type == kShort ? 2 : type == kLong ? 4 : 0;
    const uint32_t value = NumberAt(tiff, at + 8, size, endian);
    return value >= 1 && value <= 8 ? static_cast<uint8_t>(value) : 1;
  }
  return 1;
}

Size ShownSize(const Header& header) {
  const auto& [height, width] = header.size;
  return TurnOf(header.orientation).exchange ? Size{width, height} : header.size;
}

Status DecodeShownRows(Part file, const Header& header, const Window& window, const RowSink& sink) {
  if (header.orientation == 1) return DecodeRows(file, header, window, sink);
  const Turn turn = TurnOf(header.orientation);
  const Window stored = StoredWindow(turn, ShownSize(header), window);
  const size_t lanes = LanesOf(header.channels), stride = stored.size.width * lanes;
  std::vector<uint8_t> pixels;
  pixels.reserve(stored.size.height * stride);
  RING_RETURN_IF_ERROR(DecodeRows(file, header, stored, [&](Part row) {
    pixels.insert(pixels.end(), row.begin(), row.end());
  }));
  std::vector<uint8_t> row(window.size.width * lanes);
  for (uint32_t y = 0; y < window.size.height; ++y) {
    for (uint32_t x = 0; x < window.size.width; ++x) {
      size_t down = turn.mirror_y ? window.size.height - 1 - y : y;
      size_t across = turn.mirror_x ? window.size.width - 1 - x : x;
      if (turn.exchange) std::swap(down, across);
      std::copy_n(pixels.data() + down * stride + across * lanes, lanes, row.data() + x * lanes);
    }
    sink(row);
  }
  return absl::OkStatus();
}

}  // namespace ringmaster::image
