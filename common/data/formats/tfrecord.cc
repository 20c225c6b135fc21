// The format tfrecord: TensorFlow's record files, a tf.Example with an image and its label in each
// record. Shards NAME-00000-of-00010, or files that end in .tfrecord or .tfrecords, in the folder
// or in its folders train, and validation, val or test; else a word of the name says the split, and
// where none does all are training samples. A record is (TensorFlow, lib/io/record_writer.h): u64
// length, masked CRC-32C of those eight bytes, the bytes, their masked CRC-32C; little-endian.
#include <fmt/ranges.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>

#include "common/crc32c.h"
#include "common/data/drawing.h"
#include "common/data/format.h"
#include "common/data/formats/image_formats.h"
#include "common/data/formats/tf_example.h"
#include "common/data/record_index.h"
#include "common/image/decode.h"

namespace ringmaster::data {
namespace {

constexpr size_t kRecordHeader = 12, kRecordFooter = 4;
// An image and what else there is of it.
constexpr uint64_t kMostExampleBytes = image::kMostBytes + (uint64_t{1} << 20);

uint64_t Whole(std::span<const uint8_t> bytes) {
  uint64_t value = 0;
  for (size_t i = bytes.size(); i-- > 0;) value = value << 8 | bytes[i];
  return value;
}

// ---- which files ------------------------------------------------------------------------------

// train-00003-of-00010, and 00003-of-00010 with more behind it.
struct ShardName {
  std::string stem;  // without the numbers
  uint64_t number = 0, total = 0;
};

std::optional<ShardName> ParseShard(const std::string& name) {
  const size_t of = name.rfind("-of-");
  if (of == std::string::npos) return std::nullopt;
  const auto is_digit = [&](size_t i) {
    return i < name.size() && name[i] >= '0' && name[i] <= '9';
  };
  size_t begin = of, end = of + 4;
  while (begin > 0 && is_digit(begin - 1)) --begin;
  while (is_digit(end)) ++end;
  const size_t digits = of - begin;
  if (digits == 0 || digits > 9 || end - of - 4 == 0 || end - of - 4 > 9) return std::nullopt;
  return ShardName{name.substr(0, begin) + name.substr(end),
                   std::stoull(name.substr(begin, digits)),
                   std::stoull(name.substr(of + 4, end - of - 4))};
}

bool IsRecordFile(const std::string& name) {
  return ParseShard(name) || name.ends_with(".tfrecord") || name.ends_with(".tfrecords");
}

// Shards 0 to N - 1 of N, each once.
Status CheckShards(const std::vector<RecordFile>& files) {
  std::map<std::string, std::vector<ShardName>> sets;
  for (const RecordFile& file : files) {
    if (const auto shard = ParseShard(file.name)) sets[shard->stem].push_back(*shard);
  }
  for (auto& [stem, shards] : sets) {
    std::ranges::sort(shards, {}, &ShardName::number);  // names have no zeros in front, or have
    const uint64_t total = shards.front().total;
    const auto other =
        std::ranges::find_if(shards, [&](const ShardName& shard) { return shard.total != total; });
    if (other != shards.end()) {
      return FailedPrecondition("{}: shards of {} and of {} lie in one folder; keep one set", stem,
                                total, other->total);
    }
    for (uint64_t i = 0; i < total; ++i) {
      if (i < shards.size() && shards[i].number == i) continue;
      return FailedPrecondition("{}: {} of {} shards are there; shard {:05} is missing", stem,
                                shards.size(), total, i);
    }
  }
  return absl::OkStatus();
}

StatusOr<RecordListing> ListRecords(const OwnedFile& folder) {
  RING_ASSIGN_OR_RETURN(RecordListing listing, ListBySplit(folder, IsRecordFile));
  RING_RETURN_IF_ERROR(CheckShards(listing.files));
  const bool trains = std::ranges::any_of(
      listing.files, [](const RecordFile& file) { return file.split == Split::kTrain; });
  if (trains) return listing;
  return Error(absl::StatusCode::kNotFound, "there is no record file of training samples ({})",
               "train-00000-of-00001, *.tfrecord");
}

bool LooksLikeRecords(const OwnedFile& folder) {
  const auto listing = ListRecords(folder);
  return listing.status().code() != absl::StatusCode::kNotFound;
}

// ---- what lies in them ------------------------------------------------------------------------

struct Keys {
  std::string image, label;
  int64_t first = 0;
};

// The keys of the job; those of ImageNet's scripts, whose labels begin with 1.
Keys KeysOf(const v1::DataSource& source) {
  Keys keys{source.columns().image(), source.columns().label(), source.first_label()};
  if (!source.has_first_label()) keys.first = keys.label.empty() ? 1 : 0;
  if (keys.image.empty()) keys.image = "image/encoded";
  if (keys.label.empty()) keys.label = "image/class/label";
  return keys;
}

std::string KindOf(const TfFeature& feature) {
  if (!feature.bytes.empty()) return fmt::format("{} of bytes", feature.bytes.size());
  if (!feature.numbers.empty()) return fmt::format("{} of int64", feature.numbers.size());
  return feature.floats > 0 ? fmt::format("{} of float", feature.floats) : "empty";
}

StatusOr<const TfFeature*> Want(const std::vector<TfFeature>& features, const std::string& key,
                                const char* column) {
  if (const TfFeature* const found = FindFeature(features, key)) return found;
  std::vector<std::string> names;
  for (const TfFeature& feature : features) names.push_back(feature.key);
  std::ranges::sort(names);
  return FailedPrecondition(
      "it has no feature \"{}\" for column {}; it has {}: name it in data.columns, as in {{image: "
      "image, label: label}}",
      key, column, fmt::join(names, ", "));
}

// The image's place in `example`, and its label; `unread`: why it is none, if it is not.
StatusOr<Record> FindInExample(std::span<const uint8_t> example, const v1::DataSource& source,
                               Status* unread) {
  const Keys keys = KeysOf(source);
  RING_ASSIGN_OR_RETURN(const std::vector<TfFeature> features, ParseTfExample(example));
  RING_ASSIGN_OR_RETURN(const TfFeature* const image, Want(features, keys.image, "image"));
  RING_ASSIGN_OR_RETURN(const TfFeature* const label, Want(features, keys.label, "label"));
  if (image->bytes.size() != 1) {
    return FailedPrecondition("feature \"{}\" is {}: an image is 1 of bytes", keys.image,
                              KindOf(*image));
  }
  if (label->numbers.size() != 1) {
    return FailedPrecondition("feature \"{}\" is {}: a label is 1 of int64", keys.label,
                              KindOf(*label));
  }
  const int64_t number = label->numbers[0];
  if (number < keys.first || number >= keys.first + INT32_MAX) {
    return FailedPrecondition(
        "label {} is not in {} to {}: data.first_label says which is the first", number, keys.first,
        keys.first + INT32_MAX - 1);
  }
  const std::span<const uint8_t> file = image->bytes[0];
  const auto header = ReadHeader(source, file);
  *unread = header.status();
  Record record = RecordOf(file, header.value_or(image::Header()));
  record.offset = static_cast<uint64_t>(file.data() - example.data());
  record.label = static_cast<int32_t>(number - keys.first);
  return record;
}

// The bytes of the record at `offset`, and what is wrong with them.
Status ReadRecord(const RecordFile& file, int descriptor, uint64_t offset,
                  std::vector<uint8_t>* bytes) {
  std::array<uint8_t, kRecordHeader> header;
  if (file.bytes - offset < header.size()) return FailedPrecondition("the file ends in its header");
  RING_RETURN_IF_ERROR(ReadExactly(descriptor, offset, header));
  const uint64_t length = Whole(std::span(header).first(8));
  if (MaskedCrc32c(ExtendCrc32c(0, std::span(header).first(8))) !=
      Whole(std::span(header).last(4))) {
    return FailedPrecondition("its length has another CRC-32C: {}",
                              offset == 0
                                  ? "it is no TFRecord, or compressed as a whole, which is not read"
                                  : "it is damaged");
  }
  if (length > kMostExampleBytes || length + kRecordFooter > file.bytes - offset - kRecordHeader) {
    return FailedPrecondition("it says {} bytes, the file has {} more", length,
                              file.bytes - offset - kRecordHeader);
  }
  bytes->resize(length + kRecordFooter);
  RING_RETURN_IF_ERROR(ReadExactly(descriptor, offset + kRecordHeader, *bytes));
  const uint64_t said = Whole(std::span(*bytes).last(kRecordFooter));
  bytes->resize(length);
  if (MaskedCrc32c(ExtendCrc32c(0, *bytes)) == said) return absl::OkStatus();
  return FailedPrecondition("its bytes have another CRC-32C: it is damaged");
}

StatusOr<FoundRecords> FindRecords(const v1::DataSource& source, const RecordFile& file,
                                   int descriptor, const std::stop_token& stop) {
  FoundRecords found;
  std::vector<uint8_t> bytes;
  for (uint64_t offset = 0; offset < file.bytes;) {
    RING_RETURN_IF_ERROR(StillWanted(stop));
    const std::string place =
        fmt::format("record {} at byte {}", found.records.size() + found.bad.size(), offset);
    RING_RETURN_IF_ERROR(Annotate(ReadRecord(file, descriptor, offset, &bytes), place));
    Status unread;
    auto record = FindInExample(bytes, source, &unread);
    if (!record.ok()) return Annotate(record.status(), place);
    record->offset += offset + kRecordHeader;
    if (unread.ok()) {
      found.records.push_back(*record);
    } else {
      found.bad.emplace_back(record->offset, Message(Annotate(unread, place)));
    }
    offset += kRecordHeader + bytes.size() + kRecordFooter;
  }
  if (!found.records.empty() || !found.bad.empty()) return found;
  return FailedPrecondition("there is no record in it");
}

// ---- writing, and sample data -----------------------------------------------------------------

std::string Little(uint64_t value, size_t bytes) {
  std::string text;
  for (size_t i = 0; i < bytes; ++i) text += static_cast<char>(value >> (8 * i));
  return text;
}

std::string WriteRecord(const std::string& bytes) {
  const auto masked = [](const std::string& text) {
    return Little(
        MaskedCrc32c(ExtendCrc32c(0, {reinterpret_cast<const uint8_t*>(text.data()), text.size()})),
        4);
  };
  const std::string length = Little(bytes.size(), 8);
  return length + masked(length) + bytes + masked(bytes);
}

// As ImageNet's: labels from 1 on.
std::vector<SampleFile> TfRecordSampleFiles(uint64_t train, uint64_t test, uint64_t /*seed*/) {
  const auto name = [](Split split, uint64_t shard, uint64_t shards) {
    return fmt::format("{}-{:05}-of-{:05}", split == Split::kTrain ? "train" : "validation", shard,
                       shards);
  };
  return SampleShards(train, test, name, [](const SampleKey& key, uint64_t /*sample*/) {
    return WriteImageRecord(DrawSampleFile(key), SampleImageLabel(key));
  });
}

constexpr RecordFormat kTfRecords = {"train-00000-of-00010 or *.tfrecord", LooksLikeRecords,
                                     ListRecords, FindRecords};

}  // namespace

std::string WriteImageRecord(const std::string& image, int64_t label,
                             const std::string& class_name) {
  std::vector<std::pair<std::string, std::string>> texts;
  if (!class_name.empty()) texts.emplace_back("image/class/text", class_name);
  return WriteRecord(WriteTfExample("image/encoded", image, "image/class/label", label + 1, texts));
}

const Format& TfRecord() {
  static const Format format = {.name = "tfrecord",
                                .classes = 0,
                                .may_be_gzipped = false,
                                .files = {},
                                .layout = nullptr,
                                .sample_files = TfRecordSampleFiles,
                                .records = &kTfRecords};
  return format;
}

}  // namespace ringmaster::data
