#include "cli/complaint.h"

#include <vector>

#include <absl/strings/str_join.h>
#include <CLI/CLI.hpp>

#include "cli/command_line.h"
#include "common/text.h"

namespace ringmaster::cli {

ExitCode ExitCodeOf(const Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return ExitCode::kOk;
    case absl::StatusCode::kInvalidArgument:
      return ExitCode::kUsage;
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kDeadlineExceeded:
      return ExitCode::kUnreachable;
    default:
      return ExitCode::kOther;
  }
}

ExitCode ExitCodeOf(v1::JobState state) {
  switch (state) {
    case v1::JOB_STATE_SUCCEEDED:
      return ExitCode::kOk;
    case v1::JOB_STATE_FAILED:
      return ExitCode::kJobFailed;
    case v1::JOB_STATE_CANCELLED:
      return ExitCode::kJobCancelled;
    default:
      return ExitCode::kOther;
  }
}

bool IsFinal(v1::JobState state) {
  return state == v1::JOB_STATE_SUCCEEDED || state == v1::JOB_STATE_FAILED ||
         state == v1::JOB_STATE_CANCELLED;
}

namespace {

// The innermost command that was named, and the names before it: `ringctl checkpoint`.
struct Named {
  const CLI::App* command;
  std::string before;
  [[nodiscard]] std::string whole() const {
    return before.empty() ? command->get_name() : before + " " + command->get_name();
  }
};

Named Innermost(const CLI::App& root) {
  Named named{&root, ""};
  for (auto parsed = root.get_subcommands(); !parsed.empty();
       parsed = named.command->get_subcommands()) {
    named = {parsed.front(), named.whole()};
  }
  return named;
}

std::vector<std::string> CommandsOf(const CLI::App& group) {
  std::vector<std::string> names;
  for (const CLI::App* command : group.get_subcommands({})) names.push_back(command->get_name());
  return names;
}

std::string Unknown(const std::string& kind, const std::string& word,
                    const std::vector<std::string>& known) {
  const std::string guess = Nearest(word, known);
  if (!guess.empty()) return fmt::format("there is no {} {}; did you mean {}?", kind, word, guess);
  return fmt::format("there is no {} {}; there {} {}", kind, word, known.size() == 1 ? "is" : "are",
                     absl::StrJoin(known, ", "));
}

std::string Describe(const Named& named, const std::string& error) {
  const std::vector<std::string> words = named.command->remaining(true);
  const std::vector<std::string> commands = CommandsOf(*named.command);
  if (words.empty() && !commands.empty()) {
    return fmt::format("name a command: {}", absl::StrJoin(commands, ", "));
  }
  if (words.empty() || words.front().empty()) return error;
  const std::string word = words.front().substr(0, words.front().find('='));
  if (word.size() > 2 && word.compare(0, 2, "--") == 0) {
    return Unknown("option", word, LongOptions(*named.command));
  }
  return commands.empty() || word[0] == '-' ? error : Unknown("command", word, commands);
}

}  // namespace

Status Complaint(const CLI::App& root, const std::string& error) {
  const Named named = Innermost(root);
  return InvalidArgument("{}; see `{} --help`", Describe(named, error), named.whole());
}

std::string Help(const CLI::App& root) {
  const Named named = Innermost(root);
  std::string text = named.command->help(named.before);
  if (!text.ends_with('\n')) text += '\n';
  return text;
}

}  // namespace ringmaster::cli
