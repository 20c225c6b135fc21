#include "common/data/formats/npz.h"

#include <algorithm>
#include <cstring>
#include <set>

#include "common/data/beneath.h"
#include "common/data/formats/gzip.h"
#include "common/text.h"

namespace ringmaster::data {
namespace {

constexpr uint32_t kLocalMagic = 0x04034b50, kCentralMagic = 0x02014b50, kEndMagic = 0x06054b50;
constexpr uint32_t kEnd64Magic = 0x06064b50, kLocator64Magic = 0x07064b50;
constexpr size_t kLocalBytes = 30, kCentralBytes = 46, kEndBytes = 22;
constexpr size_t kEnd64Bytes = 56, kLocator64Bytes = 20, kLongestComment = 0xFFFF;
constexpr uint64_t kMostMembers = 10'000, kMostDirectoryBytes = uint64_t{16} << 20;
constexpr uint32_t kSays64 = 0xFFFFFFFF;
constexpr char kNpyEnding[] = ".npy";

// A little-endian number of so many bytes.
uint64_t LittleAt(std::span<const uint8_t> bytes, size_t at, size_t count) {
  uint64_t value = 0;
  for (size_t i = count; i-- > 0;) value = value << 8 | bytes[at + i];
  return value;
}

Status NoArchive(const std::string& why) {
  return FailedPrecondition("it is no zip archive, or a damaged one: {}; save it with np.savez",
                            why);
}

// Where the directory lies.
struct Directory {
  uint64_t members = 0, begin = 0, bytes = 0;
};

class ZipReader {
 public:
  ZipReader(uint64_t bytes, const ReadBytes& read) : bytes_(bytes), read_(read) {}

  StatusOr<std::vector<ZipMember>> Read() {
    RING_ASSIGN_OR_RETURN(const Directory directory, Find());
    std::vector<uint8_t> central(directory.bytes);
    RING_RETURN_IF_ERROR(read_(directory.begin, central));
    std::vector<Entry> entries;
    std::set<std::string> names;
    size_t at = 0;
    for (uint64_t i = 0; i < directory.members; ++i) {
      RING_ASSIGN_OR_RETURN(Entry entry, ReadEntry(central, &at));
      if (!names.insert(entry.member.name).second) {
        return FailedPrecondition("it has two members {}", entry.member.name);
      }
      const Status placed = Place(directory.begin, &entry);
      if (!placed.ok()) return Annotate(placed, "member " + entry.member.name);
      entries.push_back(std::move(entry));
    }
    if (at != central.size()) return NoArchive("its directory has another length than it says");
    RING_RETURN_IF_ERROR(CheckOverlap(entries));
    std::vector<ZipMember> members;
    for (Entry& entry : entries) members.push_back(std::move(entry.member));
    return members;
  }

 private:
  struct Entry {
    ZipMember member;
    uint64_t local = 0;  // its local header
  };

  // The end record is the last thing in the file, but for a comment of its own.
  StatusOr<Directory> Find() {
    if (bytes_ < kEndBytes) return NoArchive(fmt::format("it has {} bytes", bytes_));
    std::vector<uint8_t> tail(std::min<uint64_t>(bytes_, kEndBytes + kLongestComment));
    const uint64_t begin = bytes_ - tail.size();
    RING_RETURN_IF_ERROR(read_(begin, tail));
    for (size_t at = tail.size() - kEndBytes + 1; at-- > 0;) {
      if (LittleAt(tail, at, 4) != kEndMagic) continue;
      if (at + kEndBytes + LittleAt(tail, at + 20, 2) != tail.size()) continue;
      return ReadEnd(std::span(tail).subspan(at, kEndBytes), begin + at);
    }
    return NoArchive("it has no end record, as a copy that was cut off");
  }

  StatusOr<Directory> ReadEnd(std::span<const uint8_t> end, uint64_t place) {
    Directory directory = {.members = LittleAt(end, 10, 2),
                           .begin = LittleAt(end, 16, 4),
                           .bytes = LittleAt(end, 12, 4)};
    uint64_t limit = place;
    if (directory.members == 0xFFFF || directory.begin == kSays64 || directory.bytes == kSays64) {
      RING_ASSIGN_OR_RETURN(limit, ReadEnd64(place, &directory));
    }
    if (directory.members > kMostMembers || directory.bytes > kMostDirectoryBytes) {
      return FailedPrecondition("its directory has {} members in {} bytes; at most {} in {}",
                                directory.members, directory.bytes, kMostMembers,
                                kMostDirectoryBytes);
    }
    if (directory.begin > limit || directory.bytes > limit - directory.begin) {
      return NoArchive("its directory lies behind its end");
    }
    if (directory.members * kCentralBytes > directory.bytes) {
      return NoArchive("its directory is shorter than its members");
    }
    return directory;
  }

