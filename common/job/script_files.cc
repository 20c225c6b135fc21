#include "common/job/script_files.h"

#include <fmt/ranges.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "common/amount.h"
#include "common/data/beneath.h"
#include "common/sha256.h"
#include "common/text.h"

namespace ringmaster::job {
namespace {

constexpr const char* kFile = "script.file";
constexpr const char* kInclude = "script.include";
constexpr size_t kMostPath = 1'024, kMostName = 255;  // bytes
constexpr int kMostDepth = 32;    // of folders: links may lead round in a circle
constexpr size_t kMostNamed = 3;  // in an error

Status Named(const char* key, const Status& status) {
  return status.ok() ? status : InvalidArgument("{}: {}", key, ringmaster::Message(status));
}

// `./configs/` is configs, the folder itself a dot.
StatusOr<std::string> Inside(const char* key, const std::string& path) {
  std::string normal = std::filesystem::path(path).lexically_normal().generic_string();
  if (normal.size() > 1 && normal.back() == '/') normal.pop_back();
  if (!normal.empty() && normal[0] != '/' && normal != ".." && !normal.starts_with("../")) {
    return normal;
  }
  return InvalidArgument(
      "{}: \"{}\" does not lie beneath the job file's folder, and nothing else goes with a job: "
      "move it there, or the job file above it",
      key, OneLine(path, kMaxNameText));
}

std::string FolderOf(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : path.substr(0, slash);
}

std::string Joined(const std::string& folder, const std::string& name) {
  return folder == "." ? name : folder + '/' + name;
}

using Sizes = std::map<std::string, uint64_t>;  // in bytes, by path

// `data/train.bin (3.1 MiB), model.pt (1.0 MiB)`
std::string Largest(const Sizes& sizes) {
  std::vector<std::pair<uint64_t, std::string>> by_size;
  for (const auto& [path, bytes] : sizes) by_size.emplace_back(bytes, path);
  std::ranges::sort(by_size, std::greater<>());
  std::vector<std::string> words;
  for (const auto& [bytes, path] : by_size) {
    if (words.size() < kMostNamed)
      words.push_back(fmt::format("{} ({})", path, FormatBytes(bytes)));
  }
  return fmt::format("{}", fmt::join(words, ", "));
}

// The folder with most of them, and how many.
std::string Fullest(const Sizes& sizes) {
  std::map<std::string, int> folders;
  for (const auto& [path, bytes] : sizes) ++folders[FolderOf(path)];
  const auto most =
      std::ranges::max_element(folders, {}, [](const auto& each) { return each.second; });
  return fmt::format("{} of them in {}", most->second, most->first);
}

// What there is beneath one folder of what a job names.
class Finder {
 public:
  Finder(const OwnedFile& folder, Sizes* found) : folder_(folder), found_(*found) {}

  Status AddFile(const char* key, const std::string& path) {
    if (OneLine(path, kMostPath) != path) {
      return InvalidArgument("{}: \"{}\": a name is at most {} bytes of plain UTF-8", key,
                             OneLine(path, kMaxNameText), kMostPath);
    }
    const auto file = data::OpenBeneath(folder_, path, data::Wanted::kFile);
    if (!file.ok()) return Named(key, file.status());
    struct stat status = {};
    if (fstat(file->get(), &status) != 0) return InvalidArgument("{}: cannot read {}", key, path);
    found_[path] = static_cast<uint64_t>(status.st_size);
    if (found_.size() <= kMostScriptFiles) return absl::OkStatus();
    return InvalidArgument(
        "{}: more than {} files ({}); name those that the script needs, and what it reads as data "
        "lies beneath each worker's --data-root",
        kInclude, kMostScriptFiles, Fullest(found_));
  }

  // All beneath a folder.
  Status AddFolder(const std::string& path, int depth) {
    if (depth > kMostDepth) {
      return InvalidArgument("{}: {} is nested deeper than {} folders; a link in it leads upwards?",
                             kInclude, OneLine(path, kMaxNameText), kMostDepth);
    }
    const auto entries = data::ListFolder(folder_, path);
    if (!entries.ok()) return Named(kInclude, entries.status());
    for (const std::string& name : entries->files) {
      RING_RETURN_IF_ERROR(AddFile(kInclude, Joined(path, name)));
    }
    for (const std::string& name : entries->folders) {
      if (name == "__pycache__") continue;
      RING_RETURN_IF_ERROR(AddFolder(Joined(path, name), depth + 1));
    }
    return absl::OkStatus();
  }

  Status AddIncluded(const std::string& path) {
    RING_ASSIGN_OR_RETURN(const std::string inside, Inside(kInclude, path));
    const bool is_folder = data::OpenBeneath(folder_, inside, data::Wanted::kFolder).ok();
    return is_folder ? AddFolder(inside, 1) : AddFile(kInclude, inside);
  }

  // *.py in a folder, and nothing beneath it.
  Status AddSources(const std::string& path) {
    const auto entries = data::ListFolder(folder_, path);
    if (!entries.ok()) return Named(kInclude, entries.status());
    for (const std::string& name : entries->files) {
      if (!name.ends_with(".py")) continue;
      RING_RETURN_IF_ERROR(AddFile(kInclude, Joined(path, name)));
    }
    return absl::OkStatus();
  }

