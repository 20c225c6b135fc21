#include "tests/coordinator/logic/scenario_given.h"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>

#include "tests/coordinator/logic/scenario_command.h"

namespace ringmaster::coordinator {
namespace {

bool IsOf(const std::string& word, std::initializer_list<const char*> keys) {
  const std::string key = word.substr(0, word.find('='));
  return std::any_of(keys.begin(), keys.end(), [&](const char* each) { return key == each; });
}

std::vector<std::string> ExpandRunning(const std::string& line,
                                       const std::set<std::string>& attached) {
  const Command command = ParseCommand(line);  // its verb is `running`
  const std::string job = command.subject;
  const std::vector<std::string> members = NamesIn(command.options.at("on"));
  std::vector<std::string> comers;
  for (const std::string& name : members) {
    if (!attached.contains(name)) comers.push_back(name);
  }
  std::string attach = "attach " + List(comers);
  std::string submit =
      "submit " + command.Text("key", fmt::format("k{}", std::stoull(job.substr(1))));
  std::string of_job = job == "j0001" ? "" : " job=" + job;
  if (command.options.contains("generation")) {
    of_job += " generation=" + command.Text("generation", "");
  }
  const std::string all = List(members);
  const std::vector<std::string> holders(
      members.begin(), members.begin() + std::min<ptrdiff_t>(2, std::ssize(members)));
  std::vector<std::string> after;
  std::istringstream words(line);
  for (std::string word; words >> word;) {
    const std::string value = word.substr(word.find('=') + 1);
    if (word == "running" || word == job || IsOf(word, {"on", "key", "generation"})) continue;
    if (IsOf(word, {"joined"})) {
      after.push_back("joined " + all + of_job);
    } else if (IsOf(word, {"step"})) {
      after.push_back(fmt::format("progress {}{} applied={}", all, of_job, value));
    } else if (IsOf(word, {"checkpoint"})) {
      for (const std::string& step : NamesIn(value)) {
        after.push_back(
            fmt::format("checkpoint {}{} step={} by={}", members[0], of_job, step, List(holders)));
      }
    } else {
      (IsOf(word, {"cores", "class", "python"}) ? attach : submit) += " " + word;
    }
  }
  std::vector<std::string> lines;
  if (!comers.empty()) lines.push_back(attach);
  lines.push_back(submit);
  lines.push_back(fmt::format("start {} on={}{}", job, all, of_job));
  lines.insert(lines.end(), after.begin(), after.end());
  return lines;
}

}  // namespace

std::vector<std::string> Expand(const std::string& given, const std::set<std::string>& attached) {
  if (given.rfind("running ", 0) == 0) return ExpandRunning(given, attached);
  return {given};
}

}  // namespace ringmaster::coordinator
