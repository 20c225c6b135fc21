// ringctl completion bash: the script; and `ringctl --complete WORD...`, which the script asks.
#include "cli/completion.h"

#include "cli/client.h"
#include "cli/commands/commands.h"
#include "cli/context.h"

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
  const std::string named = ValueOf("--coordinator", words);
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
