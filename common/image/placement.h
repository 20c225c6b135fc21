// What an image of any size becomes on its way to a model: a window of it, resized, and a window of
// that. Only the window is decoded, and only what is kept of it computed. Thread-safe (free
// functions, immutable values).
#pragma once

#include <cstdint>
#include <span>

#include "common/image/integer_resize.h"
#include "common/status.h"

namespace ringmaster::image {

struct Placement {
  Window source;  // of the image that is shown
  Size resized;   // of source; source.size: as it is
  Window kept;    // of resized
  Filter filter = Filter::kBilinear;
  bool antialias = true;
};

// The shorter side becomes `side` long, the other one keeps the shape: int(side * long / short), as
// torchvision has it.
[[nodiscard]] Size WithShort(const Size& size, uint32_t side);

// The whole image, as it is.
[[nodiscard]] Placement Whole(const Size& size);

// Writes kept.height * kept.width * channels bytes of H,W,C order; a grey image may become one of
// three channels. Errors as DecodeRows.
[[nodiscard]] Status Render(std::span<const uint8_t> file, const Header& header,
                            const Placement& placement, uint32_t channels, std::span<uint8_t> out);

// Likewise of pixels that are stored as they are, `size` of them with `channels` each.
void RenderStored(std::span<const uint8_t> pixels, const Size& size, uint32_t channels,
                  const Placement& placement, std::span<uint8_t> out);

}  // namespace ringmaster::image
