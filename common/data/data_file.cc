#include "common/data/data_file.h"

#include <sys/stat.h>

#include <algorithm>
#include <utility>

#include "common/check.h"
#include "common/data/columns.h"
#include "common/data/formats/converted.h"
#include "common/data/formats/gzip.h"
#include "common/data/formats/npy.h"
#include "common/sha256.h"

namespace ringmaster::data {
namespace {

constexpr size_t kAtOnce = size_t{1} << 20;

// Looks at the bytes of a content that comes in pieces, in order, for what an array may not have.
class LabelCheck {
 public:
  explicit LabelCheck(const FileLayout& layout) {
    for (const Array& array : layout.arrays) {
      if (array.limit > 0 && array.number == Number::kUint8) array_ = &array;
    }
  }

  void Look(std::span<const uint8_t> piece) {
    if (array_ != nullptr) {
      for (; next_ < array_->samples; ++next_) {
        const uint64_t place = array_->begin + next_ * array_->stride;
        if (place >= offset_ + piece.size()) break;
        const uint8_t label = piece[place - offset_];
        if (label >= array_->limit && bad_++ == 0) first_ = {next_, label};
      }
    }
    offset_ += piece.size();
  }
  [[nodiscard]] Status Result(const std::string& name) const {
    if (bad_ == 0) return absl::OkStatus();
    return FailedPrecondition("{} record {}: label {} is not in 0 to {}{}", name, first_.first,
                              first_.second, array_->limit - 1,
                              bad_ == 1 ? "" : fmt::format(" (the first of {} such labels)", bad_));
  }

 private:
  const Array* array_ = nullptr;
  uint64_t offset_ = 0, next_ = 0, bad_ = 0;
  std::pair<uint64_t, uint8_t> first_;
};

// Likewise for what an archive says the CRC-32 of.
class CrcCheck {
 public:
  explicit CrcCheck(const FileLayout& layout) : ranges_(layout.checked) {}

  void Look(std::span<const uint8_t> piece) {
    const uint64_t end = offset_ + piece.size();
    while (next_ < ranges_.size() && ranges_[next_].begin < end) {
      const CheckedRange& range = ranges_[next_];
      const uint64_t from = std::max(range.begin, offset_);
      const uint64_t to = std::min(range.begin + range.bytes, end);
      crc_ = Crc32(crc_, piece.subspan(from - offset_, to - from));
      if (to < range.begin + range.bytes) break;
      if (crc_ != range.crc32 && wrong_ == nullptr) wrong_ = &range;
      crc_ = 0;
      ++next_;
    }
    offset_ = end;
  }
  [[nodiscard]] Status Result() const {
    if (wrong_ == nullptr) return absl::OkStatus();
    return FailedPrecondition("{}: its CRC-32 is another one: it is damaged; copy it again",
                              wrong_->name);
  }

 private:
  const std::vector<CheckedRange>& ranges_;
  const CheckedRange* wrong_ = nullptr;
  uint64_t offset_ = 0;
  size_t next_ = 0;
  uint32_t crc_ = 0;
};

// Likewise for tokens: whether they can be of the type that they are read as, and the largest.
class TokenCheck {
 public:
  explicit TokenCheck(const FileLayout& layout)
      : tokens_(layout.tokens), told_(layout.type_is_told) {}

  // How much is read at `offset`, so that no token is cut.
  [[nodiscard]] size_t AtOnce(uint64_t offset) const {
    return tokens_ && offset < tokens_->begin ? tokens_->begin - offset : kAtOnce;
  }
  void Look(uint64_t offset, std::span<const uint8_t> piece) {
    if (!tokens_ || offset < tokens_->begin || range_.first_bad) return;
    const uint64_t first = (offset - tokens_->begin) / tokens_->stride;
    FindRange(*tokens_, piece, &range_);
    if (range_.first_bad) *range_.first_bad += first;
    for (size_t i = 2; i + 1 < piece.size() && !odd_; i += 4) {  // of uint16; pieces are even
      odd_ = (piece[i] | piece[i + 1]) != 0;
    }
  }
  // The largest; -1 where there are no tokens.
  [[nodiscard]] StatusOr<int64_t> Result(const std::string& name) const {
    if (!tokens_) return -1;
    if (range_.first_bad) {
      return FailedPrecondition("{}: token {} is {}, which is not in 0 to {}{}", name,
                                *range_.first_bad, range_.bad, kLargestWhole,
                                told_ ? "" : ": are they uint16 (data.token_type)?");
    }
    if (told_) return range_.largest;
    if (tokens_->number == Number::kUint32 && range_.largest >= kMostVocabulary) {
      return FailedPrecondition(
          "{}: its largest token is {}, read as uint32, and no vocabulary has as many: are they "
          "uint16 (data.token_type)?",
          name, range_.largest);
    }
    if (tokens_->number == Number::kUint16 && !odd_ && tokens_->samples > 1) {
      return FailedPrecondition(
          "{}: every second token is 0, read as uint16: are they uint32 (data.token_type)?", name);
    }
    return range_.largest;
  }

