// The codecs that decode.cc chooses among: one file each, with the library that it wraps. Both
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

[[nodiscard]] std::string JpegVersion();  // of the library

[[nodiscard]] StatusOr<Header> ReadPngHeader(std::span<const uint8_t> file);
[[nodiscard]] Status DecodePng(std::span<const uint8_t> file, const Window& window,
                               const RowSink& sink);
[[nodiscard]] std::string PngVersion();

}  // namespace ringmaster::image
