#include "common/data/record_index.h"

#include <sys/resource.h>
#include <sys/stat.h>

#include <algorithm>
#include <cctype>
#include <cstring>
#include <limits>
#include <optional>
#include <set>
#include <utility>

#include "common/check.h"
#include "common/crc32c.h"
#include "common/data/kept_files.h"
#include "common/files.h"
#include "common/log.h"
#include "common/sha256.h"

namespace ringmaster::data {
namespace {

// Files that are kept open; of more, each is opened anew for each record. Connections may have half
// of the table (common/rpc/acceptor.cc), and the rest of the process wants some.
size_t KeptOpen() {
  rlimit files = {};
  if (getrlimit(RLIMIT_NOFILE, &files) != 0) return 0;
  return std::min<size_t>(2048, files.rlim_cur / 4);
}

constexpr char kRecordsMagic[] = "ringmaster records 2\n";

// ---- bytes of an index, little-endian --------------------------------------------------------

class Writer {
 public:
  template <typename T>
  void Put(T value) {
    for (size_t i = 0; i < sizeof(T); ++i) {
      bytes_ += static_cast<char>(static_cast<uint64_t>(value) >> (8 * i));
    }
  }
  void Put(const std::string& text) {
    Put(static_cast<uint32_t>(text.size()));
    bytes_ += text;
  }
  void Put(const Record& record) {
    Put(record.offset);
    for (const uint32_t word :
         {record.bytes, record.crc32c, record.file, static_cast<uint32_t>(record.label),
          record.size.height, record.size.width,
          // An image that is shown as it is stored has the words that it always had.
          record.channels + 256 * (record.orientation - 1U)}) {
      Put(word);
    }
  }
  [[nodiscard]] const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

// Of what somebody wrote: past the end all numbers are 0 and all texts empty, and `good` is false.
class Parser {
 public:
  explicit Parser(std::span<const char> bytes) : bytes_(bytes) {}

  template <typename T>
  T Get() {
    uint64_t value = 0;
    const std::span<const char> taken = Take(sizeof(T));
    for (size_t i = taken.size(); i-- > 0;) value = value << 8 | static_cast<uint8_t>(taken[i]);
    return static_cast<T>(value);
  }
  std::string GetText() {
    const std::span<const char> taken = Take(Get<uint32_t>());
    return {taken.begin(), taken.end()};
  }
  // How many things follow, each of so many bytes at least.
  size_t GetCount(size_t least) {
    const auto count = Get<uint64_t>();
    good_ = good_ && count <= (bytes_.size() - at_) / least;
    return good_ ? count : 0;
  }
  Record GetRecord() {
    Record record;
    record.offset = Get<uint64_t>();
    record.bytes = Get<uint32_t>();
    record.crc32c = Get<uint32_t>();
    record.file = Get<uint32_t>();
    record.label = Get<int32_t>();
    record.size.height = Get<uint32_t>();
    record.size.width = Get<uint32_t>();
    const auto word = Get<uint32_t>();
    record.channels = word % 256;
    record.orientation = static_cast<uint8_t>(word / 256 + 1);
    return record;
  }
  [[nodiscard]] bool good() const { return good_; }
  [[nodiscard]] bool at_end() const { return at_ == bytes_.size(); }

 private:
  std::span<const char> Take(size_t bytes) {
    good_ = good_ && bytes <= bytes_.size() - at_;
    if (!good_) return {};
    at_ += bytes;
    return bytes_.subspan(at_ - bytes, bytes);
  }

  const std::span<const char> bytes_;
  size_t at_ = 0;
  bool good_ = true;
};

// ---- what is remembered of files -------------------------------------------------------------

// The records of each file of one folder as one format has them, in one file of --state-dir.
class Memory {
 public:
  Memory(const std::string& state_dir, const Format& format, const v1::DataSource& source,
         const OwnedFile& folder)
      : state_dir_(state_dir) {
    if (state_dir.empty()) return;
    struct stat status = {};
    RING_CHECK(fstat(folder.get(), &status) == 0, "fstat of an open folder");
    // What the job says of the records is a part of what they are.
    v1::DataSource said;
    *said.mutable_columns() = source.columns();
    if (source.has_first_label()) said.set_first_label(source.first_label());
    if (source.exif() == v1::EXIF_APPLY) said.set_exif(source.exif());
    path_ = fmt::format("{}/{}-{:x}-{:x}-{:.8}{}", state_dir, format.name, status.st_dev,
                        status.st_ino, Hex(Sha256Of(said.SerializeAsString())), kSuffix);
    const auto bytes = ReadKept(path_);
    if (!bytes) return;
    auto before = ParseRemembered(*bytes);
    if (before.ok()) {
      before_ = *std::move(before);
    } else {
      spdlog::warn("{} {}: all records are read again", path_, Message(before.status()));
    }
  }

