#include "common/data/manifest.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "common/data/beneath.h"
#include "common/data/data_url.h"
#include "common/text.h"

namespace ringmaster::data {
namespace {

constexpr uint64_t kFormat = 1;
constexpr int kMaxFolderDepth = 64;

uint64_t PiecesOf(uint64_t bytes) {
  return bytes / kManifestPieceBytes + (bytes % kManifestPieceBytes != 0 ? 1 : 0);
}

// Takes the one shape that a manifest has while it is read, so that nothing else is ever kept:
//
//   kOut -{-> kTop -"files" [-> kFiles -{-> kFile -"pieces" [-> kPieces, and back.
class ManifestReader : public nlohmann::json_sax<nlohmann::json> {
 public:
  // After a parse that failed.
  [[nodiscard]] const std::string& problem() const { return problem_; }
  // After one that did not.
  [[nodiscard]] StatusOr<DataManifest> Finish();

  bool null() override { return Unexpected("null"); }
  bool boolean(bool /*value*/) override { return Unexpected("true or false"); }
  bool number_integer(int64_t /*value*/) override { return Unexpected("a negative number"); }
  bool number_float(double /*value*/, const std::string& text) override {
    return Unexpected("the number " + OneLine(text, kMaxNameText));
  }
  bool binary(binary_t& /*value*/) override { return Unexpected("binary"); }
  bool number_unsigned(uint64_t value) override;
  bool string(std::string& value) override;
  bool key(std::string& value) override;
  bool start_object(size_t /*count*/) override;
  bool end_object() override;
  bool start_array(size_t /*count*/) override;
  bool end_array() override;
  bool parse_error(size_t position, const std::string& /*token*/,
                   const nlohmann::json::exception& /*error*/) override {
    return Fail(fmt::format("it is no JSON from byte {} on", position));
  }

 private:
  enum class Place : uint8_t { kOut, kTop, kFiles, kFile, kPieces, kEnd };
  bool Fail(std::string problem) {
    problem_ = std::move(problem);
    return false;
  }
  bool Unexpected(const std::string& what) {
    const std::string where = files_.empty() ? "" : fmt::format(" in file {}", files_.size());
    return Fail(fmt::format("{}{} where {}", what, where,
                            key_.empty() ? "none is expected" : "`" + key_ + "` is expected"));
  }
  bool FinishFile();

