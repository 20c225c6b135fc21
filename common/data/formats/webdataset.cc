// The format webdataset: tar files, PREFIX-000000.tar and so on, of which each sample is an image,
// .jpg, .jpeg or .png, and beside it a .cls with its class, a whole number in ASCII. What belongs
// to a sample is named alike up to the first dot of the last part of its name, and lies side by
// side (webdataset, tariterators.py); other members are passed over. Splits are told by words, as
// tfrecord's. Tar files are read as POSIX's ustar and pax, and GNU's long names, have them; what is
// no file, and names that begin with a dot or are __so__, are passed over.
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <map>
#include <optional>
#include <set>
#include <string_view>

#include "common/crc32c.h"
#include "common/data/drawing.h"
#include "common/data/format.h"
#include "common/data/record_index.h"
#include "common/image/decode.h"
#include "common/text.h"

namespace ringmaster::data {
namespace {

constexpr size_t kBlock = 512;
constexpr size_t kMostOfSample = 64;  // of a sample
constexpr uint64_t kMostNameBytes = 4096, kMostPaxBytes = uint64_t{1} << 20, kMostClassBytes = 64;

// ---- which files --------------------------------------------------------------------------------

bool IsTar(const std::string& name) {
  return name.ends_with(".tar") || name.ends_with(".tar.gz") || name.ends_with(".tgz");
}

// The number at the end of `train-000012.tar`, and what is before it.
std::optional<std::pair<std::string, uint64_t>> NumberOfShard(const std::string& name) {
  const size_t end = name.size() - 4;
  size_t begin = end;
  while (begin > 0 && name[begin - 1] >= '0' && name[begin - 1] <= '9') --begin;
  if (begin == end || end - begin > 18) return std::nullopt;
  return std::pair(name.substr(0, begin), std::stoull(name.substr(begin, end - begin)));
}

StatusOr<RecordListing> ListTars(const OwnedFile& folder) {
  RING_ASSIGN_OR_RETURN(RecordListing listing, ListBySplit(folder, IsTar));
  std::map<std::string, std::map<uint64_t, std::string>> sets;  // by number
  for (const RecordFile& file : listing.files) {
    if (!file.name.ends_with(".tar")) {
      return FailedPrecondition(
          "{} is compressed as a whole, which cannot be read at random: gunzip "
          "it; its images are compressed already",
          file.name);
    }
    if (const auto shard = NumberOfShard(file.name)) sets[shard->first][shard->second] = file.name;
  }
  for (const auto& [stem, shards] : sets) {
    uint64_t next = shards.begin()->first;
    if (next > 1) continue;  // years, or the like
    for (const auto& [number, name] : shards) {
      if (number != next) {
        return FailedPrecondition("{} does not follow number {}: one between is missing", name,
                                  next - 1);
      }
      ++next;
    }
  }
  const bool trains = std::ranges::any_of(
      listing.files, [](const RecordFile& file) { return file.split == Split::kTrain; });
  if (trains) return listing;
  return Error(absl::StatusCode::kNotFound, "there is no tar file of training samples ({})",
               "train-000000.tar, train/*.tar");
}

bool LooksLikeTars(const OwnedFile& folder) {
  return ListTars(folder).status().code() != absl::StatusCode::kNotFound;
}

// ---- members of a tar file ----------------------------------------------------------------------

struct TarMember {
  std::string name;
  uint64_t begin = 0, bytes = 0;
  bool is_file = false;
};

// A field of a header: ASCII up to a zero.
std::string TarText(std::span<const uint8_t> field) {
  const auto end = std::ranges::find(field, uint8_t{0});
  return {field.begin(), end};
}

// Octal, blanks around it; or, from the highest bit on, big-endian.
std::optional<uint64_t> TarNumber(std::span<const uint8_t> field) {
  if ((field[0] & 0x80) != 0) {
    uint64_t value = field[0] & 0x7F;
    for (const uint8_t byte : field.subspan(1)) {
      if (value >> 55 != 0) return std::nullopt;
      value = value << 8 | byte;
    }
    return value;
  }
  const std::string text = TarText(field);
  const size_t begin = std::min(text.find_first_not_of(' '), text.size());
  uint64_t value = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data() + begin, end, value, 8);
  const bool blank = std::all_of(stop, end, [](char c) { return c == ' '; });
  if (!blank || error == std::errc::result_out_of_range) return std::nullopt;
  return value;  // 0 of an empty field
}

class TarReader {
 public:
  TarReader(int descriptor, uint64_t bytes) : descriptor_(descriptor), bytes_(bytes) {}

