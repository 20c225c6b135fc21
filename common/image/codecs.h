// The codecs, one file each, with the library that it wraps: decode.cc chooses among them. Both
// libraries report errors by longjmp, which stays inside those files. Thread-safe (free functions).
#pragma once

#include <span>
#include <string>

#include "common/image/decode.h"
#include "common/status.h"

namespace ringmaster::image {

// As ReadHeader and DecodeRows of a file that begins as one of the codec.
[[nodiscard]] StatusOr<Header> ReadJpegHeader(std::span<const uint8_t> file);
[[nodiscard]] Status DecodeJpeg(std::span<const uint8_t> file, const Window& window,
                                const RowSink& sink);

// A baseline JPEG of H,W,C pixels with 1 or 3 channels, in colour with half the resolution, by the
// slow integer DCT: the same bytes on every CPU. `quality`: 1 to 100.
inline constexpr uint32_t kMostJpegSide = 65'500;  // libjpeg's JPEG_MAX_DIMENSION
[[nodiscard]] std::string EncodeJpeg(std::span<const uint8_t> pixels, const Size& size,
                                     uint32_t channels, int quality);
[[nodiscard]] std::string JpegVersion();  // of the library

[[nodiscard]] StatusOr<Header> ReadPngHeader(std::span<const uint8_t> file);
[[nodiscard]] Status DecodePng(std::span<const uint8_t> file, const Window& window,
                               const RowSink& sink);
[[nodiscard]] std::string PngVersion();

}  // namespace ringmaster::image
