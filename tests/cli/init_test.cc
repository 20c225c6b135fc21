// The job file that `ringctl init` writes.
#include <algorithm>
#include <catch2/catch.hpp>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

#include "common/job/job_file.h"
#include "common/job/keys.h"
#include "common/job/resolve.h"
#include "tests/cli/run_ringctl.h"

namespace ringmaster::cli {
namespace {

Status Check(const std::string& text) {
  RING_ASSIGN_OR_RETURN(const v1::JobSpec spec, job::ParseJobFile("job.yaml", text, {}));
  return job::Validate(spec);
}

const std::string& JobTemplate() {
  static const std::string text = [] {
    const TemporaryFolder folder;
    return RunToFiles(folder.path(), {"ringctl", "init", "-"}).out;
  }();
  return text;
}

std::vector<std::string> TemplateLines() {
  std::vector<std::string> lines;
  std::istringstream stream(JobTemplate());
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

// How the second line of a comment begins.
const std::string kContinuation(27, ' ');  // NOLINT: of a test

// The key of a line, `# or steps: 1000` too; empty where there is none.
std::string KeyOf(const std::string& line) {
  static const std::regex key("^[ #]{0,20}(or )?(- )?([a-z_0-9]+|NAME):( .*)?$");
  std::smatch match;
  return std::regex_match(line, match, key) ? match[3].str() : "";
}

size_t IndentOf(const std::string& line) { return line.find_first_not_of(' '); }

// `line` without the sign of a comment behind its indent; other lines as they are.
std::string Uncommented(const std::string& line, size_t indent) {
  if (line.substr(std::min(indent, line.size()), 2) != "# ") return line;
  return std::string(indent, ' ') + line.substr(indent + 2);
}

bool TemplateHas(const std::string& key) {
  const std::vector<std::string> known = {"name", "batch_norm", "dropout", "file"};
  return std::ranges::find(known, key) != known.end();
}

// The template with the commented key of line `at` in force, and with what stands below it.
std::string With(std::vector<std::string> lines, size_t at) {
  const size_t indent = IndentOf(lines[at]);
  const bool other = lines[at].substr(indent + 2, 3) == "or ";
  if (other) {  // the key above goes, with all that stands in it
    lines[at].erase(indent + 2, 3);
    size_t before = at;
    do --before;
    while (IndentOf(lines[before]) != indent || lines[before][indent] == '#');
    for (size_t i = before; i < at; ++i) lines[i].clear();
  }
  lines[at] = Uncommented(lines[at], indent);
  const std::string below = std::string(indent, ' ') + "#   ";
  for (size_t i = at + 1; i < lines.size(); ++i) {
    if (lines[i].starts_with(kContinuation)) continue;
    if (!lines[i].starts_with(below)) break;
    lines[i] = Uncommented(lines[i], indent);
    // Inside a mapping another choice stays one.
    const size_t word = IndentOf(lines[i]);
    if (lines[i].substr(word, 3) == "or ") lines[i].insert(word, "# ");
  }
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  return text;
}

TEST_CASE("Init: what it writes is a job as it stands, in lines of at most 100 columns") {
  const Status status = Check(JobTemplate());
  INFO(JobTemplate());
  INFO(status);
  CHECK(status.ok());
  for (const std::string& line : TemplateLines()) {
    INFO(line);
    CHECK(line.size() <= 101);
  }
}

TEST_CASE("Init: every key stands there once, with its range and what it is for") {
  std::vector<std::string> wanted, found;
  for (const job::Key& key : job::Keys()) {
    // Options are those of the model that it names; of one that is no zoo's it has the file alone.
    if (key.path.starts_with("model.") && !TemplateHas(key.path.substr(6))) continue;
    wanted.push_back(key.path.substr(key.path.rfind('.') + 1));
    INFO(key.path);
    CHECK_THAT(JobTemplate(), Catch::Contains(key.help.substr(0, 30)));
  }
  const std::vector<std::string> lines = TemplateLines();
  for (size_t i = 4; i < lines.size(); ++i) {
    if (const std::string key = KeyOf(lines[i]); !key.empty()) found.push_back(key);
  }
  std::sort(wanted.begin(), wanted.end());
  std::sort(found.begin(), found.end());
  CHECK(found == wanted);
  const std::string joined = std::regex_replace(JobTemplate(), std::regex("\n +#  "), "");
  CHECK_THAT(joined, Catch::Contains("# shards: 8 "));
  CHECK_THAT(joined, Catch::Contains("(1 to 4096); default: min(8, batch)"));
}

TEST_CASE("Init: each key in a comment is right where it stands") {
  const std::vector<std::string> lines = TemplateLines();
  int tried = 0;
  for (size_t i = 4; i < lines.size(); ++i) {
    const size_t indent = std::min(IndentOf(lines[i]), lines[i].size());
    if (KeyOf(lines[i]).empty() || lines[i].substr(indent, 2) != "# " || indent > 8) continue;
    if (lines[i].substr(indent, 3) == "#  ") continue;  // inside a commented mapping
    const std::string text = With(lines, i);
    const auto net = [](const std::string&) -> StatusOr<std::string> {
      return "layers: [flatten, {dense: classes}]";
    };
    const auto spec = job::ParseJobFile("job.yaml", text, {}, net);
    INFO(lines[i]);
    INFO(text);
    INFO(spec.status());
    CHECK(spec.ok());
    ++tried;
  }
  CHECK(tried >= 20);
}

}  // namespace
}  // namespace ringmaster::cli