  StatusOr<uint64_t> ReadEnd64(uint64_t place, Directory* directory) {
    if (place < kLocator64Bytes + kEnd64Bytes) return NoArchive("its zip64 record is missing");
    std::vector<uint8_t> locator(kLocator64Bytes), end(kEnd64Bytes);
    RING_RETURN_IF_ERROR(read_(place - kLocator64Bytes, locator));
    const uint64_t at = LittleAt(locator, 8, 8);
    if (LittleAt(locator, 0, 4) != kLocator64Magic || at > place - kLocator64Bytes - kEnd64Bytes) {
      return NoArchive("its zip64 record is missing");
    }
    RING_RETURN_IF_ERROR(read_(at, end));
    if (LittleAt(end, 0, 4) != kEnd64Magic) return NoArchive("its zip64 record is missing");
    *directory = {.members = LittleAt(end, 32, 8),
                  .begin = LittleAt(end, 48, 8),
                  .bytes = LittleAt(end, 40, 8)};
    return at;
  }

  static StatusOr<Entry> ReadEntry(std::span<const uint8_t> central, size_t* at) {
    if (central.size() - *at < kCentralBytes || LittleAt(central, *at, 4) != kCentralMagic) {
      return NoArchive("an entry of its directory is none");
    }
    const std::span<const uint8_t> fixed = central.subspan(*at, kCentralBytes);
    const size_t name = LittleAt(fixed, 28, 2), extra = LittleAt(fixed, 30, 2);
    const size_t whole = kCentralBytes + name + extra + LittleAt(fixed, 32, 2);
    if (central.size() - *at < whole) return NoArchive("an entry of its directory is cut off");
    Entry entry;
    ZipMember& member = entry.member;
    member.name = OneLine(
        std::string(reinterpret_cast<const char*>(central.data()) + *at + kCentralBytes, name),
        200);
    member.crc32 = static_cast<uint32_t>(LittleAt(fixed, 16, 4));
    member.stored_bytes = LittleAt(fixed, 20, 4);
    member.bytes = LittleAt(fixed, 24, 4);
    entry.local = LittleAt(fixed, 42, 4);
    const uint64_t flags = LittleAt(fixed, 8, 2), method = LittleAt(fixed, 10, 2);
    if ((flags & 1) != 0) return FailedPrecondition("member {} is encrypted", member.name);
    if (method != 0 && method != 8) {
      return FailedPrecondition(
          "member {} is compressed by method {}: write it with np.savez or np.savez_compressed",
          member.name, method);
    }
    member.deflated = method == 8;
    Widen(central.subspan(*at + kCentralBytes + name, extra), &entry);
    *at += whole;
    return entry;
  }

  // What did not fit 32 bits stands in an extra field, in this order.
  static void Widen(std::span<const uint8_t> extra, Entry* entry) {
    while (extra.size() >= 4) {
      const size_t size = LittleAt(extra, 2, 2);
      if (size > extra.size() - 4) return;
      if (LittleAt(extra, 0, 2) == 1) {
        size_t at = 4;
        for (uint64_t* const value :
             {&entry->member.bytes, &entry->member.stored_bytes, &entry->local}) {
          if (*value != kSays64 || at + 8 > size + 4) continue;
          *value = LittleAt(extra, at, 8);
          at += 8;
        }
        return;
      }
      extra = extra.subspan(4 + size);
    }
  }

  // Its bytes lie behind its local header, whose name and extra field have lengths of their own.
  Status Place(uint64_t limit, Entry* entry) const {
    ZipMember& member = entry->member;
    if (!member.deflated && member.bytes != member.stored_bytes) {
      return FailedPrecondition("it is stored as it is, yet has {} bytes there and {} in all",
                                member.stored_bytes, member.bytes);
    }
    if (entry->local > limit || limit - entry->local < kLocalBytes) {
      return NoArchive("it lies behind the directory");
    }
    std::vector<uint8_t> local(kLocalBytes);
    RING_RETURN_IF_ERROR(read_(entry->local, local));
    if (LittleAt(local, 0, 4) != kLocalMagic) return NoArchive("it is not where it should be");
    member.begin = entry->local + kLocalBytes + LittleAt(local, 26, 2) + LittleAt(local, 28, 2);
    if (member.begin <= limit && member.stored_bytes <= limit - member.begin) {
      return absl::OkStatus();
    }
    return NoArchive(
        fmt::format("its {} bytes reach past the begin of the directory", member.stored_bytes));
  }

