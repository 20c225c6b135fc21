// Writes images. Thread-safe (free function).
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "common/image/decode.h"

namespace ringmaster::image {

// A baseline JPEG of H,W,C pixels with 1 or 3 channels, in colour with half the resolution, by the
// slow integer DCT: the same bytes on every CPU. `quality`: 1 to 100.
[[nodiscard]] std::string EncodeJpeg(std::span<const uint8_t> pixels, const Size& size,
                                     uint32_t channels, int quality);

}  // namespace ringmaster::image
