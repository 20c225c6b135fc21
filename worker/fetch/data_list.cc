#include "worker/fetch/data_list.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <optional>
#include <set>
#include <sstream>

#include "common/text.h"

namespace ringmaster::worker {
namespace {

constexpr char kFirstLine[] = "ringmaster data 1\n";
// 2^50, far above any dataset and far below what overflows in a sum of kMostFiles of them.
constexpr uint64_t kMostFileBytes = uint64_t{1} << 50;
constexpr size_t kDigestLine = sizeof("sha256 ") - 1 + 64 + 1;

std::string HexOf(const std::vector<Sha256Digest>& pieces) {
  return Hex(
      {reinterpret_cast<const uint8_t*>(pieces.data()), pieces.size() * sizeof(Sha256Digest)});
}

std::optional<std::vector<Sha256Digest>> PiecesFrom(const std::string& hex) {
  const std::optional<std::string> bytes = FromHex(hex);
  if (!bytes || bytes->size() % sizeof(Sha256Digest) != 0) return std::nullopt;
  std::vector<Sha256Digest> pieces(bytes->size() / sizeof(Sha256Digest));
  std::ranges::copy(*bytes, reinterpret_cast<char*>(pieces.data()));
  return pieces;
}

std::string DescribeFile(const SourceFile& file) {
  std::string text = fmt::format("file {} {}\n", file.bytes, EscapeLine(file.name));
  if (!file.pieces.empty()) text += "pieces " + HexOf(file.pieces) + "\n";
  return text;
}

}  // namespace

uint64_t DataList::bytes() const {
  uint64_t bytes = 0;
  for (const SourceFile& file : files) bytes += file.bytes;
  return bytes;
}

Status DataList::Check() {
  if (files.empty()) return InvalidArgument("it has no files");
  if (files.size() > data_files::kMostFiles) {
    return InvalidArgument("it has more than {} files", data_files::kMostFiles);
  }
  std::ranges::sort(files, {}, &SourceFile::name);
  std::set<std::string> folders;
  for (const SourceFile& file : files) {
    RING_RETURN_IF_ERROR(data_files::CheckName(file.name));
    if (file.bytes > kMostFileBytes) {
      return InvalidArgument("{} is said to have {} bytes", file.name, file.bytes);
    }
    if (!file.pieces.empty() && file.pieces.size() != data_files::PiecesOf(file.bytes)) {
      return InvalidArgument("{} has {} bytes, but SHA-256 of {} pieces", file.name, file.bytes,
                             file.pieces.size());
    }
    for (size_t end = file.name.find('/'); end != std::string::npos;
         end = file.name.find('/', end + 1)) {
      folders.insert(file.name.substr(0, end));
    }
  }
  for (size_t i = 0; i < files.size(); ++i) {
    if (i > 0 && files[i].name == files[i - 1].name) {
      return InvalidArgument("{} comes twice", files[i].name);
    }
    if (folders.contains(files[i].name)) {
      return InvalidArgument("{} is a file, and a folder of others", files[i].name);
    }
  }
  return absl::OkStatus();
}

bool DataList::hashed() const {
  return std::ranges::all_of(files, [](const SourceFile& file) {
    return file.pieces.size() == data_files::PiecesOf(file.bytes);
  });
}

std::string DataList::Id() const {
  Sha256 hash;
  if (hashed()) {
    for (const SourceFile& file : files) hash.Update(DescribeFile(file));
    return Hex(hash.Finish());
  }
  hash.Update(EscapeLine(path) + "\n");
  for (const SourceFile& file : files) {
    const bool hashed = file.pieces.size() == data_files::PiecesOf(file.bytes);
    if (!hashed && file.version.empty()) return "";
    hash.Update(DescribeFile(file) + "version " + EscapeLine(file.version) + "\n");
  }
  return Hex(hash.Finish());
}

std::string DataList::ToText() const {
  std::string text = kFirstLine;
  text += "path " + EscapeLine(path) + "\n";
  if (!origin.empty()) text += "origin " + origin + "\n";
  for (const SourceFile& file : files) {
    text += DescribeFile(file);
    if (!file.version.empty()) text += "version " + EscapeLine(file.version) + "\n";
  }
  return text + "sha256 " + Hex(Sha256Of(text)) + "\n";
}

StatusOr<DataList> DataList::FromText(const std::string& text) {
  const Status damaged = DataLoss("the list of its files is damaged");
  if (!text.starts_with(kFirstLine) || text.size() < kDigestLine) return damaged;
  const std::string body = text.substr(0, text.size() - kDigestLine);
  if (text.substr(body.size()) != "sha256 " + Hex(Sha256Of(body)) + "\n") return damaged;
  DataList list;
  std::istringstream lines(body.substr(sizeof(kFirstLine) - 1));
  for (std::string line; std::getline(lines, line);) {
    const size_t blank = line.find(' ');
    if (blank == std::string::npos) return damaged;
    const std::string key = line.substr(0, blank);
    const std::string value = line.substr(blank + 1);
    if (key == "path") {
      list.path = UnescapeLine(value);
    } else if (key == "origin") {
      list.origin = value;
    } else if (key == "file") {
      SourceFile& file = list.files.emplace_back();
      const auto [end, error] =
          std::from_chars(value.data(), value.data() + value.size(), file.bytes);
      if (error != std::errc() || *end != ' ') return damaged;
      file.name = UnescapeLine(value.substr(static_cast<size_t>(end - value.data()) + 1));
    } else if (list.files.empty()) {
      return damaged;
    } else if (key == "pieces") {
      auto pieces = PiecesFrom(value);
      if (!pieces) return damaged;
      list.files.back().pieces = *std::move(pieces);
    } else if (key == "version") {
      list.files.back().version = UnescapeLine(value);
    }
  }
  RING_RETURN_IF_ERROR(list.Check());
  return list;
}

}  // namespace ringmaster::worker