  static Status CheckOverlap(const std::vector<Entry>& entries) {
    std::vector<const Entry*> sorted;
    for (const Entry& entry : entries) sorted.push_back(&entry);
    std::ranges::sort(sorted, {}, &Entry::local);
    for (size_t i = 1; i < sorted.size(); ++i) {
      const ZipMember& before = sorted[i - 1]->member;
      if (before.begin + before.stored_bytes <= sorted[i]->local) continue;
      return NoArchive(
          fmt::format("members {} and {} overlap", before.name, sorted[i]->member.name));
    }
    return absl::OkStatus();
  }

  const uint64_t bytes_;
  const ReadBytes& read_;
};

// A stored member is read where it lies, a deflated one is inflated into memory.
Status AddMember(const Content& file, const ZipMember& member, const SplitColumn& column,
                 uint64_t* inflated, FileLayout* layout) {
  const std::string name = file.name + ": " + member.name;
  ReadBytes read = [&](uint64_t offset, std::span<uint8_t> bytes) {
    return ReadExactly(file.descriptor, offset, bytes);
  };
  if (member.deflated) {
    *inflated = member.bytes > kMaxGunzipped ? member.bytes : *inflated + member.bytes;
    if (*inflated > kMaxGunzipped) {
      return Error(absl::StatusCode::kResourceExhausted,
                   "{}: compressed members are kept in memory and may have {} bytes together; "
                   "write it with np.savez",
                   name, kMaxGunzipped);
    }
    RING_ASSIGN_OR_RETURN(std::vector<uint8_t> content, Gunzip({.name = name,
                                                                .descriptor = file.descriptor,
                                                                .bytes = member.stored_bytes,
                                                                .begin = member.begin,
                                                                .is_gzip = false,
                                                                .crc32 = member.crc32},
                                                               member.bytes, nullptr));
    layout->contents.push_back(std::move(content));
    read = [&content = layout->contents.back()](uint64_t offset, std::span<uint8_t> bytes) {
      std::memcpy(bytes.data(), content.data() + offset, bytes.size());
      return absl::OkStatus();
    };
  }
  RING_ASSIGN_OR_RETURN(Array array,
                        FindNpyArray(name, member.deflated ? 0 : member.begin, member.bytes, read));
  array.column = column.column;
  array.split = column.split;
  if (member.deflated) array.content = layout->contents.size() - 1;
  layout->arrays.push_back(std::move(array));
  return absl::OkStatus();
}

StatusOr<FileLayout> NpzLayout(const FileKind& kind, const Content& content) {
  const auto members =
      ReadZipDirectory(content.bytes, [&](uint64_t offset, std::span<uint8_t> bytes) {
        return ReadExactly(content.descriptor, offset, bytes);
      });
  if (!members.ok()) return Annotate(members.status(), content.name);
  FileLayout layout = {.bytes = content.bytes};
  uint64_t inflated = 0;
  for (const ZipMember& member : *members) {
    if (!member.deflated) {
      layout.checked.push_back({fmt::format("{}: {}", content.name, member.name), member.begin,
                                member.bytes, member.crc32});
    }
    if (!member.name.ends_with(kNpyEnding)) continue;
    const std::string stem = member.name.substr(0, member.name.size() - strlen(kNpyEnding));
    std::optional<SplitColumn> named =
        kind.split ? SplitColumn{stem, *kind.split} : SplitOfName(stem);
    if (!named) continue;
    const StatusOr<std::string> column = ColumnNamed(named->column);
    if (!column.ok()) return Annotate(column.status(), content.name + ": " + member.name);
    named->column = *column;
    if (!content.Wants(*column)) {
      layout.others.push_back(*column);
      continue;
    }
    const auto twice = std::ranges::find_if(layout.arrays, [&](const Array& array) {
      return array.column == named->column && array.split == named->split;
    });
    if (twice != layout.arrays.end()) {
      return FailedPrecondition("{}: two members are column {} of {}", content.name, *column,
                                NameOf(named->split));
    }
    RING_RETURN_IF_ERROR(AddMember(content, member, *named, &inflated, &layout));
  }
  std::ranges::sort(layout.checked, {}, &CheckedRange::begin);
  if (layout.arrays.empty() && content.columns.empty()) {
    return FailedPrecondition(
        "{} has no array that is {}", content.name,
        kind.split ? "NAME.npy" : "NAME_train or NAME_test, such as x_train and y_test");
  }
  return layout;
}

// ---- sample data: members stored one after the other, without a time
// -----------------------------

class ZipWriter {
 public:
  void Add(const std::string& name, const std::string& content) {
    const uint32_t crc =
        Crc32(0, {reinterpret_cast<const uint8_t*>(content.data()), content.size()});
    const auto offset = static_cast<uint32_t>(file_.size());
    const std::string shared = Shared(crc, content.size(), name.size());
    file_ += Little(kLocalMagic, 4) + shared + name + content;
    central_ += Little(kCentralMagic, 4) + Little(20, 2) + shared + Little(0, 2) + Little(0, 2) +
                Little(0, 2) + Little(0, 4) + Little(offset, 4) + name;
    ++members_;
  }
  [[nodiscard]] std::string Finish() const {
    return file_ + central_ + Little(kEndMagic, 4) + Little(0, 4) + Little(members_, 2) +
           Little(members_, 2) + Little(central_.size(), 4) + Little(file_.size(), 4) +
           Little(0, 2);
  }

