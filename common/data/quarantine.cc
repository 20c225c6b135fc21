#include "common/data/quarantine.h"

#include <sys/stat.h>

#include <algorithm>
#include <charconv>
#include <sstream>
#include <tuple>

#include "common/sha256.h"
#include "common/text.h"

namespace ringmaster::data {
namespace {

constexpr uint64_t kMostListBytes = uint64_t{64} << 20;

auto PlaceOf(const Quarantined& out) { return std::tie(out.file, out.offset); }

StatusOr<Quarantined> ParseEntry(const std::string& line) {
  const size_t tab = line.find('\t');
  if (tab != std::string::npos && tab > 0) {
    Quarantined out = {.file = line.substr(0, tab)};
    const char* const end = line.data() + line.size();
    const auto [stop, error] = std::from_chars(line.data() + tab + 1, end, out.offset);
    const std::string rest(stop, end);
    if (error == std::errc() && (rest.empty() || rest.starts_with("\t#"))) {
      if (rest.size() > 3) out.reason = rest.substr(3);
      return out;
    }
  }
  return FailedPrecondition(
      "expected a file, a tab and the byte where its image begins, as `ringctl dataset verify "
      "--decode --quarantine` writes them; got \"{}\"",
      OneLine(line, 100));
}

}  // namespace

StatusOr<Quarantine> Quarantine::In(const OwnedFile& folder) {
  const auto file = OpenBeneath(folder, kQuarantineFile, Wanted::kFile);
  if (file.status().code() == absl::StatusCode::kNotFound) return Quarantine();
  if (!file.ok()) return file.status();
  struct stat status = {};
  if (fstat(file->get(), &status) != 0 || static_cast<uint64_t>(status.st_size) > kMostListBytes) {
    return FailedPrecondition("{} has more than {} bytes", kQuarantineFile, kMostListBytes);
  }
  const auto text = ReadExactly(file->get(), 0, static_cast<uint64_t>(status.st_size));
  if (!text.ok()) return Annotate(text.status(), kQuarantineFile);
  auto parsed = Parse(*text);
  if (!parsed.ok()) return Annotate(parsed.status(), kQuarantineFile);
  return parsed;
}

StatusOr<Quarantine> Quarantine::Parse(const std::string& text) {
  Quarantine quarantine;
  std::istringstream lines(text);
  std::string line;
  for (size_t number = 1; std::getline(lines, line); ++number) {
    if (line.ends_with('\r')) line.pop_back();
    if (line.empty() || line[0] == '#') continue;
    auto entry = ParseEntry(line);
    if (!entry.ok()) return Annotate(entry.status(), fmt::format("line {}", number));
    quarantine.entries_.push_back(*std::move(entry));
  }
  std::ranges::sort(quarantine.entries_, {}, PlaceOf);
  const auto twice = std::ranges::adjacent_find(quarantine.entries_, {}, PlaceOf);
  if (twice == quarantine.entries_.end()) return quarantine;
  return FailedPrecondition("{}, byte {} stands there twice", twice->file, twice->offset);
}

void Quarantine::Add(Quarantined out) {
  const auto place = std::ranges::lower_bound(entries_, PlaceOf(out), {}, PlaceOf);
  entries_.insert(place, std::move(out));
}

std::span<const Quarantined> Quarantine::Of(const std::string& file) const {
  const auto begin = std::ranges::lower_bound(entries_, file, {}, &Quarantined::file);
  const auto end = std::ranges::upper_bound(begin, entries_.end(), file, {}, &Quarantined::file);
  return {begin, end};
}

Status Quarantine::CheckFiles(const std::set<std::string>& files) const {
  for (const Quarantined& out : entries_) {
    if (files.contains(out.file)) continue;
    return FailedPrecondition(
        "{} lists a sample of {}, which is no file of the data: make the list again with `ringctl "
        "dataset verify --decode --quarantine`",
        kQuarantineFile, out.file);
  }
  return absl::OkStatus();
}

std::string Quarantine::Text() const {
  std::string text;
  for (const Quarantined& out : entries_) {
    text += fmt::format("{}\t{}\t# {}\n", out.file, out.offset, OneLine(out.reason));
  }
  return text;
}

std::string Quarantine::Sha256() const {
  std::string text;
  for (const Quarantined& out : entries_) text += fmt::format("{}\t{}\n", out.file, out.offset);
  return Hex(Sha256Of(text));
}

}  // namespace ringmaster::data