  // Nothing at the end mark.
  StatusOr<std::optional<TarMember>> Next() {
    std::optional<std::string> long_name;
    Pax pax;
    while (true) {
      RING_ASSIGN_OR_RETURN(std::optional<Header> header, ReadTarHeader());
      if (!header) {
        if (long_name || pax.name || pax.bytes) return Odd("it ends behind a long name");
        return std::optional<TarMember>();
      }
      const bool extends = header->type == 'x' || header->type == 'L';
      if (header->type == 'S') return Odd("it has a sparse file, which is not read");
      if (pax.bytes && !extends) header->bytes = *pax.bytes;
      const uint64_t begin = at_, room = bytes_ - at_;
      if (header->bytes > room) {
        return Odd(fmt::format("{} has {} bytes, the file has {} more: it is truncated",
                               OneLine(header->name, 200), header->bytes, room));
      }
      at_ = std::min(bytes_, begin + (header->bytes + kBlock - 1) / kBlock * kBlock);
      if (header->type == 'L') {
        RING_ASSIGN_OR_RETURN(const auto text, ReadWhole(begin, header->bytes, kMostNameBytes));
        long_name = TarText(text);
      } else if (header->type == 'x') {
        RING_ASSIGN_OR_RETURN(const auto text, ReadWhole(begin, header->bytes, kMostPaxBytes));
        RING_RETURN_IF_ERROR(ReadPax(text, &pax));
      } else if (header->type != 'g' && header->type != 'K') {
        TarMember member = {
            .name = std::move(header->name), .begin = begin, .bytes = header->bytes};
        if (long_name) member.name = *long_name;
        if (pax.name) member.name = *pax.name;
        member.is_file = header->type == '0' || header->type == '\0' || header->type == '7';
        if (member.name.size() > kMostNameBytes) return Odd("a name has over 4096 bytes");
        return std::optional(std::move(member));
      }
    }
  }

  StatusOr<std::vector<uint8_t>> ReadWhole(uint64_t begin, uint64_t bytes, uint64_t most) const {
    if (bytes > most) {
      return Odd(fmt::format("{} bytes at byte {}, at most {} are expected", bytes, begin, most));
    }
    std::vector<uint8_t> whole(bytes);
    RING_RETURN_IF_ERROR(ReadExactly(descriptor_, begin, whole));
    return whole;
  }

 private:
  struct Header {
    std::string name;
    uint64_t bytes = 0;
    char type = '0';
  };
  struct Pax {
    std::optional<std::string> name;
    std::optional<uint64_t> bytes;
  };

  Status Odd(const std::string& why) const {
    return FailedPrecondition("it is no tar file, or a damaged one: before byte {}: {}", at_, why);
  }

  StatusOr<std::optional<Header>> ReadTarHeader() {
    std::array<uint8_t, kBlock> block;
    if (bytes_ - at_ < kBlock) return Odd("it ends without an end mark: it is truncated");
    RING_RETURN_IF_ERROR(ReadExactly(descriptor_, at_, block));
    at_ += kBlock;
    if (std::ranges::all_of(block, [](uint8_t byte) { return byte == 0; })) {
      RING_RETURN_IF_ERROR(CheckRest());
      return std::optional<Header>();
    }
    const std::span<const uint8_t> all(block);
    uint64_t sum = 0;
    for (size_t i = 0; i < kBlock; ++i) sum += i >= 148 && i < 156 ? ' ' : block[i];
    if (TarNumber(all.subspan(148, 8)) != sum) return Odd("the sum of a header is another one");
    const auto bytes = TarNumber(all.subspan(124, 12));
    if (!bytes) return Odd("a header's size is no number");
    Header header = {
        .name = TarText(all.first(100)), .bytes = *bytes, .type = static_cast<char>(block[156])};
    const bool posix = TarText(all.subspan(257, 6)) == "ustar";
    const std::string prefix = posix ? TarText(all.subspan(345, 155)) : "";
    if (!prefix.empty()) header.name = prefix + '/' + header.name;
    // What is no file has no bytes, whatever its size says.
    if (header.type >= '1' && header.type <= '6') header.bytes = 0;
    return std::optional(std::move(header));
  }

  // Behind the end mark there are zeros, up to a whole number of tape blocks.
  Status CheckRest() {
    std::vector<uint8_t> piece(size_t{1} << 20);
    for (uint64_t at = at_; at < bytes_; at += piece.size()) {
      piece.resize(std::min<uint64_t>(piece.size(), bytes_ - at));
      RING_RETURN_IF_ERROR(ReadExactly(descriptor_, at, piece));
      if (std::ranges::all_of(piece, [](uint8_t byte) { return byte == 0; })) continue;
      return Odd("something follows its end mark: are several files one after the other?");
    }
    return absl::OkStatus();
  }

