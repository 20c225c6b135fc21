// JPEG by libjpeg-turbo: the slow integer DCT, fancy upsampling, no scaling. Its SIMD code gives
// the bits of its plain code.
#include <cstddef>
#include <cstdio>
// After them, which it needs.
#include <jerror.h>
#include <jpeglib.h>

#include <algorithm>
#include <csetjmp>
#include <cstdlib>
#include <string>
#include <vector>

#include "common/check.h"
#include "common/image/codecs.h"

namespace ringmaster::image {
namespace {

// Progressive files hold all coefficients: what the library may use for that and the rest.
constexpr long kMostMemory = long{1} << 30;
// A file of many scans over few bytes takes for ever.
constexpr int kMostScans = 100;

// The library's error manager with where to jump and what it said.
struct Errors {
  jpeg_error_mgr manager;  // first: the library has a pointer to it
  jpeg_progress_mgr progress;
  std::jmp_buf jump;
  char text[JMSG_LENGTH_MAX];
};

Errors& ErrorsOf(j_common_ptr info) { return *reinterpret_cast<Errors*>(info->err); }

[[noreturn]] void Fail(j_common_ptr info) {
  Errors& errors = ErrorsOf(info);
  (*info->err->format_message)(info, errors.text);
  std::longjmp(errors.jump, 1);
}

// Warnings are damage, but for some that say nothing of pixels.
void Warn(j_common_ptr info, int level) {
  if (level >= 0) return;
  switch (info->err->msg_code) {
    case JWRN_EXTRANEOUS_DATA:
    case JWRN_ADOBE_XFORM:
    case JWRN_JFIF_MAJOR:
      return;
    default:
      Fail(info);
  }
}

void CountScans(j_common_ptr info) {
  const auto* const decompress = reinterpret_cast<j_decompress_ptr>(info);
  if (info->is_decompressor == FALSE || decompress->input_scan_number <= kMostScans) return;
  Errors& errors = ErrorsOf(info);
  std::snprintf(errors.text, sizeof errors.text, "more than %d scans", kMostScans);
  std::longjmp(errors.jump, 1);
}

// The library's object, freed whatever happens. Whoever calls setjmp keeps nothing with a
// destructor in that frame.
class Decompressor {
 public:
  Decompressor() {
    info_.err = jpeg_std_error(&errors_.manager);
    errors_.manager.error_exit = Fail;
    errors_.manager.emit_message = Warn;
    errors_.text[0] = 0;
  }
  ~Decompressor() { jpeg_destroy_decompress(&info_); }
  Decompressor(const Decompressor&) = delete;
  Decompressor& operator=(const Decompressor&) = delete;

  jpeg_decompress_struct* info() { return &info_; }
  std::jmp_buf& jump() { return errors_.jump; }
  [[nodiscard]] std::string text() const { return errors_.text; }

  // Jumps on error.
  void Start(std::span<const uint8_t> file) {
    jpeg_create_decompress(&info_);
    info_.mem->max_memory_to_use = kMostMemory;
    errors_.progress.progress_monitor = CountScans;
    info_.progress = &errors_.progress;
    jpeg_mem_src(&info_, file.data(), file.size());
    jpeg_read_header(&info_, TRUE);
  }

