#include "common/image/decode.h"

#include <algorithm>
#include <cstring>

#include "common/check.h"
#include "common/image/codecs.h"
#include "common/image/orientation.h"

namespace ringmaster::image {
namespace {

constexpr uint8_t kJpegBegin[] = {0xFF, 0xD8, 0xFF};
constexpr uint8_t kPngBegin[] = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1A, '\n'};

bool BeginsWith(std::span<const uint8_t> file, std::span<const uint8_t> begin) {
  return file.size() >= begin.size() && std::equal(begin.begin(), begin.end(), file.begin());
}

// For messages.
std::string WhatItIs(std::span<const uint8_t> file) {
  struct Known {
    const char* begin;
    const char* name;
  };
  constexpr Known kKnown[] = {{"GIF8", "a GIF"}, {"BM", "a BMP"},      {"II*", "a TIFF"},
                              {"MM", "a TIFF"},  {"RIFF", "a WebP"},   {"P5", "a PGM"},
                              {"P6", "a PPM"},   {"\x1F\x8B", "gzip"}, {"<", "text"}};
  for (const auto& [begin, name] : kKnown) {
    const std::string text(begin);
    if (file.size() >= text.size() &&
        std::equal(text.begin(), text.end(), file.begin(),
                   [](char a, uint8_t b) { return static_cast<uint8_t>(a) == b; })) {
      return name;
    }
  }
  return file.empty() ? "empty" : "something else";
}

}  // namespace

std::map<std::string, std::string> LibraryVersions() {
  return {{"libjpeg-turbo", JpegVersion()}, {"libpng", PngVersion()}};
}

void PackRow(std::span<const uint8_t> row, uint32_t lanes, uint32_t channels, uint8_t* out) {
  if (lanes == channels) {
    std::ranges::copy(row, out);
    return;
  }
  if (lanes == 1) {
    for (const uint8_t grey : row) out = std::fill_n(out, channels, grey);
    return;
  }
  RING_CHECK(lanes == 4 && channels == 3, "four lanes are three channels");
  // Four bytes at once, of which the last is the next pixel's place, but for the last pixel.
  size_t x = 0;
  for (; x + 4 < row.size(); x += 4, out += 3) std::memcpy(out, row.data() + x, 4);
  std::copy_n(row.data() + x, 3, out);
}

StatusOr<Header> ReadHeader(std::span<const uint8_t> file, Exif exif) {
  if (file.size() > kMostBytes) {
    return FailedPrecondition("it has {} bytes: an image may have {}", file.size(), kMostBytes);
  }
  const bool jpeg = BeginsWith(file, kJpegBegin);
  if (!jpeg && !BeginsWith(file, kPngBegin)) {
    return FailedPrecondition("it is neither JPEG nor PNG, but {}; convert it", WhatItIs(file));
  }
  RING_ASSIGN_OR_RETURN(Header header, jpeg ? ReadJpegHeader(file) : ReadPngHeader(file));
  if (jpeg && exif == Exif::kApply) header.orientation = ReadOrientation(file);
  const auto [height, width] = header.size;
  if (uint64_t{height} * width <= kMostPixels) return header;
  return FailedPrecondition("its header says {} x {} pixels: at most {} are decoded", height, width,
                            kMostPixels);
}

Status DecodeRows(std::span<const uint8_t> file, const Header& header, const Window& window,
                  const RowSink& sink) {
  const Size& size = window.size;
  RING_CHECK(size.height > 0 && size.width > 0, "a window without pixels");
  RING_CHECK(uint64_t{window.top} + size.height <= header.size.height &&
                 uint64_t{window.left} + size.width <= header.size.width,
             "a window outside of its image");
  return header.codec == Codec::kJpeg ? DecodeJpeg(file, window, sink)
                                      : DecodePng(file, window, sink);
}

}  // namespace ringmaster::image