 private:
  static std::string Little(uint64_t value, size_t bytes) {
    std::string text;
    for (size_t i = 0; i < bytes; ++i) text += static_cast<char>(value >> (8 * i) & 0xFF);
    return text;
  }
  // What both headers say: version, no flags, stored, 1 January 1980, CRC, sizes, lengths.
  static std::string Shared(uint32_t crc, uint64_t bytes, size_t name) {
    return Little(20, 2) + Little(0, 2) + Little(0, 2) + Little(0, 2) + Little(0x21, 2) +
           Little(crc, 4) + Little(bytes, 4) + Little(bytes, 4) + Little(name, 2) + Little(0, 2);
  }

  std::string file_, central_;
  size_t members_ = 0;
};

std::string DrawArchive(uint64_t seed, Split split, uint64_t samples) {
  ZipWriter zip;
  for (const SampleColumn& column : SampleColumns()) {
    std::vector<uint64_t> shape = {samples};
    if (column.elements > 0) shape.push_back(column.elements);
    const std::vector<uint8_t> header = WriteNpyHeader(column.number, shape);
    std::string content(header.begin(), header.end());
    std::vector<uint8_t> record(std::max<size_t>(column.elements, 1) * BytesOf(column.number));
    for (uint64_t sample = 0; sample < samples; ++sample) {
      column.draw(seed, split, sample, record);
      content.append(record.begin(), record.end());
    }
    zip.Add(fmt::format("{}.npy", column.name), content);
  }
  return zip.Finish();
}

std::vector<SampleFile> NpzSampleFiles(uint64_t train, uint64_t test, uint64_t /*seed*/) {
  const auto file = [](Split split, uint64_t samples) {
    return SampleFile{.name = fmt::format("{}.npz", NameOf(split)),
                      .split = split,
                      .begin = 0,
                      .end = samples,
                      .whole = [=](uint64_t seed) { return DrawArchive(seed, split, samples); }};
  };
  return {file(Split::kTrain, train), file(Split::kTest, test)};
}

}  // namespace

StatusOr<std::vector<ZipMember>> ReadZipDirectory(uint64_t bytes, const ReadBytes& read) {
  return ZipReader(bytes, read).Read();
}

std::optional<SplitColumn> SplitOfName(const std::string& name) {
  for (const Split split : {Split::kTrain, Split::kTest}) {
    const std::string word = NameOf(split);
    if (name.size() <= word.size() + 1) continue;
    if (name.ends_with("_" + word)) {
      return SplitColumn{name.substr(0, name.size() - word.size() - 1), split};
    }
    if (name.starts_with(word + "_")) return SplitColumn{name.substr(word.size() + 1), split};
  }
  return std::nullopt;
}

const Format& Npz() {
  static const Format format = {
      .name = "npz",
      .classes = 0,
      .may_be_gzipped = false,
      .files = {{Split::kTrain, Holds::kColumns, "train.npz", "training file"},
                {Split::kTest, Holds::kColumns, "test.npz", "test file", 0, false},
                {std::nullopt, Holds::kColumns, "*.npz", "file of both", 1}},
      .layout = NpzLayout,
      .sample_files = NpzSampleFiles};
  return format;
}

}  // namespace ringmaster::data
