#include "common/data/cifar100.h"

#include "common/data/sample_image.h"

namespace ringmaster::data {
namespace {

constexpr uint32_t kFineOfCoarse = 5;  // in sample data; the real superclasses are not in order

void DrawCifar100(uint64_t seed, Split split, uint64_t sample, std::span<uint8_t> record) {
  const uint32_t fine = DrawSampleImage({seed, split, sample, kCifar100Classes}, record.subspan(2));
  record[0] = static_cast<uint8_t>(fine / kFineOfCoarse);
  record[1] = static_cast<uint8_t>(fine);
}

std::vector<SampleFile> Cifar100SampleFiles(uint64_t train, uint64_t test) {
  return {{"train.bin", Split::kTrain, 0, train, {}, kCifar100RecordBytes, DrawCifar100},
          {"test.bin", Split::kTest, 0, test, {}, kCifar100RecordBytes, DrawCifar100}};
}

}  // namespace

const Format& Cifar100() {
  static const Format format = {
      .name = "cifar100",
      .classes = kCifar100Classes,
      .may_be_gzipped = false,
      .files = {{Split::kTrain, Holds::kRecords, "train.bin", "training file"},
                {Split::kTest, Holds::kRecords, "test.bin", "test file"}},
      .layout = [](const FileKind&,
                   const ContentStart& start) { return CifarLayout("cifar100", 2, start); },
      .sample_files = Cifar100SampleFiles};
  return format;
}

}  // namespace ringmaster::data
