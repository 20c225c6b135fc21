#include "common/data/data_file.h"

#include <sys/stat.h>

#include <algorithm>
#include <utility>

#include "common/check.h"
#include "common/data/gzip.h"
#include "common/data/read_at.h"
#include "common/sha256.h"

namespace ringmaster::data {
namespace {

constexpr size_t kAtOnce = size_t{1} << 20;

// Looks at the labels in a content that comes in pieces, in order.
class LabelCheck {
 public:
  LabelCheck(const FileLayout& layout, uint32_t classes) : layout_(layout), classes_(classes) {}

  void Look(std::span<const uint8_t> piece) {
    if (layout_.labels) {
      for (; next_ < layout_.samples; ++next_) {
        const uint64_t place = layout_.labels->begin + next_ * layout_.labels->stride;
        if (place >= offset_ + piece.size()) break;
        const uint8_t label = piece[place - offset_];
        if (label >= classes_ && bad_++ == 0) first_ = {next_, label};
      }
    }
    offset_ += piece.size();
  }
  [[nodiscard]] Status Result(const std::string& name) const {
    if (bad_ == 0) return absl::OkStatus();
    return FailedPrecondition("{} record {}: label {} is not in 0 to {}{}", name, first_.first,
                              first_.second, classes_ - 1,
                              bad_ == 1 ? "" : fmt::format(" (the first of {} such labels)", bad_));
  }

 private:
  const FileLayout& layout_;
  const uint32_t classes_;
  uint64_t offset_ = 0, next_ = 0, bad_ = 0;
  std::pair<uint64_t, uint8_t> first_;
};

bool IsUnchanged(const Descriptor& descriptor, const FileIdentity& identity) {
  struct stat status = {};
  return fstat(descriptor.get(), &status) == 0 && FileIdentity::Of(status) == identity;
}

// Of a plain file. That of a compressed one is found out while it is decompressed.
Status CheckSize(const std::string& name, const FileLayout& layout, uint64_t bytes) {
  if (bytes == layout.bytes) return absl::OkStatus();
  return FailedPrecondition("{} has {} bytes, for the {} samples of its header {} are expected: {}",
                            name, bytes, layout.samples, layout.bytes,
                            bytes < layout.bytes
                                ? "it is truncated"
                                : fmt::format("{} bytes follow its end", bytes - layout.bytes));
}

}  // namespace

StatusOr<DataFile> DataFile::Open(const Descriptor& folder, const FoundFile& found,
                                  const Format& format, HashCache* cache) {
  DataFile file;
  file.kind_ = found.kind;
  RING_ASSIGN_OR_RETURN(file.descriptor_, OpenBeneath(folder, found.name, Wanted::kFile));
  struct stat status = {};
  RING_CHECK(fstat(file.descriptor_.get(), &status) == 0, "fstat of an open file");
  file.identity_ = FileIdentity::Of(status);
  file.fact_.set_name(found.name);
  file.fact_.set_bytes(file.identity_.size);
  RING_RETURN_IF_ERROR(found.gzipped ? file.OpenGzipped(format) : file.OpenPlain(format, cache));
  file.fact_.set_samples(file.layout_.samples);
  return file;
}

Status DataFile::OpenPlain(const Format& format, HashCache* cache) {
  const std::string& name = fact_.name();
  std::vector<uint8_t> head(kHeadBytes);
  const StatusOr<size_t> got = ReadUpTo(descriptor_.get(), 0, head);
  if (!got.ok()) return Annotate(got.status(), "cannot read " + name);
  head.resize(*got);
  RING_ASSIGN_OR_RETURN(layout_, format.layout(*kind_, {name, head, identity_.size}));
  RING_RETURN_IF_ERROR(CheckSize(name, layout_, identity_.size));
  const std::optional<std::string> known = cache->Find(identity_);
  if (known) {
    fact_.set_sha256(*known);
    return absl::OkStatus();
  }
  RING_RETURN_IF_ERROR(HashAndCheck(format));
  cache->Remember(identity_, fact_.sha256());
  return absl::OkStatus();
}

// Reads the whole file once: its SHA-256, and every label.
Status DataFile::HashAndCheck(const Format& format) {
  Sha256 hash;
  LabelCheck labels(layout_, format.classes);
  std::vector<uint8_t> piece(kAtOnce);
  for (uint64_t offset = 0; offset < identity_.size; offset += piece.size()) {
    piece.resize(std::min<uint64_t>(kAtOnce, identity_.size - offset));
    RING_RETURN_IF_ERROR(Annotate(ReadExactly(descriptor_.get(), offset, piece),
                                  fmt::format("cannot read {}", fact_.name())));
    labels.Look(piece);
    hash.Update(piece);
  }
  fact_.set_sha256(Hex(hash.Finish()));
  return labels.Result(fact_.name());
}

Status DataFile::OpenGzipped(const Format& format) {
  const std::string& name = fact_.name();
  const GzipSource source{name, descriptor_.get(), identity_.size};
  RING_ASSIGN_OR_RETURN(const std::vector<uint8_t> head, GunzipStart(source, kHeadBytes));
  RING_ASSIGN_OR_RETURN(layout_, format.layout(*kind_, {name, head, 0}));
  Sha256 hash;
  RING_ASSIGN_OR_RETURN(
      content_,
      Gunzip(source, layout_.bytes, [&](std::span<const uint8_t> bytes) { hash.Update(bytes); }));
  in_memory_ = true;
  LabelCheck labels(layout_, format.classes);
  labels.Look(content_);
  RING_RETURN_IF_ERROR(labels.Result(name));
  fact_.set_sha256(Hex(hash.Finish()));
  return absl::OkStatus();
}

Status DataFile::Read(const Column& column, uint64_t index, std::span<uint8_t> bytes) const {
  const uint64_t offset = column.begin + index * column.stride;
  if (in_memory_) {
    RING_CHECK(offset + bytes.size() <= content_.size(), "a sample past the end of its file");
    std::copy_n(content_.begin() + static_cast<ptrdiff_t>(offset), bytes.size(), bytes.begin());
    return absl::OkStatus();
  }
  const auto place = [&] { return fmt::format("{} record {}", fact_.name(), index); };
  const Status read = ReadExactly(descriptor_.get(), offset, bytes);
  if (!read.ok()) return Annotate(read, place());
  // After the bytes were read, so that a change before them is seen.
  if (IsUnchanged(descriptor_, identity_)) return absl::OkStatus();
  return Error(absl::StatusCode::kDataLoss,
               "{}: the file changed while it was in use, so it is not the one that was compared "
               "with the other workers'",
               place());
}

}  // namespace ringmaster::data
