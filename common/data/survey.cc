#include "common/data/survey.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

namespace ringmaster::data {
namespace {

constexpr char kGzipEnding[] = ".gz";

std::string NameIn(const Format& format, const FileKind& kind) {
  return format.may_be_gzipped ? kind.name + " or " + kind.name + kGzipEnding : kind.name;
}

// Kinds without a file, and files that are there twice.
void CheckNames(const Format& format, const std::vector<FoundFile>& found,
                std::vector<Status>* problems) {
  for (const FileKind& kind : format.files) {
    const bool there = std::any_of(found.begin(), found.end(),
                                   [&](const FoundFile& file) { return file.kind == &kind; });
    if (there) continue;
    problems->push_back(Error(absl::StatusCode::kNotFound, "there is no {} ({})", kind.description,
                              NameIn(format, kind)));
  }
  for (const FoundFile& file : found) {
    const bool twice = file.gzipped && std::any_of(found.begin(), found.end(), [&](const auto& f) {
                         return f.name + kGzipEnding == file.name;
                       });
    if (!twice) continue;
    const std::string plain = file.name.substr(0, file.name.size() - strlen(kGzipEnding));
    problems->push_back(FailedPrecondition(
        "{} and {} are both there: which one counts is not clear; remove one", plain, file.name));
  }
}

// Files of images against each other, and against the labels of their split.
void CheckAgreement(const std::vector<SurveyedFile>& files, std::vector<Status>* problems) {
  const DataFile* first = nullptr;
  for (const SurveyedFile& surveyed : files) {
    if (!surveyed.file || !surveyed.file->layout().pixels) continue;
    const FileLayout& layout = surveyed.file->layout();
    if (first == nullptr) first = &*surveyed.file;
    if (layout.height == first->layout().height && layout.width == first->layout().width) continue;
    problems->push_back(
        FailedPrecondition("{} has images of {} x {}, {} of {} x {}: all must be of one size",
                           first->fact().name(), first->layout().height, first->layout().width,
                           surveyed.found.name, layout.height, layout.width));
  }
  for (const SurveyedFile& images : files) {
    for (const SurveyedFile& labels : files) {
      if (!images.file || !labels.file) continue;
      const FileKind &a = images.file->kind(), &b = labels.file->kind();
      if (a.split != b.split || a.holds != Holds::kImages || b.holds != Holds::kLabels) continue;
      const uint64_t left = images.file->layout().samples, right = labels.file->layout().samples;
      if (left == right) continue;
      problems->push_back(FailedPrecondition("{} has {} images, {} has {} labels: as many expected",
                                             images.found.name, left, labels.found.name, right));
    }
  }
}

}  // namespace

StatusOr<std::vector<std::string>> NamesIn(const Descriptor& folder) {
  // A descriptor of its own, because closedir closes it.
  const int copy = openat(folder.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR* const listing = copy < 0 ? nullptr : fdopendir(copy);
  if (listing == nullptr) {
    return Error(absl::StatusCode::kUnavailable, "cannot list it: {}", std::strerror(errno));
  }
  std::vector<std::string> names;
  while (const dirent* const entry = readdir(listing)) names.emplace_back(entry->d_name);
  closedir(listing);
  std::sort(names.begin(), names.end());
  return names;
}

std::vector<FoundFile> FilesOf(const Format& format, const std::vector<std::string>& names) {
  std::vector<FoundFile> found;
  for (const std::string& name : names) {
    const bool gzipped = format.may_be_gzipped && name.ends_with(kGzipEnding);
    const std::string plain = gzipped ? name.substr(0, name.size() - strlen(kGzipEnding)) : name;
    for (const FileKind& kind : format.files) {
      if (Matches(kind, plain)) found.push_back({name, &kind, gzipped});
    }
  }
  return found;
}

StatusOr<const Format*> ChooseFormat(const Descriptor& folder, const std::string& name) {
  if (!name.empty()) return FindFormat(name);
  RING_ASSIGN_OR_RETURN(const std::vector<std::string> names, NamesIn(folder));
  std::vector<const Format*> found;
  std::vector<std::string> wanted, there;
  for (const Format* format : Formats()) {
    wanted.push_back(fmt::format("{} ({})", format->name, format->files.front().name));
    if (FilesOf(*format, names).empty()) continue;
    found.push_back(format);
    there.push_back(format->name);
  }
  if (found.size() == 1) return found.front();
  if (found.empty()) {
    return Error(absl::StatusCode::kNotFound,
                 "it holds no file of a known format: {}; is it another folder?",
                 fmt::join(wanted, ", "));
  }
  return InvalidArgument(
      "it holds files of several formats: {}; say which one is meant "
      "(data.format of a job, --format of `ringctl dataset`)",
      fmt::join(there, ", "));
}

Survey SurveyFolder(const Descriptor& folder, const Format& format, HashCache* cache) {
  Survey survey;
  const StatusOr<std::vector<std::string>> names = NamesIn(folder);
  if (!names.ok()) {
    survey.problems.push_back(names.status());
    return survey;
  }
  const std::vector<FoundFile> found = FilesOf(format, *names);
  CheckNames(format, found, &survey.problems);
  for (const FoundFile& one : found) {
    SurveyedFile surveyed{one, std::nullopt};
    StatusOr<DataFile> file = DataFile::Open(folder, one, format, cache);
    if (file.ok()) {
      surveyed.file = *std::move(file);
    } else {
      survey.problems.push_back(file.status());
    }
    survey.files.push_back(std::move(surveyed));
  }
  CheckAgreement(survey.files, &survey.problems);
  return survey;
}

}  // namespace ringmaster::data