 private:
  Errors errors_ = {};
  jpeg_decompress_struct info_ = {};
};

// x times k over 255, rounded.
uint32_t Product(uint32_t x, uint32_t k) {
  const uint32_t scaled = x * k + 128;
  return (scaled + (scaled >> 8)) >> 8;
}

// As Pillow has it: files of four colours are all taken for Adobe's, which are inverted.
void CmykToRgbx(uint8_t* row, size_t width) {
  for (uint8_t* pixel = row; pixel < row + 4 * width; pixel += 4) {
    const uint32_t light = pixel[3];
    for (int c = 0; c < 3; ++c) {
      const int64_t left = int64_t{light} - Product(255U - pixel[c], light);
      pixel[c] = static_cast<uint8_t>(std::max<int64_t>(0, left));
    }
  }
}

// Sets what is decoded to; true for four colours.
bool ChooseColours(jpeg_decompress_struct* info) {
  const bool four = info->jpeg_color_space == JCS_CMYK || info->jpeg_color_space == JCS_YCCK;
  const bool grey = info->jpeg_color_space == JCS_GRAYSCALE;
  info->out_color_space = four ? JCS_CMYK : grey ? JCS_GRAYSCALE : JCS_EXT_RGBX;
  info->dct_method = JDCT_ISLOW;
  info->do_fancy_upsampling = TRUE;
  return four;
}

// Jumps on error. A row of `scan` holds columns of the file from `begin` on, the window's and at
// least one more on each side where there is one: without them upsampling would give others.
void Decode(Decompressor* decompressor, std::span<const uint8_t> file, const Window& window,
            const RowSink& sink, std::vector<uint8_t>* scan) {
  decompressor->Start(file);
  jpeg_decompress_struct* const info = decompressor->info();
  const bool four = ChooseColours(info);
  jpeg_start_decompress(info);
  JDIMENSION begin = window.left > 0 ? window.left - 1 : 0;
  JDIMENSION width = std::min(window.left + window.size.width + 1, info->output_width) - begin;
  if (width < info->output_width) jpeg_crop_scanline(info, &begin, &width);
  const auto lanes = static_cast<size_t>(info->output_components);
  scan->resize(size_t{width} * lanes);
  const size_t place = size_t{window.left - begin} * lanes;
  const size_t bytes = size_t{window.size.width} * lanes;
  if (window.top > 0) jpeg_skip_scanlines(info, window.top);
  for (uint32_t y = 0; y < window.size.height; ++y) {
    JSAMPROW row = scan->data();
    jpeg_read_scanlines(info, &row, 1);
    if (four) CmykToRgbx(row + place, window.size.width);
    sink({row + place, bytes});
  }
  jpeg_abort_decompress(info);
}

}  // namespace

StatusOr<Header> ReadJpegHeader(std::span<const uint8_t> file) {
  Decompressor decompressor;
  if (setjmp(decompressor.jump()) != 0) {
    return FailedPrecondition("its JPEG header: {}", decompressor.text());
  }
  decompressor.Start(file);
  const jpeg_decompress_struct& info = *decompressor.info();
  if (info.arith_code != FALSE) {
    return FailedPrecondition("it is a JPEG with arithmetic coding, which is not decoded");
  }
  return Header{Codec::kJpeg,
                {info.image_height, info.image_width},
                info.jpeg_color_space == JCS_GRAYSCALE ? 1U : 3U};
}

#define RING_TEXT_OF(x) #x  // of a macro that is no string
#define RING_VALUE_OF(x) RING_TEXT_OF(x)
std::string JpegVersion() { return RING_VALUE_OF(LIBJPEG_TURBO_VERSION); }

// No error is left: memory that there is not ends the process.
std::string EncodeJpeg(std::span<const uint8_t> pixels, const Size& size, uint32_t channels,
                       int quality) {
  RING_CHECK(pixels.size() == size_t{size.height} * size.width * channels && !pixels.empty(),
             "the size of an image");
  RING_CHECK(std::max(size.height, size.width) <= kMostJpegSide, "a side of a JPEG");
  jpeg_compress_struct info = {};
  jpeg_error_mgr errors = {};
  info.err = jpeg_std_error(&errors);
  jpeg_create_compress(&info);
  unsigned char* file = nullptr;
  unsigned long bytes = 0;
  jpeg_mem_dest(&info, &file, &bytes);
  info.image_width = size.width;
  info.image_height = size.height;
  info.input_components = static_cast<int>(channels);
  info.in_color_space = channels == 1 ? JCS_GRAYSCALE : JCS_RGB;
  jpeg_set_defaults(&info);
  jpeg_set_quality(&info, quality, TRUE);
  info.dct_method = JDCT_ISLOW;
  jpeg_start_compress(&info, TRUE);
  const size_t stride = size_t{size.width} * channels;
  for (uint32_t y = 0; y < size.height; ++y) {
    auto* row = const_cast<JSAMPROW>(pixels.data() + y * stride);
    jpeg_write_scanlines(&info, &row, 1);
  }
  jpeg_finish_compress(&info);
  std::string encoded(reinterpret_cast<const char*>(file), bytes);
  jpeg_destroy_compress(&info);
  std::free(file);
  return encoded;
}

Status DecodeJpeg(std::span<const uint8_t> file, const Window& window, const RowSink& sink) {
  Decompressor decompressor;
  std::vector<uint8_t> scan;
  if (setjmp(decompressor.jump()) != 0) return DataLoss("JPEG: {}", decompressor.text());
  Decode(&decompressor, file, window, sink, &scan);
  return absl::OkStatus();
}

}  // namespace ringmaster::image
