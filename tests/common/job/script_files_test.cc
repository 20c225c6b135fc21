#include "common/job/script_files.h"

#include <catch2/catch.hpp>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/temporary_folder.h"

namespace ringmaster::job {
namespace {

namespace fs = std::filesystem;

// A folder with these files, each of which holds its own path.
class Folder {
 public:
  explicit Folder(const std::vector<std::string>& paths) {
    for (const std::string& path : paths) {
      fs::create_directories(fs::path(folder_ / path).parent_path());
      WriteWhole(folder_ / path, path);
    }
  }
  [[nodiscard]] const TemporaryFolder& operator*() const { return folder_; }

 private:
  TemporaryFolder folder_;
};

v1::Script MakeScript(const std::string& file, const std::vector<std::string>& include = {}) {
  v1::Script script;
  script.set_file(file);
  for (const std::string& path : include) script.add_include(path);
  return script;
}

// The paths of the files that were read, joined by blanks; or the error.
std::string PathsOf(const Folder& folder, v1::Script script) {
  const Status read = ReadScriptFiles((*folder).path(), &script);
  if (!read.ok()) return Message(read);
  CHECK(CheckScriptFiles(script).ok());
  std::string paths;
  for (const v1::ScriptFile& file : script.files()) {
    CHECK(file.content() == file.path());
    paths += (paths.empty() ? "" : " ") + file.path();
  }
  return paths;
}

v1::Script WithFiles(const std::vector<std::pair<std::string, std::string>>& files) {
  v1::Script script = MakeScript("train.py");
  for (const auto& [path, content] : files) {
    v1::ScriptFile& file = *script.add_files();
    file.set_path(path);
    file.set_content(content);
  }
  return script;
}

std::string CheckOf(const std::vector<std::string>& paths) {
  std::vector<std::pair<std::string, std::string>> files;
  files.reserve(paths.size());
  for (const std::string& path : paths) files.emplace_back(path, "");
  return Message(CheckScriptFiles(WithFiles(files)));
}

TEST_CASE("Script files: without include those that end in .py beside the script go with it") {
  const Folder folder({"train.py", "model.py", "notes.txt", ".hidden.py", "lib/deep.py",
                       "other/run.py", "other/tool.py"});
  CHECK(PathsOf(folder, MakeScript("train.py")) == "model.py train.py");
  CHECK(PathsOf(folder, MakeScript("other/run.py")) == "other/run.py other/tool.py");
}

TEST_CASE("Script files: include names files, and folders with all beneath") {
  const Folder folder({"train.py", "model.py", "configs/small.yaml", "configs/deep/er/large.yaml",
                       "configs/.git/index", "configs/__pycache__/a.pyc", "configs/.env"});
  CHECK(PathsOf(folder, MakeScript("train.py", {"configs/"})) ==
        "configs/deep/er/large.yaml configs/small.yaml train.py");
  CHECK(PathsOf(folder, MakeScript("train.py", {"./model.py", "configs/.env", "model.py"})) ==
        "configs/.env model.py train.py");
  CHECK(PathsOf(folder, MakeScript("train.py", {"."})) ==
        "configs/deep/er/large.yaml configs/small.yaml model.py train.py");
}

TEST_CASE("Script files: the script is called as its file is") {
  const Folder folder({"train.py"});
  v1::Script script = MakeScript("./a/../train.py");
  fs::create_directory(*folder / "a");
  REQUIRE(ReadScriptFiles((*folder).path(), &script).ok());
  CHECK(script.file() == "train.py");
}

TEST_CASE("Script files: what is missing, outside or no file is named") {
  const Folder folder({"job/train.py", "outside.py"});
  const auto error = [&](const std::string& file, const std::vector<std::string>& include) {
    v1::Script script = MakeScript(file, include);
    const Status status = ReadScriptFiles(*folder / "job", &script);
    CHECK(status.code() == absl::StatusCode::kInvalidArgument);
    CHECK(script.files().empty());
    return Message(status);
  };
  CHECK(error("tarin.py", {}) == "script.file: tarin.py does not exist");
  CHECK(error("train.py", {"model.py"}) == "script.include: model.py does not exist");
  CHECK_THAT(
      error("../outside.py", {}),
      Catch::StartsWith("script.file: \"../outside.py\" does not lie beneath the job file's"));
  CHECK_THAT(error("train.py", {"/etc/passwd"}), Catch::StartsWith("script.include: \"/etc/passw"));
  CHECK_THAT(error("train.py", {""}), Catch::StartsWith("script.include: \"\" does not lie"));
  fs::create_symlink("../outside.py", *folder / "job/link.py");
  CHECK_THAT(error("link.py", {}), Catch::Contains("link.py leads out of its folder"));
  CHECK_THAT(error("train.py", {}), Catch::Contains("link.py leads out of its folder"));
  fs::create_directory(*folder / "job/folder.py");
  CHECK_THAT(error("folder.py", {}), Catch::Contains("folder.py is not a regular file"));
}

TEST_CASE("Script files: a folder that a link makes endless is refused") {
  const Folder folder({"train.py", "configs/a.yaml"});
  fs::create_symlink("..", *folder / "configs/up");
  CHECK_THAT(PathsOf(folder, MakeScript("train.py", {"configs"})),
             Catch::StartsWith("script.include: "));
}

TEST_CASE("Script files: of too many bytes the largest files are named, and what to do") {
  const Folder folder({"train.py", "small.bin"});
  WriteWhole(*folder / "large.bin", std::string(3 << 20, 'x'));
  WriteWhole(*folder / "larger.bin", std::string(4 << 20, 'x'));
  CHECK(PathsOf(folder, MakeScript("train.py", {"."})) ==
        "script.include: 7.0 MiB of files, at most 2.0 MiB go with a job: larger.bin (4.0 MiB), "
        "large.bin (3.0 MiB), small.bin (9 B); name those that the script needs, and what it reads "
        "as data lies beneath each worker's --data-root");
}

TEST_CASE("Script files: of too many files the fullest folder is named") {
  const Folder folder({"train.py"});
  fs::create_directory(*folder / "many");
  for (int i = 0; i < kMostScriptFiles + 5; ++i) {
    WriteWhole(*folder / ("many/" + std::to_string(i)), "");
  }
  CHECK_THAT(PathsOf(folder, MakeScript("train.py", {"many"})),
             Catch::StartsWith("script.include: more than 1000 files (1000 of them in many)"));
}

TEST_CASE("Script files: those of another process are checked") {
  CHECK(CheckOf({"configs/small.yaml", "model.py", "train.py"}).empty());
  CHECK_THAT(CheckOf({"model.py"}), Catch::StartsWith("script.files: train.py is not among the 1"));
  CHECK_THAT(CheckOf({}), Catch::StartsWith("script.files: train.py is not among the 0 files"));
  for (const char* const path : {"/train.py", "a//train.py", "../train.py", "a/./train.py", "",
                                 "train.py/", "a\nb", "\xff", ".", ".."}) {
    INFO(path);
    CHECK_THAT(CheckOf({path, "train.py"}), Catch::StartsWith("script.files: \""));
  }
  CHECK_THAT(CheckOf({std::string(256, 'a'), "train.py"}), Catch::Contains("255 bytes"));
  CHECK_THAT(CheckOf({"train.py", "model.py"}), Catch::Contains("stands behind train.py"));
  CHECK_THAT(CheckOf({"train.py", "train.py"}), Catch::Contains("stands behind train.py"));
  CHECK(CheckOf({"a", "a.b", "a/b", "train.py"}) ==
        "script.files: a is a file, and the folder of a/b");
  CHECK_THAT(
      Message(CheckScriptFiles(WithFiles({{"train.py", std::string(kMostScriptBytes + 1, 'x')}}))),
      Catch::Contains("2097153 bytes"));
  std::vector<std::string> many;
  for (int i = 0; i <= kMostScriptFiles; ++i) many.push_back(std::to_string(10'000 + i));
  CHECK_THAT(CheckOf(many), Catch::Contains("1001 files"));
}

TEST_CASE("Script content: each part of a script moves it, and nothing else") {
  const v1::Script script = WithFiles({{"model.py", "x"}, {"train.py", "y"}});
  const std::string content = ScriptContent(script);
  CHECK(content.size() == 64);
  const auto changed = [&](const auto& change) {
    v1::Script other = script;
    change(&other);
    return ScriptContent(other) != content;
  };
  CHECK(changed([](v1::Script* s) { s->set_file("model.py"); }));
  CHECK(changed([](v1::Script* s) { s->mutable_files(0)->set_content("z"); }));
  CHECK(changed([](v1::Script* s) { s->mutable_files(0)->set_path("other.py"); }));
  CHECK(changed([](v1::Script* s) { s->add_args("--layers=6"); }));
  CHECK(changed([](v1::Script* s) {
    s->add_env()->set_name("A");
    s->mutable_env(0)->set_value("1");
  }));
  CHECK_FALSE(changed([](v1::Script* s) { s->add_include("model.py"); }));
  CHECK_FALSE(changed([](v1::Script* s) { s->set_python("other"); }));
}

TEST_CASE("Script content: variables count by name, arguments by their order") {
  const auto with = [](const std::vector<std::string>& args,
                       const std::vector<std::pair<std::string, std::string>>& env) {
    v1::Script script = MakeScript("train.py");
    for (const std::string& argument : args) script.add_args(argument);
    for (const auto& [name, value] : env) {
      v1::ScriptVariable& variable = *script.add_env();
      variable.set_name(name);
      variable.set_value(value);
    }
    return ScriptContent(script);
  };
  CHECK(with({}, {{"A", "1"}, {"B", "2"}}) == with({}, {{"B", "2"}, {"A", "1"}}));
  CHECK(with({"a", "b"}, {}) != with({"b", "a"}, {}));
  CHECK(with({"a", "b"}, {}) != with({"ab"}, {}));
  CHECK(with({"a b"}, {}) != with({"a", "b"}, {}));
}

TEST_CASE("Script files: without contents the paths stay") {
  v1::Script script = WithFiles({{"model.py", "x"}, {"train.py", "y"}});
  DropScriptContents(&script);
  CHECK(script.files_size() == 2);
  CHECK(script.files(1).path() == "train.py");
  CHECK(script.files(1).content().empty());
}

}  // namespace
}  // namespace ringmaster::job
