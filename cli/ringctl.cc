#include "cli/ringctl.h"

#include "cli/command_line.h"
#include "cli/commands/commands.h"
#include "cli/exit_code.h"

namespace ringmaster::cli {
namespace {

StatusOr<ExitCode> ParseAndRun(CommandLine& line, int argc, const char* const* argv) {
  RING_ASSIGN_OR_RETURN(const Action action, line.Parse(argc, argv));
  return action();
}

}  // namespace

int Run(int argc, const char* const* argv) {
  CommandLine line;
  AddUp(line);
  AddSubmit(line);
  AddPs(line);
  AddStatus(line);
  AddWatch(line);
  AddWait(line);
  AddCancel(line);
  AddWorkers(line);
  AddWhy(line);
  AddCheckpoint(line);
  AddDataset(line);
  AddModel(line);
  const StatusOr<ExitCode> code = ParseAndRun(line, argc, argv);
  if (code.ok()) return static_cast<int>(*code);
  Say(Message(code.status()));
  return static_cast<int>(ExitCodeOf(code.status()));
}

}  // namespace ringmaster::cli