 private:
  const OwnedFile& folder_;
  Sizes& found_;
};

Status CheckSum(const Sizes& sizes) {
  uint64_t sum = 0;
  for (const auto& [path, bytes] : sizes) sum += bytes;
  if (sum <= kMostScriptBytes) return absl::OkStatus();
  return InvalidArgument(
      "{}: {} of files, at most {} go with a job: {}; name those that the script needs, and what "
      "it "
      "reads as data lies beneath each worker's --data-root",
      kInclude, FormatBytes(sum), FormatBytes(kMostScriptBytes), Largest(sizes));
}

StatusOr<std::string> ReadFile(const OwnedFile& folder, const std::string& path) {
  RING_ASSIGN_OR_RETURN(const auto file, data::OpenBeneath(folder, path, data::Wanted::kFile));
  std::string content(kMostScriptBytes + 1, '\0');  // one that grows is found to be too large
  RING_ASSIGN_OR_RETURN(
      const size_t bytes,
      ReadUpTo(file.get(), 0, {reinterpret_cast<uint8_t*>(content.data()), content.size()}));
  content.resize(bytes);
  content.shrink_to_fit();
  return content;
}

Status CheckFilePath(const std::string& path) {
  const auto bad = [&](const char* why) {
    return InvalidArgument("script.files: \"{}\" {}", OneLine(path, kMaxNameText), why);
  };
  if (path.empty() || path.size() > kMostPath || OneLine(path, kMostPath) != path) {
    return bad("is no path of at most 1024 bytes of plain UTF-8");
  }
  for (size_t begin = 0; begin <= path.size();) {
    const size_t end = std::min(path.find('/', begin), path.size());
    const std::string name = path.substr(begin, end - begin);
    if (name.empty() || name == "." || name == "..") {
      return bad("is not relative, or holds an empty name, `.` or `..`");
    }
    if (name.size() > kMostName) return bad("holds a name of more than 255 bytes");
    begin = end + 1;
  }
  return absl::OkStatus();
}

// Whether one of them is a file and the folder of another.
Status CheckFolders(const std::set<std::string>& paths) {
  for (const std::string& path : paths) {
    for (size_t at = path.find('/'); at != std::string::npos; at = path.find('/', at + 1)) {
      if (!paths.contains(path.substr(0, at))) continue;
      return InvalidArgument("script.files: {} is a file, and the folder of {}", path.substr(0, at),
                             path);
    }
  }
  return absl::OkStatus();
}

}  // namespace

Status ReadScriptFiles(const std::string& folder, v1::Script* script) {
  script->clear_files();
  if (script->file().empty()) return absl::OkStatus();  // the rules say that it is missing
  RING_ASSIGN_OR_RETURN(const std::string file, Inside(kFile, script->file()));
  const auto opened = data::OpenFolder(folder.empty() ? "." : folder);
  if (!opened.ok()) return Named(kFile, opened.status());
  Sizes sizes;
  Finder finder(*opened, &sizes);
  RING_RETURN_IF_ERROR(finder.AddFile(kFile, file));
  for (const std::string& path : script->include()) {
    RING_RETURN_IF_ERROR(finder.AddIncluded(path));
  }
  if (script->include().empty()) RING_RETURN_IF_ERROR(finder.AddSources(FolderOf(file)));
  RING_RETURN_IF_ERROR(CheckSum(sizes));
  for (auto& [path, bytes] : sizes) {
    auto content = ReadFile(*opened, path);
    if (!content.ok()) return Named(kInclude, content.status());
    bytes = content->size();
    v1::ScriptFile& read = *script->add_files();
    read.set_path(path);
    read.set_content(*std::move(content));
  }
  script->set_file(file);
  return CheckSum(sizes);
}

Status CheckScriptFiles(const v1::Script& script) {
  if (script.files_size() > kMostScriptFiles) {
    return InvalidArgument("script.files: {} files, at most {} are allowed", script.files_size(),
                           kMostScriptFiles);
  }
  uint64_t bytes = 0;
  std::set<std::string> paths;
  for (const v1::ScriptFile& file : script.files()) {
    RING_RETURN_IF_ERROR(CheckFilePath(file.path()));
    if (!paths.empty() && *paths.rbegin() >= file.path()) {
      return InvalidArgument(
          "script.files: {} stands behind {}; expected each path once, ascending", file.path(),
          *paths.rbegin());
    }
    paths.insert(file.path());
    bytes += file.content().size();
  }
  if (bytes > kMostScriptBytes) {
    return InvalidArgument("script.files: {} bytes, at most {} are allowed", bytes,
                           kMostScriptBytes);
  }
  RING_RETURN_IF_ERROR(CheckFolders(paths));
  if (paths.contains(script.file())) return absl::OkStatus();
  return InvalidArgument(
      "script.files: {} is not among the {} files that came with the job; `ringctl submit` reads "
      "them where the job file is",
      OneLine(script.file(), kMaxNameText), script.files_size());
}

std::string ScriptContent(const v1::Script& script) {
  Sha256 hash;
  // Sizes stand before texts, so that no two scripts give the same bytes.
  const auto add = [&hash](const char* kind, const std::string& text) {
    hash.Update(fmt::format("{} {}\n", kind, text.size()));
    hash.Update(text);
  };
  add("script", script.file());
  for (const v1::ScriptFile& file : script.files()) {
    add("path", file.path());
    add("content", file.content());
  }
  for (const std::string& argument : script.args()) add("argument", argument);
  std::map<std::string, std::string> environment;
  for (const v1::ScriptVariable& variable : script.env()) {
    environment[variable.name()] = variable.value();
  }
  for (const auto& [name, value] : environment) {
    add("name", name);
    add("value", value);
  }
  return Hex(hash.Finish());
}

std::string InterpreterOf(const v1::Script& script) {
  return script.python().empty() ? "default" : script.python();
}

void DropScriptContents(v1::Script* script) {
  for (v1::ScriptFile& file : *script->mutable_files()) file.clear_content();
}

}  // namespace ringmaster::job
