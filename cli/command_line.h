// The command line: the options that every command has, the commands, which one was chosen, and
// how one that takes several jobs asks about each. Main thread only.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include <CLI/App.hpp>

#include "cli/client.h"
#include "cli/complaint.h"
#include "cli/show/json.h"
#include "cli/show/terminal.h"
#include "common/status.h"

namespace ringmaster::cli {

enum class Output { kTable, kJson, kYaml, kCsv };

// Options of every command; --coordinator of those that ask one. Filled when the command line was
// parsed.
struct Common {
  std::string coordinator;  // when not given: DefaultCoordinator (cli/context.h)
  Output output = Output::kTable;
  [[nodiscard]] bool json() const { return output == Output::kJson; }
};

// What a command does: data on stdout, messages on stderr, the exit code or an error to print.
using Action = std::function<StatusOr<ExitCode>()>;

// Whole command lines that stand under a command's help, the commonest first; no command goes
// without.
struct Examples {
  explicit Examples(std::string first, std::string second = "", std::string third = "");
  std::vector<std::string> lines;
};

class CommandLine {
 public:
  CommandLine();
  CommandLine(const CommandLine&) = delete;
  CommandLine& operator=(const CommandLine&) = delete;

  // A command that runs `action` when it is chosen; the caller adds its own options.
  CLI::App* Add(const std::string& name, const std::string& description, const Examples& examples,
                Action action);
  CLI::App* Add(CLI::App* group, const std::string& name, const std::string& description,
                const Examples& examples, Action action);
  // A command that only groups others: `checkpoint`.
  CLI::App* AddGroup(const std::string& name, const std::string& description);

  // `-o yaml` is also an output of that command.
  void AllowYaml(CLI::App* command);
  void AllowCsv(CLI::App* command);

  // It makes a coordinator of its own: one that is named would be passed over without a word.
  void RefuseCoordinator(CLI::App* command);

  // What stands behind `--` is the command's, word by word.
  void AddRest(CLI::App* command, std::vector<std::string>* words);

  // What stands there is nothing that others of this host may read.
  void KeepSecret(CLI::Option* option);

  // The action of the chosen command. INVALID_ARGUMENT says what is wrong with the command line.
  // A request for help is an action too.
  StatusOr<Action> Parse(int argc, const char* const* argv);

  // Behind Parse, whatever came of it: `x` in the place of every secret, also for ps(1).
  void BlankSecrets(int argc, char** argv) const;

  // Stays at its place; commands keep a reference.
  [[nodiscard]] const Common& common() const { return common_; }
  // Every command with its options: what a completion is made of.
  [[nodiscard]] const CLI::App& root() const { return app_; }

 private:
  // How many words there are before the `--` of a command that takes the rest; that has it then.
  int TakeRest(int argc, const char* const* argv);
  void AddCommonOptions(CLI::App* app);
  void AddOutput(CLI::App* app, const std::vector<std::string>& formats, const std::string& help);

  Common common_;
  CLI::App app_;
  Action chosen_;
  std::vector<const CLI::Option*> secrets_;
  struct Rest {
    const CLI::App* command;
    std::vector<std::string>* words;
  };
  std::vector<Rest> rests_;
};

// The argument JOB: an id, or `last`; Client::IdOf reads it.
CLI::Option* AddJob(CLI::App* command, std::string* job);
// One or more of them: JOB...
CLI::Option* AddJobs(CLI::App* command, std::vector<std::string>* jobs);

// `option` takes one of `values` and nothing else; an error names the one that was probably
// meant.
CLI::Option* OneOf(CLI::Option* option, const std::vector<std::string>& values);

// `--name` of each option that `command` takes.
[[nodiscard]] std::vector<std::string> LongOptions(const CLI::App& command);

// To stdout, and out of this process: a reader that waits for a line gets it.
void Print(const std::string& text);
// One line on stderr.
void Say(const std::string& message);

// Commands that take several jobs: each is asked about, in the order of the command line. Main
// thread only.

// What a command says of one job.
struct JobAnswer {
  Json json;
  std::string text;  // with -o table; may be empty
};
using AskJob = std::function<StatusOr<JobAnswer>(Client& client, const std::string& job_id)>;

// Prints the answers: with -o json an object for one job, a list for several; else their texts
// with an empty line between. A job that cannot be answered is named on stderr, and the others
// still are; the exit code is then the worst, the highest. Only a coordinator that is away ends
// it.
[[nodiscard]] StatusOr<ExitCode> AskEach(const Common& common, const std::vector<std::string>& jobs,
                                         const AskJob& ask);

}  // namespace ringmaster::cli