 private:
  static constexpr int64_t kMostVocabulary = int64_t{1} << 24;
  const std::optional<Array>& tokens_;
  const bool told_;
  Range range_;
  bool odd_ = false;  // one with an odd place is not 0
};

bool IsUnchanged(const OwnedFile& descriptor, const FileIdentity& identity) {
  struct stat status = {};
  return fstat(descriptor.get(), &status) == 0 && FileIdentity::Of(status) == identity;
}

// Of a plain file. That of a compressed one is found out while it is decompressed.
Status CheckSize(const std::string& name, const FileLayout& layout, uint64_t bytes) {
  if (bytes == layout.bytes) return absl::OkStatus();
  return FailedPrecondition(
      "{} has {} bytes, for the {} samples of its header {} are expected: {}", name, bytes,
      layout.samples(Split::kTrain) + layout.samples(Split::kTest), layout.bytes,
      bytes < layout.bytes ? "it is truncated"
                           : fmt::format("{} bytes follow its end", bytes - layout.bytes));
}

}  // namespace

StatusOr<DataFile> DataFile::Open(const OwnedFile& folder, const FoundFile& found,
                                  const Format& format, const v1::DataSource& source,
                                  HashCache* cache) {
  RING_RETURN_IF_ERROR(StillWanted(cache->stop()));
  DataFile file;
  file.kind_ = found.kind;
  RING_ASSIGN_OR_RETURN(file.descriptor_, OpenBeneath(folder, found.name, Wanted::kFile));
  struct stat status = {};
  RING_CHECK(fstat(file.descriptor_.get(), &status) == 0, "fstat of an open file");
  file.identity_ = FileIdentity::Of(status);
  file.fact_.set_name(found.name);
  file.fact_.set_bytes(file.identity_.size);
  RING_RETURN_IF_ERROR(found.gzipped ? file.OpenGzipped(format)
                                     : file.OpenPlain(format, source, cache));
  file.fact_.set_samples(file.layout_.samples(Split::kTrain) + file.layout_.samples(Split::kTest));
  return file;
}

Status DataFile::OpenPlain(const Format& format, const v1::DataSource& source, HashCache* cache) {
  const std::string& name = fact_.name();
  std::vector<uint8_t> head(kHeadBytes);
  const StatusOr<size_t> got = ReadUpTo(descriptor_.get(), 0, head);
  if (!got.ok()) return Annotate(got.status(), "cannot read " + name);
  head.resize(*got);
  const Content content = {name,   head, identity_.size, descriptor_.get(), NamedColumns(source),
                           &source};
  if (format.convert != nullptr) return OpenText(format, content, cache);
  RING_ASSIGN_OR_RETURN(layout_, format.layout(*kind_, content));
  RING_RETURN_IF_ERROR(CheckSize(name, layout_, identity_.size));
  RING_ASSIGN_OR_RETURN(const KnownFile known, Know(cache));
  fact_.set_sha256(known.sha256);
  if (!layout_.tokens) return absl::OkStatus();
  for (Array& array : layout_.arrays) array.limit = known.largest + 1;
  return absl::OkStatus();
}

Status DataFile::OpenText(const Format& format, const Content& content, HashCache* cache) {
  RING_ASSIGN_OR_RETURN(const KnownFile known, Know(cache));
  fact_.set_sha256(known.sha256);
  // What the job says of the text is a part of what it becomes.
  v1::DataSource said;
  *said.mutable_csv() = content.source->csv();
  *said.mutable_inputs() = content.source->inputs();
  *said.mutable_targets() = content.source->targets();
  const std::string name = fmt::format("{}-{}-{:.8}", format.name, known.sha256,
                                       Hex(Sha256Of(said.SerializeAsString())));
  RING_ASSIGN_OR_RETURN(ConvertedFile converted,
                        OpenConverted(name, cache, [&](const Append& append) {
                          return format.convert(*kind_, content, append);
                        }));
  if (!IsUnchanged(descriptor_, identity_)) {
    return DataLoss("{}: the file changed while it was read", fact_.name());
  }
  descriptor_ = std::move(converted.descriptor);
  identity_ = converted.identity;
  layout_ = std::move(converted.layout);
  for (Array& array : layout_.arrays) array.split = *kind_->split;
  return absl::OkStatus();
}

StatusOr<KnownFile> DataFile::Know(HashCache* cache) {
  std::optional<KnownFile> known = cache->Find(identity_);
  if (known && (!layout_.tokens || known->largest >= 0)) return *std::move(known);
  RING_ASSIGN_OR_RETURN(known, HashAndCheck(cache->stop()));
  cache->Remember(identity_, *known);
  return *std::move(known);
}

// Reads the whole file once: its SHA-256, every label, every token, and what an archive has.
StatusOr<KnownFile> DataFile::HashAndCheck(const std::stop_token& stop) {
  Sha256 hash;
  LabelCheck labels(layout_);
  CrcCheck crcs(layout_);
  TokenCheck tokens(layout_);
  std::vector<uint8_t> piece(kAtOnce);
  for (uint64_t offset = 0; offset < identity_.size; offset += piece.size()) {
    RING_RETURN_IF_ERROR(StillWanted(stop));
    piece.resize(std::min<uint64_t>(tokens.AtOnce(offset), identity_.size - offset));
    RING_RETURN_IF_ERROR(Annotate(ReadExactly(descriptor_.get(), offset, piece),
                                  fmt::format("cannot read {}", fact_.name())));
    labels.Look(piece);
    crcs.Look(piece);
    tokens.Look(offset, piece);
    hash.Update(piece);
  }
  RING_RETURN_IF_ERROR(crcs.Result());
  RING_RETURN_IF_ERROR(labels.Result(fact_.name()));
  RING_ASSIGN_OR_RETURN(const int64_t largest, tokens.Result(fact_.name()));
  return KnownFile{Hex(hash.Finish()), largest};
}

Status DataFile::OpenGzipped(const Format& format) {
  const std::string& name = fact_.name();
  const GzipSource source{name, descriptor_.get(), identity_.size};
  RING_ASSIGN_OR_RETURN(const std::vector<uint8_t> head, GunzipStart(source, kHeadBytes));
  RING_ASSIGN_OR_RETURN(layout_, format.layout(*kind_, {name, head, 0}));
  Sha256 hash;
  RING_ASSIGN_OR_RETURN(
      std::vector<uint8_t> content,
      Gunzip(source, layout_.bytes, [&](std::span<const uint8_t> bytes) { hash.Update(bytes); }));
  LabelCheck labels(layout_);
  labels.Look(content);
  RING_RETURN_IF_ERROR(labels.Result(name));
  for (Array& array : layout_.arrays) array.content = 0;
  layout_.contents.push_back(std::move(content));
  fact_.set_sha256(Hex(hash.Finish()));
  return absl::OkStatus();
}

Status DataFile::ReadBytes(const Array& array, uint64_t offset, std::span<uint8_t> bytes) const {
  if (!array.content) return ReadExactly(descriptor_.get(), offset, bytes);
  const std::vector<uint8_t>& content = layout_.contents[*array.content];
  RING_CHECK(offset + bytes.size() <= content.size(), "a sample past the end of its file");
  std::copy_n(content.begin() + static_cast<ptrdiff_t>(offset), bytes.size(), bytes.begin());
  return absl::OkStatus();
}

Status DataFile::Read(const Array& array, uint64_t index, std::span<uint8_t> bytes) const {
  const Status read = ReadBytes(array, array.begin + index * array.stride, bytes);
  if (array.content) return read;
  const auto place = [&] { return fmt::format("{} record {}", fact_.name(), index); };
  if (!read.ok()) return Annotate(read, place());
  // After the bytes were read, so that a change before them is seen.
  if (IsUnchanged(descriptor_, identity_)) return absl::OkStatus();
  return Error(absl::StatusCode::kDataLoss,
               "{}: the file changed while it was in use, so it is not the one that was compared "
               "with the other workers'",
               place());
}

StatusOr<int64_t> DataFile::LargestOf(const Array& array) const {
  RING_CHECK(array.stride == array.row_bytes(), "rows with something between them");
  const uint64_t bytes = array.samples * array.stride, row = array.elements();
  std::vector<uint8_t> piece(std::min<uint64_t>(kAtOnce, bytes));  // whole numbers: of 1 to 8 bytes
  Range range;
  for (uint64_t done = 0; done < bytes; done += piece.size()) {
    piece.resize(std::min<uint64_t>(kAtOnce, bytes - done));
    RING_RETURN_IF_ERROR(Annotate(ReadBytes(array, array.begin + done, piece),
                                  fmt::format("cannot read {}", fact_.name())));
    FindRange(array, piece, &range);
    if (!range.first_bad) continue;
    const uint64_t sample = (done / BytesOf(array.number) + *range.first_bad) / row;
    return FailedPrecondition(
        "{}: {} sample {} of {}: {} is not in 0 to {}: whole numbers are classes or places in a "
        "table; save others as float32",
        fact_.name(), NameOf(array.split), sample, array.column, range.bad, kLargestWhole);
  }
  return range.largest;
}

}  // namespace ringmaster::data
