// What may stand at the cursor of a half-written command line. It knows the commands from the
// command line itself, so that nothing has to be kept in step. Main thread only.
#pragma once

#include <CLI/App.hpp>
#include <functional>
#include <string>
#include <vector>

namespace ringmaster::cli {

// Asked only when such a name may stand there.
struct CompletionSources {
  std::function<std::vector<std::string>()> jobs;
  std::function<std::vector<std::string>()> workers;
  std::function<std::vector<std::string>()> contexts;
};

// Every word that may replace the last of `words`, which stand behind `ringctl`; the last is empty
// when none was begun. `:files` or `:folders` alone: a name of the file system.
[[nodiscard]] std::vector<std::string> Complete(const CLI::App& root,
                                                const std::vector<std::string>& words,
                                                const CompletionSources& sources);

// Value of `--name` before the last word; empty when it is not there.
[[nodiscard]] std::string ValueOf(const std::string& name, const std::vector<std::string>& words);

}  // namespace ringmaster::cli
