// What needs no Pillow: tests/parity/image_parity.py holds bytes against that.
#include <zlib.h>
#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "common/image/codecs.h"
#include "common/image/orientation.h"
#include "common/image/placement.h"

namespace ringmaster::image {
namespace {

using Pixels = std::vector<uint8_t>;

// Waves and noise, of H,W,C.
Pixels Picture(const Size& size, uint32_t channels) {
  std::mt19937 noise(size.height * 1000 + size.width);
  Pixels pixels;
  for (uint32_t y = 0; y < size.height; ++y) {
    for (uint32_t x = 0; x < size.width; ++x) {
      for (uint32_t c = 0; c < channels; ++c) {
        const double wave = 128 + 80 * std::sin(x / 5.0 + c) + 30 * std::cos(y / 3.0);
        pixels.push_back(static_cast<uint8_t>(wave + noise() % 16));
      }
    }
  }
  return pixels;
}

Pixels Bytes(const std::string& text) { return {text.begin(), text.end()}; }

Pixels Rendered(const Pixels& file, const Placement& placement, uint32_t channels = 3) {
  const auto header = ReadHeader(file);
  REQUIRE(header.ok());
  const Size& kept = placement.kept.size;
  Pixels out(size_t{kept.height} * kept.width * channels);
  REQUIRE(Render(file, *header, placement, channels, out).ok());
  return out;
}

// A window of whole pixels.
Pixels Cut(const Pixels& pixels, const Size& size, uint32_t channels, const Window& window) {
  Pixels out;
  for (uint32_t y = 0; y < window.size.height; ++y) {
    const auto row = pixels.begin() + ((window.top + y) * size.width + window.left) * channels;
    out.insert(out.end(), row, row + window.size.width * channels);
  }
  return out;
}

Placement WindowOnly(const Window& window) { return {window, window.size, {0, 0, window.size}}; }

TEST_CASE("Image: a window of a JPEG has the pixels of the whole there") {
  const Size size{61, 83};
  for (const uint32_t channels : {1U, 3U}) {
    const Pixels file = Bytes(EncodeJpeg(Picture(size, channels), size, channels, 90));
    const Pixels whole = Rendered(file, Whole(size), channels);
    std::mt19937 random(channels);
    for (int i = 0; i < 200; ++i) {
      const auto below = [&](uint32_t most) { return static_cast<uint32_t>(random() % most); };
      const Size cut{1 + below(size.height), 1 + below(size.width)};
      const Window window{below(size.height - cut.height + 1), below(size.width - cut.width + 1),
                          cut};
      REQUIRE(Rendered(file, WindowOnly(window), channels) == Cut(whole, size, channels, window));
    }
  }
}

TEST_CASE("Image: what is kept of a resized image is that part of all of it") {
  const Size from{40, 57}, to{23, 71};
  const Pixels pixels = Picture(from, 3);
  for (const Filter filter : {Filter::kBilinear, Filter::kBicubic}) {
    for (const bool antialias : {false, true}) {
      const auto resized = [&](const Window& kept) {
        Pixels out(size_t{kept.size.height} * kept.size.width * 3);
        RenderStored(pixels, from, 3, {{0, 0, from}, to, kept, filter, antialias}, out);
        return out;
      };
      const Pixels whole = resized({0, 0, to});
      for (const Window& kept : {Window{0, 0, {1, 1}}, Window{22, 70, {1, 1}},
                                 Window{3, 9, {17, 40}}, Window{0, 60, {23, 11}}}) {
        CHECK(resized(kept) == Cut(whole, to, 3, kept));
      }
    }
  }
}

TEST_CASE("Image: resizing by the formula") {
  // Twice as wide without antialias: half-pixel places, the outermost pixels for what lies outside.
  const Pixels row = {10, 50, 90};
  Pixels out(6);
  RenderStored(row, {1, 3}, 1, {{0, 0, {1, 3}}, {1, 6}, {0, 0, {1, 6}}, Filter::kBilinear, false},
               out);
  CHECK(out == Pixels{10, 20, 40, 60, 80, 90});
  // To one pixel with antialias: a triangle over all of them, 1/6, 1/2, ... of its width.
  Pixels one(1);
  RenderStored({{0, 90, 0}}, {1, 3}, 1, {{0, 0, {1, 3}}, {1, 1}, {0, 0, {1, 1}}}, one);
  CHECK(one == Pixels{39});  // weights 2/3, 1, 2/3: 90 * 3 / 7, rounded
}

TEST_CASE("Image: a grey file becomes three equal channels") {
  const Size size{9, 7};
  const Pixels file = Bytes(EncodeJpeg(Picture(size, 1), size, 1, 95));
  const Pixels grey = Rendered(file, Whole(size), 1), colour = Rendered(file, Whole(size), 3);
  for (size_t i = 0; i < colour.size(); ++i) REQUIRE(colour[i] == grey[i / 3]);
}

// The file with an EXIF segment behind its begin: one entry of the first directory.
Pixels WithExif(const Pixels& file, uint8_t orientation, bool big_endian, uint16_t type = 3) {
  const auto number = [&](uint32_t value, size_t size) {
    std::string text;
    for (size_t i = 0; i < size; ++i) {
      text += static_cast<char>(value >> 8 * (big_endian ? size - 1 - i : i));
    }
    return text;
  };
  const size_t size = type == 3 ? 2 : 4;
  const std::string tiff = (big_endian ? "MM" : "II") + number(42, 2) + number(8, 4) +
                           number(1, 2) + number(274, 2) + number(type, 2) + number(1, 4) +
                           number(orientation, size) + std::string(4 - size, 0) + number(0, 4);
  const std::string exif = std::string("Exif") + '\0' + '\0' + tiff;
  Pixels with = {0xFF, 0xD8, 0xFF, 0xE1, 0, static_cast<uint8_t>(exif.size() + 2)};
  with.insert(with.end(), exif.begin(), exif.end());
  with.insert(with.end(), file.begin() + 2, file.end());
  return with;
}

// As tag 274 words it: which sides of what is stored the first row and the first column are.
size_t StoredPlace(uint8_t orientation, const Size& stored, uint32_t y, uint32_t x) {
  const uint32_t bottom = stored.height - 1, right = stored.width - 1;
  const uint32_t rows[] = {y, y, bottom - y, bottom - y, x, bottom - x, bottom - x, x};
  const uint32_t columns[] = {x, right - x, right - x, x, y, y, right - y, right - y};
  return size_t{rows[orientation - 1]} * stored.width + columns[orientation - 1];
}

TEST_CASE("Image: what is shown is turned and mirrored as EXIF says, window by window") {
  const Size size{13, 22};
  const Pixels file = Bytes(EncodeJpeg(Picture(size, 3), size, 3, 90));
  const Pixels stored = Rendered(file, Whole(size));
  for (uint8_t orientation = 1; orientation <= 8; ++orientation) {
    const Pixels with = WithExif(file, orientation, orientation % 2 == 0);
    CHECK(ReadHeader(with)->orientation == 1);
    const Header header = *ReadHeader(with, Exif::kApply);
    REQUIRE(header.orientation == orientation);
    const Size shown = ShownSize(header);
    CHECK(shown == (orientation >= 5 ? Size{22, 13} : size));
    Pixels whole(stored.size());
    REQUIRE(Render(with, header, Whole(shown), 3, whole).ok());
    for (uint32_t y = 0; y < shown.height; ++y) {
      for (uint32_t x = 0; x < shown.width; ++x) {
        for (size_t c = 0; c < 3; ++c) {
          REQUIRE(whole[(size_t{y} * shown.width + x) * 3 + c] ==
                  stored[StoredPlace(orientation, size, y, x) * 3 + c]);
        }
      }
    }
    for (const Window& window : {Window{0, 0, {1, 1}}, Window{3, 5, {9, 4}}, Window{12, 2, {1, 11}},
                                 Window{0, 0, shown}}) {
      Pixels out(size_t{window.size.height} * window.size.width * 3);
      REQUIRE(Render(with, header, WindowOnly(window), 3, out).ok());
      REQUIRE(out == Cut(whole, shown, 3, window));
    }
  }
}

TEST_CASE("Image: an orientation that is none is as it is stored") {
  const Size size{8, 9};
  const Pixels file = Bytes(EncodeJpeg(Picture(size, 1), size, 1, 90));
  const Pixels right = WithExif(file, 6, false);
  CHECK(ReadOrientation(file) == 1);
  CHECK(ReadOrientation(right) == 6);
  CHECK(ReadOrientation(WithExif(file, 8, true, 4)) == 8);
  CHECK(ReadOrientation(WithExif(file, 8, true, 7)) == 1);  // of another type
  CHECK(ReadOrientation(WithExif(file, 0, false)) == 1);
  CHECK(ReadOrientation(WithExif(file, 9, false)) == 1);
  CHECK(ReadOrientation({}) == 1);
  // Wherever it is cut, and whatever stands in it.
  for (size_t bytes = 0; bytes < 38; ++bytes) {
    CHECK(ReadOrientation(std::span(right).first(bytes)) == 1);
  }
  for (size_t at = 0; at < 40; ++at) {
    for (const uint8_t value : {0, 1, 127, 255}) {
      Pixels broken = right;
      broken[at] = value;
      const uint8_t orientation = ReadOrientation(broken);
      CHECK((orientation >= 1 && orientation <= 8));
    }
  }
}

TEST_CASE("Image: what is no image says what it is") {
  const auto error = [](const std::string& file) {
    return Message(ReadHeader(Bytes(file)).status());
  };
  CHECK(error("") == "it is neither JPEG nor PNG, but empty; convert it");
  CHECK(error("GIF89a...") == "it is neither JPEG nor PNG, but a GIF; convert it");
  CHECK(error("\xFF\xD8\xFF") == "its JPEG header: Premature end of JPEG file");
  CHECK(error("\x89PNG\r\n\x1A\n...") == "its PNG header: the file ends too early");
}

TEST_CASE("Image: headers that promise more pixels than anybody has are refused") {
  std::string png("\x89PNG\r\n\x1A\n\0\0\0\x0D", 12);
  const std::string header("IHDR\0\x01\x86\xA0\0\x01\x86\xA0\x08\x02\0\0\0", 17);  // 100,000 each
  const auto crc = crc32(0, reinterpret_cast<const Bytef*>(header.data()), 17);
  png += header;
  for (int shift = 24; shift >= 0; shift -= 8) png += static_cast<char>(crc >> shift);
  png += std::string("\0\0\0\x01IDAT", 8);
  CHECK_THAT(Message(ReadHeader(Bytes(png)).status()), Catch::Contains("100000"));
  std::string jpeg = EncodeJpeg(Picture({8, 8}, 3), {8, 8}, 3, 90);
  const size_t frame = jpeg.find("\xFF\xC0");
  REQUIRE(frame != std::string::npos);
  for (size_t i = 5; i < 9; ++i) jpeg[frame + i] = '\xF0';  // 61,680 each, near the most it can say
  CHECK_THAT(Message(ReadHeader(Bytes(jpeg)).status()), Catch::Contains("61680"));
}

TEST_CASE("Image: a cut or damaged file is an error of the rows that it has not") {
  const Size size{64, 64};
  const Pixels file = Bytes(EncodeJpeg(Picture(size, 3), size, 3, 90));
  const auto rendered = [&](const Pixels& bytes, const Window& window) {
    const auto header = ReadHeader(bytes);
    if (!header.ok()) return header.status();
    Pixels out(size_t{window.size.height} * window.size.width * 3);
    return Render(bytes, *header, WindowOnly(window), 3, out);
  };
  Pixels cut(file.begin(), file.begin() + static_cast<ptrdiff_t>(file.size() * 9 / 10));
  CHECK(rendered(cut, {0, 0, {8, 64}}).ok());
  CHECK(rendered(cut, {0, 0, size}).code() == absl::StatusCode::kDataLoss);
  // No flipped bit takes the process down; most are seen.
  std::mt19937 random(3);
  int seen = 0;
  for (int i = 0; i < 300; ++i) {
    Pixels broken = file;
    broken[random() % broken.size()] ^= static_cast<uint8_t>(1U << random() % 8);
    const auto header = ReadHeader(broken);
    if (header.ok() && !(header->size == size)) continue;
    seen += rendered(broken, {0, 0, size}).ok() ? 0 : 1;
  }
  CHECK(seen > 20);
}

}  // namespace
}  // namespace ringmaster::image
