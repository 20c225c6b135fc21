#include "common/data/cifar10.h"

#include <algorithm>

#include "common/data/sample_image.h"

namespace ringmaster::data {
namespace {

void DrawCifar10(uint64_t seed, Split split, uint64_t sample, std::span<uint8_t> record) {
  record[0] = static_cast<uint8_t>(
      DrawSampleImage({seed, split, sample, kCifar10Classes}, record.subspan(1)));
}

std::vector<SampleFile> Cifar10SampleFiles(uint64_t train, uint64_t test) {
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

}  // namespace

const Format& Cifar10() {
  static const Format format = {
      .name = "cifar10",
      .classes = kCifar10Classes,
      .may_be_gzipped = false,
      .files = {{Split::kTrain, Holds::kRecords, "data_batch_*.bin", "training file"},
                {Split::kTest, Holds::kRecords, "test_batch.bin", "test file"}},
      .layout = [](const FileKind&,
                   const ContentStart& start) { return CifarLayout("cifar10", 1, start); },
      .sample_files = Cifar10SampleFiles};
  return format;
}

}  // namespace ringmaster::data
