// ringctl completion bash: the script; and `ringctl --complete WORD...`, which the script asks.
#include <absl/strings/str_replace.h>
#include <absl/strings/str_split.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <functional>

#include "cli/client.h"
#include "cli/command_line.h"
#include "cli/commands/commands.h"
#include "cli/context.h"
#include "common/job/keys.h"

namespace ringmaster::cli {
namespace {

// A key was pressed: a coordinator that does not answer at once is not waited for.
constexpr std::chrono::milliseconds kCompletionPatience(500);

constexpr char kBash[] =
    R"script(# Completion of ringctl for bash: source <(ringctl completion bash)
_ringctl() {
  local current="${COMP_WORDS[COMP_CWORD]}" word
  [[ "$current" == "=" ]] && current=""
  COMPREPLY=()
  while IFS= read -r word; do
    case "$word" in
      :files)
        compopt -o filenames 2>/dev/null
        mapfile -t COMPREPLY < <(compgen -f -- "$current")
        ;;
      :folders)
        compopt -o filenames 2>/dev/null
        mapfile -t COMPREPLY < <(compgen -d -- "$current")
        ;;
      *) COMPREPLY+=("$word") ;;
    esac
  done < <("${COMP_WORDS[0]/#\~/$HOME}" --complete "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
  if [[ "${COMPREPLY[0]}" == *= ]]; then compopt -o nospace 2>/dev/null; fi
}
complete -F _ringctl ringctl
)script";

// What may stand at the cursor of a half-written command line. It knows the commands from the
// command line itself, so that nothing has to be kept in step.

// Asked only when such a name may stand there.
struct CompletionSources {
  std::function<std::vector<std::string>()> jobs;
  std::function<std::vector<std::string>()> workers;
  std::function<std::vector<std::string>()> contexts;
};

// Bash cuts `--output=json` and `batch=64` into three words: the first becomes two again, the
// second one.
std::vector<std::string> WithoutEquals(const std::vector<std::string>& words) {
  std::vector<std::string> kept;
  for (size_t i = 0; i < words.size(); ++i) {
    const bool last = i + 1 == words.size();
    if (words[i] != "=" || i == 0) {
      kept.push_back(words[i]);
    } else if (words[i - 1].rfind("--", 0) != 0) {
      kept.back() += "=";
      if (!last) kept.back() += words[++i];
    } else if (last) {
      kept.emplace_back();
    }
  }
  return kept;
}

const CLI::Option* FindOption(const CLI::App& command, const std::string& word) {
  if (word.size() < 2 || word[0] != '-') return nullptr;
  for (const CLI::Option* option : command.get_options()) {
    if (option->check_name(word)) return option;
  }
  return nullptr;
}

bool TakesValue(const CLI::Option& option) { return option.get_items_expected_max() > 0; }

std::vector<const CLI::Option*> Positionals(const CLI::App& command) {
  std::vector<const CLI::Option*> options;
  for (const CLI::Option* option : command.get_options()) {
    if (option->get_positional()) options.push_back(option);
  }
  return options;
}

std::vector<std::string> KeyPaths() {
  std::vector<std::string> paths;
  for (const job::Key& key : job::Keys()) paths.push_back(key.path);
  return paths;
}

// Keys of a job file, `batch=`; when the key is there with its `=`, each value that it may have.
std::vector<std::string> Overrides(const std::string& begun) {
  std::vector<std::string> words;
  const std::string named = begun.substr(0, begun.find('=') + 1);  // empty without a `=`
  for (const job::Key& key : job::Keys()) {
    const std::string word = absl::StrReplaceAll(key.path, {{".N.", ".0."}}) + '=';
    if (named.empty() && !key.example.empty()) words.push_back(word);
    if (named != word) continue;
    for (const std::string& choice : key.choices) words.push_back(word + choice);
  }
  return words;
}

// The name of a positional and the type of an option say what stands there.
std::vector<std::string> ValuesOf(const CLI::Option& option, const std::string& begun,
                                  const CompletionSources& sources) {
  const std::string type = option.get_type_name();
  const std::string kind = option.get_positional() ? option.get_name() : type;
  if (type.find('|') != std::string::npos) return absl::StrSplit(type, '|');
  if (kind == "KEY=VALUE") return Overrides(begun);
  if (kind == "KEY" && option.get_positional()) return KeyPaths();
  if (kind == "JOB") return sources.jobs();
  if (kind == "WORKER") return sources.workers();
  if (kind == "CONTEXT") return sources.contexts();
  if (kind == "FILE" || kind == "PATH") return {":files"};
  if (kind == "DIR" || option.check_lname("data-root") || option.check_lname("data-dir") ||
      option.check_lname("state-dir")) {
    return {":folders"};
  }
  return {};
}

const CLI::App* FindCommand(const CLI::App& group, const std::string& word) {
  for (const CLI::App* command : group.get_subcommands({})) {
    if (command->get_name() == word) return command;
  }
  return nullptr;
}