  // Lines `LENGTH KEY=VALUE`, of which the length counts all of it.
  Status ReadPax(std::span<const uint8_t> text, Pax* pax) const {
    std::string_view left(reinterpret_cast<const char*>(text.data()), text.size());
    while (!left.empty()) {
      uint64_t length = 0;
      const auto [stop, error] = std::from_chars(left.data(), left.data() + left.size(), length);
      const auto digits = static_cast<size_t>(stop - left.data());
      const bool fits = error == std::errc() && length <= left.size() && digits + 2 < length &&
                        *stop == ' ' && left[length - 1] == '\n';
      if (!fits) return Odd("a pax header is none");
      const std::string_view record = left.substr(digits + 1, length - digits - 2);
      left.remove_prefix(length);
      const size_t equals = record.find('=');
      if (equals == std::string_view::npos) return Odd("a pax header is none");
      const std::string_view key = record.substr(0, equals), value = record.substr(equals + 1);
      if (key == "path") pax->name = std::string(value);
      if (key.starts_with("GNU.sparse")) return Odd("it has a sparse file, which is not read");
      if (key != "size") continue;
      const char* const end = value.data() + value.size();
      if (std::from_chars(value.data(), end, pax->bytes.emplace()).ptr != end || value.empty()) {
        return Odd("a pax header's size is no number");
      }
    }
    return absl::OkStatus();
  }

  const int descriptor_;
  const uint64_t bytes_;
  uint64_t at_ = 0;
};

// ---- samples ------------------------------------------------------------------------------------

struct MemberName {
  std::string key, suffix;
};

// Nothing where it is no part of a sample.
std::optional<MemberName> ParseMemberName(const std::string& name) {
  if (name.starts_with("__") && name.ends_with("__")) return std::nullopt;
  const size_t last = name.rfind('/') == std::string::npos ? 0 : name.rfind('/') + 1;
  const size_t dot = name.find('.', last);
  if (dot == std::string::npos || dot == last) return std::nullopt;
  MemberName parsed = {name.substr(0, dot), name.substr(dot + 1)};
  std::ranges::transform(parsed.suffix, parsed.suffix.begin(), [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
  });
  return parsed;
}

// Puts members together that belong to a sample.
class Samples {
 public:
  Samples(const v1::DataSource& source, const TarReader& tar) : source_(source), tar_(tar) {}

  Status Add(const TarMember& member) {
    const auto name = ParseMemberName(member.name);
    if (!member.is_file || !name) return absl::OkStatus();
    if (name->key != key_) {
      RING_RETURN_IF_ERROR(End());
      key_ = name->key;
      if (!keys_.insert(key_).second) {
        return FailedPrecondition(
            "sample {} comes twice: members of a sample lie side by side, and each has a name of "
            "its own",
            Key());
      }
    }
    if (std::ranges::find(suffixes_, name->suffix) != suffixes_.end()) {
      return FailedPrecondition("sample {} has two members .{}", Key(), OneLine(name->suffix, 80));
    }
    if (suffixes_.size() == kMostOfSample) {
      return FailedPrecondition("sample {} has more than {} members", Key(), kMostOfSample);
    }
    suffixes_.push_back(name->suffix);
    if (name->suffix == "cls") return ReadClass(member);
    const bool is_image = name->suffix == "jpg" || name->suffix == "jpeg" || name->suffix == "png";
    if (!is_image) return absl::OkStatus();
    if (image_) return FailedPrecondition("sample {} has two images", Key());
    image_ = member;
    return absl::OkStatus();
  }

  // The last sample is whole.
  Status End() {
    if (suffixes_.empty()) return absl::OkStatus();
    if (!image_ || !label_) {
      const bool json = std::ranges::find(suffixes_, "json") != suffixes_.end();
      return FailedPrecondition(
          "sample {} has {}; an image (.jpg, .jpeg or .png) and its class (.cls) are expected{}",
          Key(), OneLine(fmt::format(".{}", fmt::join(suffixes_, ", .")), 200),
          json ? ": a class in a .json is not read" : "");
    }
    RING_RETURN_IF_ERROR(AddImage());
    suffixes_.clear();
    image_.reset();
    label_.reset();
    return absl::OkStatus();
  }
  [[nodiscard]] FoundRecords Take() { return std::move(found_); }

 private:
  std::string Key() const { return OneLine(key_, 200); }