  Place place_ = Place::kOut;
  std::string key_;  // whose value comes next
  bool format_ = false, piece_bytes_ = false, list_ = false;
  bool name_ = false, bytes_ = false, pieces_ = false;  // of the newest file
  DataManifest files_;
  std::string problem_;
};

bool ManifestReader::number_unsigned(uint64_t value) {
  const std::string key = std::exchange(key_, "");
  if (place_ == Place::kTop && key == "format") {
    format_ = true;
    return value == kFormat || Fail(fmt::format("format is {}, expected {}", value, kFormat));
  }
  if (place_ == Place::kTop && key == "piece_bytes") {
    piece_bytes_ = true;
    return value == kManifestPieceBytes ||
           Fail(fmt::format("piece_bytes is {}, expected {}", value, kManifestPieceBytes));
  }
  if (place_ == Place::kFile && key == "bytes") {
    bytes_ = true;
    files_.back().bytes = value;
    return true;
  }
  key_ = key;
  return Unexpected("a number");
}

bool ManifestReader::string(std::string& value) {
  if (place_ == Place::kFile && key_ == "name") {
    key_.clear();
    name_ = true;
    files_.back().name = std::move(value);
    return true;
  }
  if (place_ != Place::kPieces) return Unexpected("a text");
  const std::optional<Sha256Digest> digest = DigestFromHex(value);
  if (!digest) {
    return Fail(fmt::format("piece {} of file {} is \"{}\", expected a SHA-256 of 64 hex digits",
                            files_.back().pieces.size(), files_.size(),
                            OneLine(value, kMaxNameText)));
  }
  files_.back().pieces.push_back(*digest);
  return true;
}

bool ManifestReader::key(std::string& value) {
  const bool known = place_ == Place::kTop
                         ? (value == "format" && !format_) ||
                               (value == "piece_bytes" && !piece_bytes_) ||
                               (value == "files" && !list_)
                         : (value == "name" && !name_) || (value == "bytes" && !bytes_) ||
                               (value == "pieces" && !pieces_);
  if (!known) {
    return Fail(fmt::format("key \"{}\" is unknown, or there twice", OneLine(value, kMaxNameText)));
  }
  key_ = value;
  return true;
}

bool ManifestReader::start_object(size_t /*count*/) {
  if (place_ == Place::kOut) {
    place_ = Place::kTop;
    return true;
  }
  if (place_ != Place::kFiles) return Unexpected("{");
  if (files_.size() >= kMaxDatasetFiles) {
    return Fail(fmt::format("it lists more than {} files", kMaxDatasetFiles));
  }
  place_ = Place::kFile;
  files_.emplace_back();
  name_ = bytes_ = pieces_ = false;
  return true;
}

bool ManifestReader::FinishFile() {
  ManifestFile& file = files_.back();
  if (!name_ || !bytes_ || !pieces_) {
    return Fail(fmt::format("file {} lacks one of name, bytes and pieces", files_.size()));
  }
  if (PiecesOf(file.bytes) == file.pieces.size()) {
    file.pieces.shrink_to_fit();
    return true;
  }
  return Fail(fmt::format("\"{}\" of {} bytes has {} pieces, expected {} of {} bytes",
                          OneLine(file.name, kMaxNameText), file.bytes, file.pieces.size(),
                          PiecesOf(file.bytes), kManifestPieceBytes));
}

bool ManifestReader::end_object() {
  if (place_ == Place::kFile) {
    place_ = Place::kFiles;
    return FinishFile();
  }
  place_ = Place::kEnd;
  return true;
}

bool ManifestReader::start_array(size_t /*count*/) {
  const std::string key = std::exchange(key_, "");
  if (place_ == Place::kTop && key == "files") {
    list_ = true;
    place_ = Place::kFiles;
    return true;
  }
  if (place_ == Place::kFile && key == "pieces") {
    pieces_ = true;
    place_ = Place::kPieces;
    return true;
  }
  key_ = key;
  return Unexpected("[");
}

bool ManifestReader::end_array() {
  place_ = place_ == Place::kPieces ? Place::kFile : Place::kTop;
  return true;
}

StatusOr<DataManifest> ManifestReader::Finish() {
  if (place_ != Place::kEnd || !format_ || !piece_bytes_ || !list_ || files_.empty()) {
    return InvalidArgument(
        "{}: expected an object of format, piece_bytes and files, of which there is at least one",
        kDataManifestName);
  }
  std::ranges::sort(files_, {}, &ManifestFile::name);
  std::vector<std::string> names;
  uint64_t total = 0;
  for (const ManifestFile& file : files_) {
    RING_RETURN_IF_ERROR(Annotate(CheckFileName(file.name), kDataManifestName));
    if (file.name == kDataManifestName) {
      return InvalidArgument("{} lists itself", kDataManifestName);
    }
    if (file.bytes > static_cast<uint64_t>(INT64_MAX) - total) {
      return InvalidArgument("{}: the sizes of all files are over 2^63 bytes", kDataManifestName);
    }
    total += file.bytes;
    names.push_back(file.name);
  }
  RING_RETURN_IF_ERROR(Annotate(CheckFileNames(names), kDataManifestName));
  return std::move(files_);
}

// A walk over a folder, and how many folders it may still find.
struct Walk {
  const OwnedFile& root;
  uint64_t left = kMaxDatasetFiles;
  std::vector<std::string> names;
};

Status ListBelow(const std::string& folder, int depth, Walk* walk) {
  if (depth > kMaxFolderDepth) {
    return InvalidArgument("{}: folders lie more than {} deep", folder, kMaxFolderDepth);
  }
  RING_ASSIGN_OR_RETURN(const FolderEntries entries,
                        ListFolder(walk->root, folder.empty() ? "." : folder));
  const uint64_t found = entries.files.size() + entries.folders.size();
  if (found > walk->left) {
    return InvalidArgument("{}: there are more than {} files and folders", folder,
                           kMaxDatasetFiles);
  }
  walk->left -= found;
  const std::string prefix = folder.empty() ? "" : folder + "/";
  for (const std::string& file : entries.files) {
    if (prefix.empty() && file == kDataManifestName) continue;
    RING_RETURN_IF_ERROR(CheckFileName(prefix + file));
    walk->names.push_back(prefix + file);
  }
  for (const std::string& below : entries.folders) {
    RING_RETURN_IF_ERROR(ListBelow(prefix + below, depth + 1, walk));
  }
  return absl::OkStatus();
}

Status HashPieces(int descriptor, std::vector<uint8_t>* piece, ManifestFile* file) {
  while (true) {
    RING_ASSIGN_OR_RETURN(const size_t got, ReadUpTo(descriptor, file->bytes, *piece));
    if (got == 0) return absl::OkStatus();
    Sha256 hash;
    hash.Update(std::span<const uint8_t>(piece->data(), got));
    file->pieces.push_back(hash.Finish());
    file->bytes += got;
    if (got < piece->size()) return absl::OkStatus();
  }
}

std::string DifferenceOf(const ManifestFile& said, const ManifestFile& there) {
  if (said.bytes != there.bytes) {
    return fmt::format("{}: the manifest says {} bytes, there are {}", said.name, said.bytes,
                       there.bytes);
  }
  size_t piece = 0;
  while (said.pieces[piece] == there.pieces[piece]) ++piece;
  return fmt::format(
      "{}: from byte {} on it is not what the manifest says: SHA-256 {}, there is {}", said.name,
      piece * kManifestPieceBytes, Hex(said.pieces[piece]), Hex(there.pieces[piece]));
}

}  // namespace

StatusOr<DataManifest> ParseDataManifest(const std::string& text) {
  if (text.size() > kMaxDataManifestBytes) {
    return InvalidArgument("{}: more than {} bytes", kDataManifestName, kMaxDataManifestBytes);
  }
  ManifestReader reader;
  // The JSON library throws of numbers and of memory; its exceptions end here.
  try {
    if (!nlohmann::json::sax_parse(text, &reader)) {
      return InvalidArgument("{}: {}", kDataManifestName, reader.problem());
    }
  } catch (const nlohmann::json::exception& error) {
    return InvalidArgument("{}: {}", kDataManifestName, OneLine(error.what(), kMaxNameText));
  }
  return reader.Finish();
}

std::string PrintDataManifest(const DataManifest& manifest) {
  std::string text = fmt::format("{{\n \"format\": {},\n \"piece_bytes\": {},\n \"files\": [",
                                 kFormat, kManifestPieceBytes);
  const char* between = "\n";
  for (const ManifestFile& file : manifest) {
    text += fmt::format("{}  {{\"name\": {}, \"bytes\": {}, \"pieces\": [", between,
                        nlohmann::json(file.name).dump(), file.bytes);
    between = ",\n";
    for (size_t i = 0; i < file.pieces.size(); ++i) {
      text += fmt::format("{}\"{}\"", i == 0 ? "" : ", ", Hex(file.pieces[i]));
    }
    text += "]}";
  }
  return text + "\n ]\n}\n";
}

StatusOr<DataManifest> MakeDataManifest(const std::string& folder) {
  RING_ASSIGN_OR_RETURN(const OwnedFile root, OpenFolder(folder));
  Walk walk{.root = root, .names = {}};
  RING_RETURN_IF_ERROR(Annotate(ListBelow("", 0, &walk), folder));
  if (walk.names.empty()) return InvalidArgument("{}: there are no files in it", folder);
  std::ranges::sort(walk.names);
  std::vector<uint8_t> piece(kManifestPieceBytes);
  DataManifest manifest;
  for (const std::string& name : walk.names) {
    RING_ASSIGN_OR_RETURN(const OwnedFile opened, OpenBeneath(root, name, Wanted::kFile));
    manifest.push_back({.name = name, .bytes = 0, .pieces = {}});
    RING_RETURN_IF_ERROR(Annotate(HashPieces(opened.get(), &piece, &manifest.back()), name));
  }
  return manifest;
}

std::vector<std::string> Differences(const DataManifest& said, const DataManifest& there) {
  std::map<std::string, std::pair<const ManifestFile*, const ManifestFile*>> files;
  for (const ManifestFile& file : said) files[file.name].first = &file;
  for (const ManifestFile& file : there) files[file.name].second = &file;
  std::vector<std::string> lines;
  for (const auto& [name, pair] : files) {
    if (pair.second == nullptr) {
      lines.push_back(name + ": the manifest lists it, but it is not there");
    } else if (pair.first == nullptr) {
      lines.push_back(name + ": it is there, but the manifest does not list it");
    } else if (*pair.first != *pair.second) {
      lines.push_back(DifferenceOf(*pair.first, *pair.second));
    }
  }
  return lines;
}

}  // namespace ringmaster::data
