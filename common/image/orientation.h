// How a camera was held, as EXIF says it in a JPEG file, and the rows of the image that is shown:
// the bytes of Pillow's ImageOps.exif_transpose. Thread-safe (free functions).
#pragma once

#include <cstdint>
#include <span>

#include "common/image/decode.h"
#include "common/status.h"

namespace ringmaster::image {

// 1 to 8 (JEITA CP-3451, tag 274), of the first EXIF segment in front of the pixels; 1, as it is,
// where there is none that says another one.
[[nodiscard]] uint8_t ReadOrientation(std::span<const uint8_t> file);

// Of the image that is shown; header.size is that which is stored.
[[nodiscard]] Size ShownSize(const Header& header);

// As DecodeRows, of a window of what is shown. But for orientation 1 the window is held whole.
[[nodiscard]] Status DecodeShownRows(std::span<const uint8_t> file, const Header& header,
                                     const Window& window, const RowSink& sink);

}  // namespace ringmaster::image
