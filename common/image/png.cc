// PNG by libpng's low-level interface: palettes and few bits are expanded, transparency is dropped,
// gamma and colour profiles are ignored.
#include <png.h>

#include <algorithm>
#include <csetjmp>
#include <cstring>
#include <string>
#include <vector>

#include "common/image/codecs.h"

namespace ringmaster::image {
namespace {

// The library's objects and what they read from, freed whatever happens. Whoever calls setjmp keeps
// nothing with a destructor in that frame.
class Reader {
 public:
  explicit Reader(std::span<const uint8_t> file) : rest_(file) {
    png_ = png_create_read_struct(PNG_LIBPNG_VER_STRING, this, Fail, Ignore);
    info_ = png_ == nullptr ? nullptr : png_create_info_struct(png_);
  }
  ~Reader() { png_destroy_read_struct(&png_, &info_, nullptr); }
  Reader(const Reader&) = delete;
  Reader& operator=(const Reader&) = delete;

  [[nodiscard]] bool valid() const { return info_ != nullptr; }
  png_structp png() { return png_; }
  png_infop info() { return info_; }
  std::jmp_buf& jump() { return jump_; }
  [[nodiscard]] std::string text() const { return text_; }

  // Jumps on error.
  void ReadInfo() {
    png_set_read_fn(png_, this, Read);
    png_set_user_limits(png_, 1'000'000, 1'000'000);
    png_set_chunk_cache_max(png_, 1000);
    png_set_chunk_malloc_max(png_, png_alloc_size_t{8} << 20);
    png_read_info(png_, info_);
  }

 private:
  [[noreturn]] static void Fail(png_structp png, png_const_charp text) {
    auto* const self = static_cast<Reader*>(png_get_error_ptr(png));
    std::strncpy(self->text_, text, sizeof self->text_ - 1);
    std::longjmp(self->jump_, 1);
  }
  static void Ignore(png_structp /*png*/, png_const_charp /*text*/) {}
  static void Read(png_structp png, png_bytep out, size_t bytes) {
    auto* const self = static_cast<Reader*>(png_get_io_ptr(png));
    if (bytes > self->rest_.size()) png_error(png, "the file ends too early");
    std::copy_n(self->rest_.begin(), bytes, out);
    self->rest_ = self->rest_.subspan(bytes);
  }

  std::span<const uint8_t> rest_;
  png_structp png_ = nullptr;
  png_infop info_ = nullptr;
  std::jmp_buf jump_ = {};
  char text_[128] = {};
};

// Sets what rows become: one byte a pixel, or four.
void ChooseColours(Reader* reader) {
  png_structp png = reader->png();
  const png_byte colour = png_get_color_type(png, reader->info());
  if (colour == PNG_COLOR_TYPE_PALETTE) png_set_palette_to_rgb(png);
  if (colour == PNG_COLOR_TYPE_GRAY) png_set_expand_gray_1_2_4_to_8(png);
  png_set_strip_alpha(png);
  if ((colour & PNG_COLOR_MASK_COLOR) != 0) png_set_filler(png, 0, PNG_FILLER_AFTER);
}

struct Rows {
  std::vector<uint8_t> one;
  std::vector<uint8_t> all;  // of an interlaced image, whose rows come in seven passes
  std::vector<png_bytep> begins;
};

// Jumps on error.
void Decode(Reader* reader, const Window& window, const RowSink& sink, Rows* rows) {
  reader->ReadInfo();
  ChooseColours(reader);
  png_structp png = reader->png();
  const int passes = png_set_interlace_handling(png);
  png_read_update_info(png, reader->info());
  const size_t stride = png_get_rowbytes(png, reader->info());
  const size_t height = png_get_image_height(png, reader->info());
  const size_t lanes = stride / png_get_image_width(png, reader->info());
  const size_t place = window.left * lanes, bytes = window.size.width * lanes;
  if (passes > 1) {
    rows->all.resize(stride * height);
    for (size_t y = 0; y < height; ++y) rows->begins.push_back(rows->all.data() + y * stride);
    png_read_image(png, rows->begins.data());
    for (size_t y = 0; y < window.size.height; ++y) {
      sink({rows->begins[window.top + y] + place, bytes});
    }
    return;
  }
  rows->one.resize(stride);
  for (size_t y = 0; y < size_t{window.top} + window.size.height; ++y) {
    png_read_row(png, rows->one.data(), nullptr);
    if (y >= window.top) sink({rows->one.data() + place, bytes});
  }
  if (size_t{window.top} + window.size.height == height) png_read_end(png, nullptr);
}

}  // namespace

StatusOr<Header> ReadPngHeader(std::span<const uint8_t> file) {
  Reader reader(file);
  if (!reader.valid()) return Error(absl::StatusCode::kResourceExhausted, "no memory for a PNG");
  if (setjmp(reader.jump()) != 0) {
    return FailedPrecondition("its PNG header: {}", reader.text());
  }
  reader.ReadInfo();
  if (png_get_bit_depth(reader.png(), reader.info()) == 16) {
    return FailedPrecondition("it is a PNG of 16 bits a value; convert it to 8");
  }
  const png_byte colour = png_get_color_type(reader.png(), reader.info());
  return Header{Codec::kPng,
                {png_get_image_height(reader.png(), reader.info()),
                 png_get_image_width(reader.png(), reader.info())},
                (colour & PNG_COLOR_MASK_COLOR) != 0 ? 3U : 1U};
}

std::string PngVersion() { return png_get_libpng_ver(nullptr); }

Status DecodePng(std::span<const uint8_t> file, const Window& window, const RowSink& sink) {
  Reader reader(file);
  Rows rows;
  if (!reader.valid()) return Error(absl::StatusCode::kResourceExhausted, "no memory for a PNG");
  if (setjmp(reader.jump()) != 0) return DataLoss("PNG: {}", reader.text());
  Decode(&reader, window, sink, &rows);
  return absl::OkStatus();
}

}  // namespace ringmaster::image
