#include "common/data/survey.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "common/data/columns.h"
#include "common/data/record_index.h"

namespace ringmaster::data {
namespace {

constexpr char kGzipEnding[] = ".gz";

std::string NameIn(const Format& format, const FileKind& kind) {
  return format.may_be_gzipped ? kind.name + " or " + kind.name + kGzipEnding : kind.name;
}

Status BothThere(const std::string& one, const std::string& other) {
  return FailedPrecondition("{} and {} are both there: which one counts is not clear; remove one",
                            one, other);
}

// Kinds without a file, and files of which only one can count.
void CheckNames(const Format& format, const std::vector<FoundFile>& found,
                std::vector<Status>* problems) {
  const FoundFile* first = nullptr;
  for (const FoundFile& file : found) {
    if (first == nullptr) first = &file;
    const bool alone = !file.kind->split && &file != first;
    if (!alone && file.kind->way == first->kind->way) continue;
    if (!file.kind->needed) {
      problems->push_back(BothThere(first->name, file.name));
      return;
    }
    problems->push_back(FailedPrecondition(
        "{} and {} are both there: data lie in {} and {}, or in one file {}; remove what does not "
        "count",
        first->name, file.name, format.files[0].name, format.files[1].name,
        format.files.back().name));
  }
  for (const FileKind& kind : format.files) {
    const bool there = std::any_of(found.begin(), found.end(),
                                   [&](const FoundFile& file) { return file.kind == &kind; });
    if (there || !kind.needed || kind.way != (first == nullptr ? 0 : first->kind->way)) continue;
    problems->push_back(Error(absl::StatusCode::kNotFound, "there is no {} ({})", kind.description,
                              NameIn(format, kind)));
  }
  for (const FoundFile& file : found) {
    const bool twice = file.gzipped && std::any_of(found.begin(), found.end(), [&](const auto& f) {
                         return f.name + kGzipEnding == file.name;
                       });
    if (!twice) continue;
    const std::string plain = file.name.substr(0, file.name.size() - strlen(kGzipEnding));
    problems->push_back(BothThere(plain, file.name));
  }
}

// Where no kind must be there: a training file, and test files of one kind.
void CheckOptional(const Format& format, const std::vector<FoundFile>& found,
                   std::vector<Status>* problems) {
  const FileKind& first = format.files.front();
  if (first.needed) return;
  const FoundFile* test = nullptr;
  bool trains = false;
  for (const FoundFile& file : found) {
    trains = trains || file.kind->split == Split::kTrain;
    if (file.kind->split != Split::kTest) continue;
    if (test == nullptr) test = &file;
    if (file.kind->description == test->kind->description) continue;
    problems->push_back(BothThere(test->name, file.name));
    break;
  }
  if (trains) return;
  problems->push_back(
      Error(absl::StatusCode::kNotFound, "there is no {} ({})", first.description, first.name));
}

}  // namespace

StatusOr<std::vector<std::string>> NamesIn(const OwnedFile& folder) {
  RING_ASSIGN_OR_RETURN(const FolderEntries entries, ListFolder(folder, "."));
  std::vector<std::string> names = entries.files;  // a folder of a file's name is said to be none
  names.insert(names.end(), entries.folders.begin(), entries.folders.end());
  for (const Split split : {Split::kTrain, Split::kTest}) {
    if (!std::ranges::binary_search(entries.folders, NameOf(split))) continue;
    RING_ASSIGN_OR_RETURN(const FolderEntries inside, ListFolder(folder, NameOf(split)));
    for (const auto* inside_names : {&inside.files, &inside.folders}) {
      for (const std::string& name : *inside_names) {
        names.push_back(fmt::format("{}/{}", NameOf(split), name));
      }
    }
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::vector<FoundFile> FilesOf(const Format& format, const std::vector<std::string>& names) {
  std::vector<FoundFile> found;
  for (const std::string& name : names) {
    const bool gzipped = format.may_be_gzipped && name.ends_with(kGzipEnding);
    const std::string plain = gzipped ? name.substr(0, name.size() - strlen(kGzipEnding)) : name;
    const auto kind = std::ranges::find_if(
        format.files, [&](const FileKind& one) { return Matches(one, plain); });
    if (kind != format.files.end()) found.push_back({name, &*kind, gzipped});
  }
  return found;
}

// Whether each of `few`, of which there are some, is one of `many`.
bool HasAll(const std::vector<FoundFile>& many, const std::vector<FoundFile>& few) {
  return !few.empty() && std::ranges::all_of(few, [&](const FoundFile& file) {
    return std::ranges::find(many, file.name, &FoundFile::name) != many.end();
  });
}

StatusOr<const Format*> ChooseFormat(const OwnedFile& folder, const std::string& name) {
  if (!name.empty()) return FindFormat(name);
  RING_ASSIGN_OR_RETURN(const std::vector<std::string> names, NamesIn(folder));
  std::vector<const Format*> found;
  std::vector<std::vector<FoundFile>> files;  // of each that was found
  std::vector<std::string> wanted, there;
  for (const Format* format : Formats()) {
    const bool records = format->records != nullptr;
    wanted.push_back(fmt::format("{} ({})", format->name,
                                 records ? format->records->looks : format->files.front().name));
    std::vector<FoundFile> own = records ? std::vector<FoundFile>() : FilesOf(*format, names);
    if (records ? !format->records->is_there(folder) : own.empty()) continue;
    if (std::ranges::any_of(files, [&](const auto& more) { return HasAll(more, own); })) continue;
    for (size_t i = files.size(); i-- > 0;) {
      if (!HasAll(own, files[i])) continue;
      found.erase(found.begin() + static_cast<ptrdiff_t>(i));
      files.erase(files.begin() + static_cast<ptrdiff_t>(i));
    }
    found.push_back(format);
    files.push_back(std::move(own));
  }
  for (const Format* format : found) there.push_back(format->name);
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

Survey SurveyFolder(const OwnedFile& folder, const Format& format, const v1::DataSource& source,
                    HashCache* cache) {
  Survey survey;
  const StatusOr<std::vector<std::string>> names = NamesIn(folder);
  if (!names.ok()) {
    survey.problems.push_back(names.status());
    return survey;
  }
  const std::vector<FoundFile> found = FilesOf(format, *names);
  CheckNames(format, found, &survey.problems);
  CheckOptional(format, found, &survey.problems);
  for (const FoundFile& one : found) {
    SurveyedFile surveyed{one, std::nullopt};
    StatusOr<DataFile> file = DataFile::Open(folder, one, format, source, cache);
    if (file.ok()) {
      surveyed.file = *std::move(file);
    } else {
      survey.problems.push_back(file.status());
    }
    survey.files.push_back(std::move(surveyed));
  }
  std::vector<FoundArray> arrays;
  for (const SurveyedFile& surveyed : survey.files) {
    if (!surveyed.file) continue;
    for (const Array& array : surveyed.file->layout().arrays) {
      arrays.push_back({&*surveyed.file, &array});
    }
  }
  if (!survey.problems.empty()) return survey;  // what is not there cannot agree
  survey.problems = CheckAgreement(arrays);
  return survey;
}

}  // namespace ringmaster::data
