// The MNIST format (common/data/formats/image_formats.h).
#include "common/data/drawing.h"
#include "common/data/format.h"
#include "common/data/formats/image_formats.h"

namespace ringmaster::data {
namespace {

constexpr uint32_t kImagesMagic = 2051, kLabelsMagic = 2049;
constexpr uint32_t kMaxPixels = 1024;

uint32_t WordOf(std::span<const uint8_t> head, size_t word) {
  uint32_t number = 0;
  for (size_t i = 0; i < 4; ++i) number = number << 8 | head[4 * word + i];
  return number;
}

std::vector<uint8_t> Header(std::initializer_list<uint32_t> words) {
  std::vector<uint8_t> bytes;
  for (const uint32_t word : words) {
    for (int shift = 24; shift >= 0; shift -= 8)
      bytes.push_back(static_cast<uint8_t>(word >> shift));
  }
  return bytes;
}

Status WrongMagic(const std::string& name, Holds holds, uint32_t magic) {
  const bool images = holds == Holds::kImages;
  std::string hint = "it is of another format";
  if (magic == kImagesMagic) hint = "that is an images file";
  if (magic == kLabelsMagic) hint = "that is a labels file";
  return FailedPrecondition("{} offset 0: the magic number is {}, of an IDX {} file it is {}; {}",
                            name, magic, images ? "images" : "labels",
                            images ? kImagesMagic : kLabelsMagic, hint);
}

StatusOr<FileLayout> Layout(const FileKind& kind, const Content& start) {
  const bool images = kind.holds == Holds::kImages;
  const size_t header = images ? kIdxImagesHeader : kIdxLabelsHeader;
  if (start.head.size() < header) {
    return FailedPrecondition("{} ends after {} bytes: an IDX header has {}; it is truncated",
                              start.name, start.head.size(), header);
  }
  const uint32_t magic = WordOf(start.head, 0);
  if (magic != (images ? kImagesMagic : kLabelsMagic)) {
    return WrongMagic(start.name, kind.holds, magic);
  }
  const uint64_t samples = WordOf(start.head, 1);
  if (samples == 0) {
    return FailedPrecondition("{} offset 4: its header counts 0 samples; at least one is needed",
                              start.name);
  }
  Array array = {.column = images ? "image" : "label",
                 .split = *kind.split,
                 .samples = samples,
                 .begin = header,
                 .stride = 1};
  if (images) {
    const uint32_t height = WordOf(start.head, 2), width = WordOf(start.head, 3);
    for (const uint32_t pixels : {height, width}) {
      if (pixels >= 1 && pixels <= kMaxPixels) continue;
      return FailedPrecondition(
          "{} offset 8: images of {} rows and {} columns; 1 to {} are expected", start.name, height,
          width, kMaxPixels);
    }
    array.shape = {height, width, 1};
    array.stride = array.row_bytes();
  } else {
    array.limit = kMnistClasses;
  }
  return FileLayout{.bytes = header + samples * array.stride, .arrays = {array}};
}

void DrawImage(uint64_t seed, Split split, uint64_t sample, std::span<uint8_t> record) {
  DrawSampleDigit(seed, split, sample, record);
}

void DrawLabel(uint64_t seed, Split split, uint64_t sample, std::span<uint8_t> record) {
  record[0] = static_cast<uint8_t>(SampleDigit(seed, split, sample));
}

std::vector<SampleFile> MnistSampleFiles(uint64_t train, uint64_t test, uint64_t /*seed*/) {
  std::vector<SampleFile> files;
  const auto add = [&](const std::string& prefix, Split split, uint64_t count) {
    const auto samples = static_cast<uint32_t>(count);
    files.push_back({prefix + "-images-idx3-ubyte", split, 0, count,
                     Header({kImagesMagic, samples, kMnistHeight, kMnistWidth}),
                     size_t{kMnistHeight} * kMnistWidth, DrawImage});
    files.push_back({prefix + "-labels-idx1-ubyte", split, 0, count,
                     Header({kLabelsMagic, samples}), 1, DrawLabel});
  };
  add("train", Split::kTrain, train);
  add("t10k", Split::kTest, test);
  return files;
}

}  // namespace

const Format& Mnist() {
  static const Format format = {
      .name = "mnist",
      .classes = kMnistClasses,
      .may_be_gzipped = true,
      .files = {{Split::kTrain, Holds::kImages, "train-images-idx3-ubyte",
                 "file of training images"},
                {Split::kTrain, Holds::kLabels, "train-labels-idx1-ubyte",
                 "file of training labels"},
                {Split::kTest, Holds::kImages, "t10k-images-idx3-ubyte", "file of test images"},
                {Split::kTest, Holds::kLabels, "t10k-labels-idx1-ubyte", "file of test labels"}},
      .layout = Layout,
      .sample_files = MnistSampleFiles};
  return format;
}

}  // namespace ringmaster::data