  // Nothing where the file is another one now.
  [[nodiscard]] std::optional<FoundRecords> Find(const RecordFile& file) {
    const auto found = before_.find(file.name);
    if (found == before_.end() || found->second.identity != file.identity) return std::nullopt;
    return Keep(file, found->second.found);
  }
  void Add(const RecordFile& file, const FoundRecords& found) {
    if (!path_.empty() && file.identity.settled) Keep(file, found);
    changed_ = true;
  }
  // What nobody came to.
  void KeepRest() { now_.insert(before_.begin(), before_.end()); }
  // Those that were asked for, added or kept.
  void Save() const {
    if (path_.empty() || (!changed_ && now_.size() == before_.size())) return;
    const Status written = WriteDurably(path_, WriteRemembered(now_));
    if (!written.ok()) {
      return spdlog::warn("records are read again at the next start: {}", Message(written));
    }
    DropOldest(state_dir_, {.suffix = kSuffix});
  }

 private:
  const FoundRecords& Keep(const RecordFile& file, const FoundRecords& found) {
    return (now_[file.name] = {file.identity, found}).found;
  }

  static constexpr char kSuffix[] = ".records";

  const std::string state_dir_;
  std::string path_;  // empty: nothing is remembered
  RememberedFiles before_, now_;
  bool changed_ = false;
};

// The records of a file, read or remembered.
StatusOr<FoundRecords> RecordsOf(const OwnedFile& folder, const RecordFormat& format,
                                 const v1::DataSource& source, RecordFile* file, Memory* memory,
                                 const std::stop_token& stop) {
  RING_ASSIGN_OR_RETURN(const OwnedFile opened, OpenBeneath(folder, file->name, Wanted::kFile));
  struct stat status = {};
  RING_CHECK(fstat(opened.get(), &status) == 0, "fstat of an open file");
  file->identity = FileIdentity::Of(status);
  file->bytes = file->identity.size;
  if (auto known = memory->Find(*file)) return *std::move(known);
  RING_ASSIGN_OR_RETURN(FoundRecords found, format.find(source, *file, opened.get(), stop));
  memory->Add(*file, found);
  return found;
}

Status CheckLabels(const std::vector<Record>& records, const std::vector<std::string>& classes) {
  for (size_t i = 0; i < records.size(); ++i) {
    const int32_t label = records[i].label;
    if (label >= 0 && (classes.empty() || static_cast<size_t>(label) < classes.size())) continue;
    return FailedPrecondition("record {} at byte {}: label {} is not in 0 to {}", i,
                              records[i].offset, label,
                              classes.empty() ? std::numeric_limits<int32_t>::max() - 1
                                              : static_cast<int32_t>(classes.size()) - 1);
  }
  return absl::OkStatus();
}

}  // namespace

std::string WriteRemembered(const RememberedFiles& files) {
  Writer writer;
  writer.Put(files.size());
  for (const auto& [name, file] : files) {
    writer.Put(name);
    const FileIdentity& id = file.identity;
    for (const uint64_t word : {id.device, id.inode, id.size}) writer.Put(word);
    writer.Put(id.modified_ns);
    writer.Put(file.found.records.size());
    for (const Record& record : file.found.records) writer.Put(record);
    writer.Put(file.found.bad.size());
    for (const auto& [offset, problem] : file.found.bad) {
      writer.Put(offset);
      writer.Put(problem);
    }
  }
  const std::string bytes = kRecordsMagic + writer.bytes();
  return bytes + DigestBytes(Sha256Of(bytes));
}

StatusOr<RememberedFiles> ParseRemembered(const std::string& bytes) {
  constexpr size_t kDigest = sizeof(Sha256Digest), kMagic = sizeof kRecordsMagic - 1;
  const Status damaged = FailedPrecondition("is damaged, or of another version");
  if (bytes.size() < kDigest + kMagic || !bytes.starts_with(kRecordsMagic)) return damaged;
  const size_t end = bytes.size() - kDigest;
  if (!bytes.ends_with(DigestBytes(Sha256Of(bytes.substr(0, end))))) return damaged;
  const std::span<const char> whole(bytes);
  Parser parser(whole.subspan(kMagic, end - kMagic));
  RememberedFiles files;
  for (size_t left = parser.GetCount(1); left > 0 && parser.good(); --left) {
    RememberedFile& file = files[parser.GetText()];
    file.identity.device = parser.Get<uint64_t>();
    file.identity.inode = parser.Get<uint64_t>();
    file.identity.size = parser.Get<uint64_t>();
    file.identity.modified_ns = parser.Get<int64_t>();
    file.found.records.resize(parser.GetCount(36));
    for (Record& record : file.found.records) record = parser.GetRecord();
    file.found.bad.resize(parser.GetCount(12));
    for (auto& [offset, problem] : file.found.bad) {
      offset = parser.Get<uint64_t>();
      problem = parser.GetText();
    }
  }
  if (!parser.good() || !parser.at_end()) return damaged;
  return files;
}

namespace {

// By the words of a path, which are its runs of letters.
std::optional<Split> SplitOfPath(const std::string& path) {
  std::string word;
  for (const char c : path + '/') {
    if (std::isalpha(static_cast<unsigned char>(c)) != 0) {
      word += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
      continue;
    }
    if (word == "train" || word == "training") return Split::kTrain;
    if (word == "validation" || word == "val" || word == "valid" || word == "test") {
      return Split::kTest;
    }
    word.clear();
  }
  return std::nullopt;
}

// What is left of a file's records without those that `quarantine` lists.
Status Sift(const RecordFile& file, const Quarantine& quarantine, FoundRecords* found) {
  for (const Quarantined& out : quarantine.Of(file.name)) {
    const size_t there =
        std::erase_if(found->records,
                      [&](const Record& record) { return record.offset == out.offset; }) +
        std::erase_if(found->bad, [&](const auto& bad) { return bad.first == out.offset; });
    if (there > 0) continue;
    return FailedPrecondition(
        "{} lists a sample at byte {}, where there is none: the data are others than those that "
        "it was made of; make it again with `ringctl dataset verify --decode --quarantine`",
        kQuarantineFile, out.offset);
  }
  return absl::OkStatus();
}

}  // namespace

StatusOr<RecordListing> ListBySplit(const OwnedFile& folder, bool (*is)(const std::string& name)) {
  RING_ASSIGN_OR_RETURN(const FolderEntries entries, ListFolder(folder, "."));
  RecordListing listing;
  const auto add = [&](const std::string& name) {
    if (!is(name)) return;
    RecordFile& file = listing.files.emplace_back();
    file.name = name;
    file.split = SplitOfPath(name).value_or(Split::kTrain);
  };
  for (const std::string& name : entries.files) add(name);
  for (const std::string& below : entries.folders) {
    if (!SplitOfPath(below)) continue;
    RING_ASSIGN_OR_RETURN(const FolderEntries inside, ListFolder(folder, below));
    for (const std::string& name : inside.files) add(below + '/' + name);
  }
  return listing;
}

RecordIndex RecordIndex::Of(const OwnedFile& folder, const Format& format,
                            const v1::DataSource& source, const Reading& reading,
                            const Quarantine& quarantine, std::vector<Status>* problems) {
  RecordIndex index;
  auto listing = format.records->list(folder);
  if (!listing.ok()) {
    problems->push_back(listing.status());
    return index;
  }
  index.classes_ = std::move(listing->classes);
  index.labelled_ = listing->labelled;
  Memory memory(reading.state_dir, format, source, folder);
  for (RecordFile& file : listing->files) {
    const Status wanted = StillWanted(reading.stop);
    if (!wanted.ok()) problems->push_back(wanted);
    if (!wanted.ok() || problems->size() >= kMostProblems) {
      memory.KeepRest();
      break;
    }
    auto found = RecordsOf(folder, *format.records, source, &file, &memory, reading.stop);
    Status problem = found.status();
    if (problem.ok()) {
      for (Record& record : found->records) {
        if (file.label >= 0) record.label = file.label;
        if (!index.labelled_) record.label = 0;
      }
      problem = CheckLabels(found->records, index.classes_);
    }
    const std::string name = file.name;
    if (problem.ok()) problem = Sift(file, quarantine, &*found);
    if (problem.ok()) {
      for (const auto& [offset, reason] : found->bad) index.bad_.Add({name, offset, reason});
      index.Add(std::move(file), found->records);
    } else {
      problems->push_back(Annotate(problem, name));
    }
  }
  memory.Save();
  if (!quarantine.empty() && problems->empty()) {
    std::set<std::string> names;
    for (const RecordFile& file : index.files_) names.insert(file.name);
    const Status listed = quarantine.CheckFiles(names);
    if (!listed.ok()) problems->push_back(listed);
  }
  index.Sum(quarantine);
  return index;
}

void RecordIndex::Add(RecordFile file, std::span<const Record> records) {
  std::vector<Record>& all = file.split == Split::kTrain ? train_ : test_;
  for (Record record : records) {
    record.file = static_cast<uint32_t>(files_.size());
    all.push_back(record);
  }
  files_.push_back(std::move(file));
}

std::string RecordIndex::Digest() const {
  Writer writer;
  writer.Put(classes_.size());
  for (const std::string& name : classes_) writer.Put(name);
  writer.Put(files_.size());
  for (const RecordFile& file : files_) {
    writer.Put(file.name);
    writer.Put(file.bytes);
  }
  for (const auto* records : {&train_, &test_}) {
    writer.Put(records->size());
    for (const Record& record : *records) writer.Put(record);
  }
  if (facts_.quarantined() > 0) writer.Put(facts_.quarantine_sha256());
  return Hex(Sha256Of(writer.bytes()));
}

void RecordIndex::Sum(const Quarantine& quarantine) {
  if (!quarantine.empty()) {
    facts_.set_quarantined(quarantine.size());
    facts_.set_quarantine_sha256(quarantine.Sha256());
  }
  facts_.set_sha256(Digest());
  facts_.set_files(files_.size());
  facts_.set_classes(static_cast<uint32_t>(classes_.size()));
  limit_ = static_cast<int64_t>(classes_.size());
  image::Size least{UINT32_MAX, UINT32_MAX}, most;
  uint64_t bytes = 0;
  for (const auto* records : {&train_, &test_}) {
    for (const Record& record : *records) {
      bytes += record.bytes;
      channels_ = std::max(channels_, record.channels);
      limit_ = std::max(limit_, int64_t{record.label} + 1);
      least = {std::min(least.height, record.size.height),
               std::min(least.width, record.size.width)};
      most = {std::max(most.height, record.size.height), std::max(most.width, record.size.width)};
    }
  }
  facts_.set_bytes(bytes);
  if (most.height == 0) return;
  facts_.set_least_height(least.height);
  facts_.set_least_width(least.width);
  facts_.set_most_height(most.height);
  facts_.set_most_width(most.width);
}

std::vector<Array> RecordIndex::arrays() const {
  const bool same =
      facts_.least_height() == facts_.most_height() && facts_.least_width() == facts_.most_width();
  const int64_t height = same ? facts_.most_height() : 0, width = same ? facts_.most_width() : 0;
  std::vector<Array> arrays;
  for (const Split split : {Split::kTrain, Split::kTest}) {
    if (samples(split) == 0) continue;
    arrays.push_back({.column = "image",
                      .split = split,
                      .samples = samples(split),
                      .shape = {height, width, int64_t{channels_}}});
    if (!labelled_) continue;
    arrays.push_back({.column = "label",
                      .split = split,
                      .samples = samples(split),
                      .number = Number::kInt32,
                      .shape = {},
                      .limit = limit_});
  }
  return arrays;
}

RecordReader::RecordReader(OwnedFile folder, RecordIndex index)
    : folder_(std::move(folder)), index_(std::move(index)) {
  if (index_.files().size() > KeptOpen()) return;
  open_.resize(index_.files().size());
  for (size_t i = 0; i < open_.size(); ++i) {
    auto opened = OpenBeneath(folder_, index_.files()[i].name, Wanted::kFile);
    if (opened.ok()) open_[i] = *std::move(opened);  // else Read says what is wrong
  }
}

std::string RecordReader::NameOf(Split split, uint64_t sample) const {
  const Record& record = index_.at(split, sample);
  return fmt::format("{} at byte {} ({} sample {})", index_.files()[record.file].name,
                     record.offset, data::NameOf(split), sample);
}

Status RecordReader::ReadImage(Split split, uint64_t sample, const image::Placement& placement,
                               uint32_t channels, std::span<uint8_t> pixels) const {
  std::vector<uint8_t> file;
  RING_RETURN_IF_ERROR(Read(split, sample, &file));
  const auto decode = [&]() -> Status {
    RING_ASSIGN_OR_RETURN(image::Header header, image::ReadHeader(file));
    header.orientation = index_.at(split, sample).orientation;
    RING_CHECK(image::ShownSize(header) == index_.at(split, sample).size,
               "an index of other images");
    return image::Render(file, header, placement, channels, pixels);
  };
  return Annotate(decode(), NameOf(split, sample));
}

Status RecordReader::Read(Split split, uint64_t sample, std::vector<uint8_t>* bytes) const {
  const Record& record = index_.at(split, sample);
  bytes->resize(record.bytes);
  OwnedFile opened;
  if (open_.empty() || !open_[record.file].valid()) {
    auto file = OpenBeneath(folder_, index_.files()[record.file].name, Wanted::kFile);
    if (!file.ok()) return Annotate(DataLoss("{}", Message(file.status())), NameOf(split, sample));
    opened = *std::move(file);
  }
  const OwnedFile& file = opened.valid() ? opened : open_[record.file];
  const Status read = ReadExactly(file.get(), record.offset, *bytes);
  if (!read.ok()) return Annotate(read, NameOf(split, sample));
  const uint32_t crc = ExtendCrc32c(0, *bytes);
  if (crc == record.crc32c) return absl::OkStatus();
  return DataLoss(
      "{}: its CRC-32C is {:08x}, the index says {:08x}: it changed, or the disk is bad; the job's "
      "data are others",
      NameOf(split, sample), crc, record.crc32c);
}

}  // namespace ringmaster::data