// Where the last word stands.
struct Place {
  const CLI::App* command;
  size_t positional = 0;                // how many came before
  const CLI::Option* option = nullptr;  // whose value it is
};

Place Walk(const CLI::App& root, const std::vector<std::string>& words) {
  Place place{&root};
  for (size_t i = 0; i + 1 < words.size(); ++i) {
    const std::string& word = words[i];
    if (place.option != nullptr) {
      place.option = nullptr;
    } else if (const CLI::Option* const option = FindOption(*place.command, word)) {
      if (TakesValue(*option)) place.option = option;
    } else if (const CLI::App* const command = FindCommand(*place.command, word)) {
      place.command = command;
    } else if (word.rfind('-', 0) != 0 || word == "-") {
      ++place.positional;
    }
  }
  return place;
}

std::vector<std::string> Candidates(const Place& place, const std::string& begun,
                                    const CompletionSources& sources) {
  if (place.option != nullptr) return ValuesOf(*place.option, begun, sources);
  if (begun.rfind('-', 0) == 0) return LongOptions(*place.command);
  std::vector<std::string> names;
  for (const CLI::App* command : place.command->get_subcommands({})) {
    names.push_back(command->get_name());
  }
  if (!names.empty()) return names;
  const std::vector<const CLI::Option*> positionals = Positionals(*place.command);
  if (place.positional < positionals.size()) {
    return ValuesOf(*positionals[place.positional], begun, sources);
  }
  if (!positionals.empty() && positionals.back()->get_items_expected_max() > 1) {
    return ValuesOf(*positionals.back(), begun, sources);  // JOB...
  }
  return LongOptions(*place.command);
}

// Every word that may replace the last of `words`, which stand behind `ringctl`; the last is empty
// when none was begun. `:files` or `:folders` alone: a name of the file system.
std::vector<std::string> Complete(const CLI::App& root, const std::vector<std::string>& words,
                                  const CompletionSources& sources) {
  std::vector<std::string> all = WithoutEquals(words);
  if (all.empty()) all.emplace_back();
  const std::string& begun = all.back();
  std::vector<std::string> fitting;
  // Where bash cut a word at its `=`, it replaces what stands behind that.
  const bool cut = words.size() > 1 && (words.back() == "=" || words[words.size() - 2] == "=");
  const size_t kept = cut ? begun.find('=') + 1 : 0;
  for (const std::string& word : Candidates(Walk(root, all), begun, sources)) {
    if (word[0] == ':' || word.rfind(begun, 0) == 0) fitting.push_back(word.substr(kept));
  }
  return fitting;
}

// Value of `--name` before the last word; empty when it is not there.
std::string OptionValue(const std::string& name, const std::vector<std::string>& words) {
  const std::vector<std::string> all = WithoutEquals(words);
  for (size_t i = 0; i + 2 < all.size(); ++i) {
    if (all[i] == name) return all[i + 1];
  }
  return "";
}

std::vector<std::string> Jobs(const std::string& coordinator) {
  std::vector<std::string> ids;
  auto client = Client::Create(coordinator, kCompletionPatience);
  if (!client.ok()) return ids;
  const auto jobs = client->List();
  if (!jobs.ok()) return ids;
  for (const v1::JobStatus& job : jobs->jobs()) ids.push_back(job.job_id());
  if (!ids.empty()) ids.emplace_back("last");
  return ids;
}

std::vector<std::string> Workers(const std::string& coordinator) {
  std::vector<std::string> names;
  auto client = Client::Create(coordinator, kCompletionPatience);
  if (!client.ok()) return names;
  const auto workers = client->ListWorkers();
  if (!workers.ok()) return names;
  for (const v1::WorkerStatus& worker : workers->workers()) names.push_back(worker.name());
  return names;
}

std::vector<std::string> ContextNames() {
  const auto contexts = Contexts::OfUser();
  const auto names = contexts.ok() ? contexts->Names() : contexts.status();
  return names.ok() ? *names : std::vector<std::string>();
}

}  // namespace

void PrintCompletions(const CommandLine& line, const std::vector<std::string>& words) {
  const std::string named = OptionValue("--coordinator", words);
  const std::string& coordinator = named.empty() ? line.common().coordinator : named;
  const CompletionSources sources{[&] { return Jobs(coordinator); },
                                  [&] { return Workers(coordinator); }, ContextNames};
  for (const std::string& word : Complete(line.root(), words, sources)) Print(word + "\n");
}

void AddCompletion(CommandLine& line) {
  CLI::App* const group = line.AddGroup("completion", "completion for shells");
  line.Add(group, "bash", "print the completion script for bash",
           Examples("source <(ringctl completion bash)",
                    "ringctl completion bash > ~/.local/share/bash-completion/completions/ringctl"),
           []() -> StatusOr<ExitCode> {
             Print(kBash);
             return ExitCode::kOk;
           });
}

}  // namespace ringmaster::cli
