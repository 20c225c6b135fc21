// Images as they lie in files, JPEG and PNG: what their headers say, and a window of their pixels,
// row by row, so that no image is held whole but an interlaced PNG. The pixels of a window are
// those of the whole image, to the bit, on every CPU. What is decoded stands in docs/datasets.md.
// Thread-safe (free functions).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>

#include "common/status.h"

namespace ringmaster::image {

struct Size {
  uint32_t height = 0, width = 0;
  bool operator==(const Size& other) const = default;
};

// Rows [top, top + height) and columns [left, left + width) of an image.
struct Window {
  uint32_t top = 0, left = 0;
  Size size;
  bool operator==(const Window& other) const = default;
};

enum class Codec : uint8_t { kJpeg = 1, kPng = 2 };

struct Header {
  Codec codec = Codec::kJpeg;
  Size size;                // as it is stored
  uint32_t channels = 0;    // 1: grey; 3: red, green and blue, or what becomes that
  uint8_t orientation = 1;  // what is shown (orientation.h): as EXIF says, 1 to 8
  bool operator==(const Header& other) const = default;
};

// Of JPEG files: whether their orientation is looked for.
enum class Exif : uint8_t { kIgnore, kApply };

// What somebody may ask to decode.
inline constexpr uint64_t kMostPixels = uint64_t{128} << 20;
inline constexpr size_t kMostBytes = size_t{64} << 20;  // of a file

// Bytes of a pixel of a row: a grey one has one, any other four, of which the last means nothing.
[[nodiscard]] constexpr uint32_t LanesOf(uint32_t channels) { return channels == 1 ? 1 : 4; }

// Lanes of a row to interleaved channels: one lane becomes as many equal ones, four become three.
void PackRow(std::span<const uint8_t> row, uint32_t lanes, uint32_t channels, uint8_t* out);

// Told by the content, not by a name. FAILED_PRECONDITION says what it is instead, or what of it is
// not decoded: more than kMostPixels, 16 bits a value, arithmetic coding.
[[nodiscard]] StatusOr<Header> ReadHeader(std::span<const uint8_t> file, Exif exif = Exif::kIgnore);

// The libraries that decode, with their versions: another one may give other pixels.
[[nodiscard]] std::map<std::string, std::string> LibraryVersions();

// Gets each row of a window from top to bottom: its width * lanes bytes, until the next call.
using RowSink = std::function<void(std::span<const uint8_t> row)>;

// `header` is that of `file`, `window` lies within it and is not empty. DATA_LOSS: the file is cut
// or damaged, as far as the window's rows tell; rows may have been given to `sink`.
[[nodiscard]] Status DecodeRows(std::span<const uint8_t> file, const Header& header,
                                const Window& window, const RowSink& sink);

}  // namespace ringmaster::image