  Status ReadClass(const TarMember& member) {
    RING_ASSIGN_OR_RETURN(const std::vector<uint8_t> bytes,
                          tar_.ReadWhole(member.begin, member.bytes, kMostClassBytes));
    std::string text(bytes.begin(), bytes.end());
    while (!text.empty() && (text.back() == '\n' || text.back() == '\r' || text.back() == ' ')) {
      text.pop_back();
    }
    int32_t label = -1;
    const char* const end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data(), end, label);
    if (error != std::errc() || stop != end || label < 0 || label == INT32_MAX) {
      return FailedPrecondition(
          "sample {}: its class is \"{}\": expected a whole number, 0 to {}, in ASCII", Key(),
          OneLine(text, 80), INT32_MAX - 1);
    }
    label_ = label;
    return absl::OkStatus();
  }

  Status AddImage() {
    const auto bad = [&](const std::string& why) {
      found_.bad.emplace_back(image_->begin, fmt::format("sample {}: {}", Key(), why));
      return absl::OkStatus();
    };
    if (image_->bytes > image::kMostBytes) {
      return bad(
          fmt::format("it has {} bytes: an image may have {}", image_->bytes, image::kMostBytes));
    }
    RING_ASSIGN_OR_RETURN(const std::vector<uint8_t> bytes,
                          tar_.ReadWhole(image_->begin, image_->bytes, image::kMostBytes));
    const auto header = ReadHeader(source_, bytes);
    if (!header.ok()) return bad(Message(header.status()));
    Record record = RecordOf(bytes, *header);
    record.offset = image_->begin;
    record.label = *label_;
    found_.records.push_back(record);
    return absl::OkStatus();
  }

  const v1::DataSource& source_;
  const TarReader& tar_;
  FoundRecords found_;
  std::set<std::string> keys_;
  std::string key_;
  std::vector<std::string> suffixes_;
  std::optional<TarMember> image_;
  std::optional<int32_t> label_;
};

StatusOr<FoundRecords> FindInTar(const v1::DataSource& source, const RecordFile& file,
                                 int descriptor, const std::stop_token& stop) {
  TarReader tar(descriptor, file.bytes);
  Samples samples(source, tar);
  while (true) {
    RING_RETURN_IF_ERROR(StillWanted(stop));
    RING_ASSIGN_OR_RETURN(const std::optional<TarMember> member, tar.Next());
    if (!member) break;
    RING_RETURN_IF_ERROR(samples.Add(*member));
  }
  RING_RETURN_IF_ERROR(samples.End());
  FoundRecords found = samples.Take();
  if (!found.records.empty() || !found.bad.empty()) return found;
  return FailedPrecondition("there is no sample in it");
}

// ---- sample data --------------------------------------------------------------------------------

std::string WriteTarMember(const std::string& name, const std::string& bytes) {
  std::string block(kBlock, '\0');
  const auto put = [&](size_t at, const std::string& text) {
    block.replace(at, text.size(), text);
  };
  put(0, name);
  put(100, "0000644");
  put(108, "0000000");
  put(116, "0000000");
  put(124, fmt::format("{:011o}", bytes.size()));
  put(136, "00000000000");
  put(148, "        ");
  put(156, "0");
  put(257, "ustar");
  put(263, "00");
  uint64_t sum = 0;
  for (const char c : block) sum += static_cast<uint8_t>(c);
  put(148, fmt::format("{:06o}", sum) + '\0' + ' ');
  return block + bytes + std::string((kBlock - bytes.size() % kBlock) % kBlock, '\0');
}

std::vector<SampleFile> WebDatasetSampleFiles(uint64_t train, uint64_t test, uint64_t /*seed*/) {
  const auto name = [](Split split, uint64_t shard, uint64_t /*shards*/) {
    return fmt::format("{}-{:06}.tar", split == Split::kTrain ? "train" : "val", shard);
  };
  const auto draw = [](const SampleKey& key, uint64_t sample) {
    return WriteTarMember(fmt::format("{:06}.jpg", sample), DrawSampleFile(key)) +
           WriteTarMember(fmt::format("{:06}.cls", sample), fmt::to_string(SampleImageLabel(key)));
  };
  return SampleShards(train, test, name, draw, std::string(2 * kBlock, '\0'));
}

constexpr RecordFormat kTars = {"train-000000.tar or train/*.tar", LooksLikeTars, ListTars,
                                FindInTar};

}  // namespace

const Format& WebDataset() {
  static const Format format = {.name = "webdataset",
                                .classes = 0,
                                .may_be_gzipped = false,
                                .files = {},
                                .layout = nullptr,
                                .sample_files = WebDatasetSampleFiles,
                                .records = &kTars};
  return format;
}

}  // namespace ringmaster::data
