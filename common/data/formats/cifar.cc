// CIFAR-10: training files are data_batch_*.bin, the test file is test_batch.bin. CIFAR-100:
// train.bin and test.bin (common/data/formats/image_formats.h).
#include <algorithm>

#include "common/check.h"
#include "common/data/drawing.h"
#include "common/data/format.h"
#include "common/data/formats/image_formats.h"

namespace ringmaster::data {
namespace {

// Of a file whose records begin with `label_bytes`, the last of which is the label.
StatusOr<FileLayout> CifarLayout(const std::string& format, size_t label_bytes, uint32_t classes,
                                 const FileKind& kind, const Content& content) {
  const uint64_t record = label_bytes + kCifarPixels;
  if (content.bytes == 0) {
    return FailedPrecondition("{} is empty: a {} file holds records", content.name, format);
  }
  if (content.bytes % record != 0) {
    return FailedPrecondition(
        "{} has {} bytes: not a whole number of {} records of {} bytes ({} bytes left over); it is "
        "truncated or of another format",
        content.name, content.bytes, format, record, content.bytes % record);
  }
  const uint64_t samples = content.bytes / record;
  return FileLayout{.bytes = content.bytes,
                    .arrays = {{.column = "image",
                                .split = *kind.split,
                                .samples = samples,
                                .begin = label_bytes,
                                .stride = record,
                                .planes = true,
                                .shape = {kCifarHeight, kCifarWidth, kCifarChannels}},
                               {.column = "label",
                                .split = *kind.split,
                                .samples = samples,
                                .begin = label_bytes - 1,
                                .stride = record,
                                .limit = classes}}};
}

void DrawCifar10(uint64_t seed, Split split, uint64_t sample, std::span<uint8_t> record) {
  record[0] = static_cast<uint8_t>(
      DrawSampleImage({seed, split, sample, kCifar10Classes}, record.subspan(1)));
}

std::vector<SampleFile> Cifar10SampleFiles(uint64_t train, uint64_t test, uint64_t /*seed*/) {
  constexpr uint64_t kTrainFiles = 5;
  std::vector<SampleFile> files;
  const uint64_t count = std::min(kTrainFiles, train);
  for (uint64_t i = 0; i < count; ++i) {
    files.push_back({fmt::format("data_batch_{}.bin", i + 1),
                     Split::kTrain,
                     train * i / count,
                     train * (i + 1) / count,
                     {},
                     kCifar10RecordBytes,
                     DrawCifar10});
  }
  files.push_back({"test_batch.bin", Split::kTest, 0, test, {}, kCifar10RecordBytes, DrawCifar10});
  return files;
}

constexpr uint32_t kFineOfCoarse = 5;  // in sample data; the real superclasses are not in order

void DrawCifar100(uint64_t seed, Split split, uint64_t sample, std::span<uint8_t> record) {
  const uint32_t fine = DrawSampleImage({seed, split, sample, kCifar100Classes}, record.subspan(2));
  record[0] = static_cast<uint8_t>(fine / kFineOfCoarse);
  record[1] = static_cast<uint8_t>(fine);
}

std::vector<SampleFile> Cifar100SampleFiles(uint64_t train, uint64_t test, uint64_t /*seed*/) {
  return {{"train.bin", Split::kTrain, 0, train, {}, kCifar100RecordBytes, DrawCifar100},
          {"test.bin", Split::kTest, 0, test, {}, kCifar100RecordBytes, DrawCifar100}};
}

}  // namespace

void PlanesToInterleaved(std::span<const uint8_t> planes, uint32_t channels,
                         std::span<uint8_t> pixels) {
  RING_CHECK(channels > 0 && planes.size() == pixels.size(), "image size");
  const size_t plane = planes.size() / channels;
  for (size_t c = 0; c < channels; ++c) {
    const uint8_t* const from = planes.data() + c * plane;
    for (size_t i = 0; i < plane; ++i) pixels[i * channels + c] = from[i];
  }
}

const Format& Cifar10() {
  static const Format format = {
      .name = "cifar10",
      .classes = kCifar10Classes,
      .may_be_gzipped = false,
      .files = {{Split::kTrain, Holds::kRecords, "data_batch_*.bin", "training file"},
                {Split::kTest, Holds::kRecords, "test_batch.bin", "test file"}},
      .layout =
          [](const FileKind& kind, const Content& content) {
            return CifarLayout("cifar10", 1, kCifar10Classes, kind, content);
          },
      .sample_files = Cifar10SampleFiles};
  return format;
}

const Format& Cifar100() {
  static const Format format = {
      .name = "cifar100",
      .classes = kCifar100Classes,
      .may_be_gzipped = false,
      .files = {{Split::kTrain, Holds::kRecords, "train.bin", "training file"},
                {Split::kTest, Holds::kRecords, "test.bin", "test file"}},
      .layout =
          [](const FileKind& kind, const Content& content) {
            return CifarLayout("cifar100", 2, kCifar100Classes, kind, content);
          },
      .sample_files = Cifar100SampleFiles};
  return format;
}

}  // namespace ringmaster::data
