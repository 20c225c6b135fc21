#include "common/data/verify.h"

#include <sys/stat.h>

#include <algorithm>
#include <sstream>
#include <utility>

#include "common/data/dataset.h"
#include "common/data/record_index.h"
#include "common/data/survey.h"
#include "common/sha256.h"

namespace ringmaster::data {
namespace {

constexpr size_t kHex = 64;

bool IsEntry(const std::string& line) {
  const auto is_hex = [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
  };
  return line.size() > kHex + 2 && std::all_of(line.begin(), line.begin() + kHex, is_hex) &&
         line[kHex] == ' ' && (line[kHex + 1] == ' ' || line[kHex + 1] == '*');
}

// Of a file with a problem: as much as there is to see.
void Look(const OwnedFile& folder, VerifiedFile* file) {
  const StatusOr<OwnedFile> opened = OpenBeneath(folder, file->name, Wanted::kFile);
  struct stat status = {};
  if (!opened.ok() || fstat(opened->get(), &status) != 0) return;
  file->bytes = static_cast<uint64_t>(status.st_size);
  Sha256 hash;
  std::vector<uint8_t> piece(size_t{1} << 20);
  for (uint64_t offset = 0;;) {
    const StatusOr<size_t> got = ReadUpTo(opened->get(), offset, piece);
    if (!got.ok()) return;
    if (*got == 0) break;
    hash.Update({piece.data(), *got});
    offset += *got;
  }
  file->sha256 = Hex(hash.Finish());
}

VerifiedFile FileOf(const OwnedFile& folder, const SurveyedFile& surveyed) {
  VerifiedFile file{surveyed.found.name, {}, {}, {}};
  if (surveyed.file) {
    const v1::DataFile& fact = surveyed.file->fact();
    file.bytes = fact.bytes();
    file.samples = fact.samples();
    file.sha256 = fact.sha256();
  } else {
    Look(folder, &file);
  }
  return file;
}

void Compare(const Sha256List& list, const std::vector<std::string>& names,
             Verification* verification) {
  std::vector<std::string>& problems = verification->problems;
  for (const VerifiedFile& file : verification->files) {
    const auto entry = list.find(file.name);
    if (entry == list.end()) {
      problems.push_back(fmt::format("{} does not stand in the list of SHA-256", file.name));
    } else if (file.sha256 && *file.sha256 != entry->second) {
      problems.push_back(fmt::format("{} has the SHA-256 {}, in the list stands {}", file.name,
                                     *file.sha256, entry->second));
    }
  }
  for (const auto& [name, sha256] : list) {
    if (std::binary_search(names.begin(), names.end(), name)) continue;
    problems.push_back(fmt::format("{} stands in the list of SHA-256 and is not there", name));
  }
}

// Of every record that has a header: what cannot be decoded is a problem, or stands in the list.
Status DecodeAll(const RecordReader& records, Depth depth, Verification* verification) {
  const RecordIndex& index = records.index();
  if (depth == Depth::kQuarantine) verification->undecodable = index.bad();
  std::vector<uint8_t> bytes, pixels;
  for (const Split split : {Split::kTrain, Split::kTest}) {
    for (uint64_t sample = 0; sample < index.samples(split); ++sample) {
      const Record& record = index.at(split, sample);
      pixels.resize(size_t{record.size.height} * record.size.width * record.channels);
      const Status read = records.Read(split, sample, &bytes);
      const Status decoded = read.ok() ? records.ReadImage(split, sample, image::Whole(record.size),
                                                           record.channels, pixels)
                                       : read;
      if (decoded.ok()) continue;
      if (depth == Depth::kDecode || !read.ok()) {  // a bad disk is no bad image
        verification->problems.push_back(Message(decoded));
      } else {
        verification->undecodable.Add(
            {index.files()[record.file].name, record.offset, Message(decoded)});
      }
    }
  }
  for (const Quarantined& out : verification->undecodable.entries()) {
    const bool comment = out.file.starts_with('#');
    if (!comment && out.file.find_first_of("\t\n\r") == std::string::npos) continue;
    verification->problems.push_back(
        fmt::format("{}: {} cannot stand in a list: rename it", out.file,
                    comment ? "a name that begins with #" : "a tab or a line break in a name"));
  }
  return absl::OkStatus();
}

// Reads every record; a list of SHA-256 is of whole files.
StatusOr<Verification> VerifyRecords(const OwnedFile& folder, const Format& format,
                                     const v1::DataSource& source,
                                     const std::optional<Sha256List>& list, Depth depth) {
  std::vector<Status> problems;
  Quarantine out;
  if (depth != Depth::kQuarantine) {
    RING_ASSIGN_OR_RETURN(out, Quarantine::In(folder));
  }
  RecordIndex index = RecordIndex::Of(folder, format, source, {}, out, &problems);
  Verification verification;
  verification.format = format.name;
  std::vector<std::string> names;
  for (const RecordFile& file : index.files()) {
    VerifiedFile& verified = verification.files.emplace_back();
    verified.name = file.name;
    if (list) Look(folder, &verified);
    verified.bytes = file.bytes;
    names.push_back(file.name);
  }
  if (list) {
    std::ranges::sort(names);
    Compare(*list, names, &verification);
  }
  for (const Status& problem : problems) verification.problems.push_back(Message(problem));
  if (depth != Depth::kQuarantine) {
    for (const Quarantined& one : index.bad().entries()) {
      if (verification.problems.size() == RecordIndex::kMostProblems) break;
      verification.problems.push_back(fmt::format("{}: {}", one.file, one.reason));
    }
  }
  if (depth == Depth::kHeaders) return verification;
  RING_ASSIGN_OR_RETURN(OwnedFile again, OpenBeneath(folder, ".", Wanted::kFolder));
  const RecordReader records(std::move(again), std::move(index));
  RING_RETURN_IF_ERROR(DecodeAll(records, depth, &verification));
  return verification;
}

}  // namespace

StatusOr<Sha256List> ParseSha256List(const std::string& text) {
  Sha256List list;
  std::istringstream lines(text);
  std::string line;
  for (size_t number = 1; std::getline(lines, line); ++number) {
    if (line.ends_with('\r')) line.pop_back();
    if (line.empty()) continue;
    if (!IsEntry(line)) {
      return InvalidArgument(
          "line {}: expected 64 hex digits, two spaces and a name, as sha256sum "
          "prints them; got \"{}\"",
          number, line.substr(0, 100));
    }
    std::string name = line.substr(kHex + 2), hex = line.substr(0, kHex);
    if (name.starts_with("./")) name.erase(0, 2);
    std::transform(hex.begin(), hex.end(), hex.begin(),
                   [](char c) { return c >= 'A' && c <= 'F' ? static_cast<char>(c + 32) : c; });
    if (!list.emplace(name, hex).second) {
      return InvalidArgument("line {}: {} stands in the list twice", number, name);
    }
  }
  if (list.empty()) return InvalidArgument("it is empty");
  return list;
}

StatusOr<Verification> Verify(const std::string& folder, const v1::DataSource& source,
                              const std::optional<Sha256List>& list, Depth depth) {
  RING_ASSIGN_OR_RETURN(const OwnedFile opened, OpenFolder(folder));
  const StatusOr<const Format*> found = ChooseFormat(opened, source.format());
  if (!found.ok()) return Annotate(found.status(), folder);
  const Format* const chosen = *found;
  if (chosen->records != nullptr) return VerifyRecords(opened, *chosen, source, list, depth);
  if (depth != Depth::kHeaders) {
    return InvalidArgument(
        "format {} has no images to decode: --decode is for image_folder, tfrecord and webdataset",
        chosen->name);
  }
  HashCache nothing("", chosen->name);
  Survey survey = SurveyFolder(opened, *chosen, source, &nothing);
  Verification verification;
  verification.format = chosen->name;
  for (const SurveyedFile& surveyed : survey.files) {
    verification.files.push_back(FileOf(opened, surveyed));
  }
  for (const Status& problem : survey.problems) verification.problems.push_back(Message(problem));
  if (survey.problems.empty()) {  // what its numbers may be
    const Status whole = Dataset::Of(*chosen, source, std::move(survey)).status();
    if (!whole.ok()) verification.problems.push_back(Message(whole));
  }
  if (list) {
    RING_ASSIGN_OR_RETURN(const std::vector<std::string> names, NamesIn(opened));
    Compare(*list, names, &verification);
  }
  return verification;
}

}  // namespace ringmaster::data
