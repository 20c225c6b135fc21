#include "cli/ringctl.h"

#include <cstdio>
#include <cstring>

#include "cli/command_line.h"
#include "cli/commands/commands.h"
#include "cli/complaint.h"

namespace ringmaster::cli {
namespace {

StatusOr<ExitCode> ParseAndRun(CommandLine& line, int argc, char** argv) {
  const StatusOr<Action> action = line.Parse(argc, argv);
  line.BlankSecrets(argc, argv);
  if (!action.ok()) return action.status();
  return (*action)();
}

}  // namespace

int Run(int argc, char** argv) {
  CommandLine line;
  AddUp(line);
  AddInit(line);
  AddKeys(line);
  AddSubmit(line);
  AddEvaluate(line);
  AddPredict(line);
  AddRun(line);
  AddPs(line);
  AddStatus(line);
  AddSpec(line);
  AddWatch(line);
  AddWait(line);
  AddWhy(line);
  AddLogs(line);
  AddMetrics(line);
  AddEvents(line);
  AddCancel(line);
  AddRemove(line);
  AddWorkers(line);
  AddDrain(line);
  AddCheckpoint(line);
  AddDataset(line);
  AddModel(line);
  AddPlan(line);
  AddTune(line);
  AddBench(line);
  AddCheck(line);
  AddLogin(line);
  AddLogout(line);
  AddContext(line);
  AddToken(line);
  AddIdentity(line);
  AddAuthority(line);
  AddAudit(line);
  AddWhoAmI(line);
  AddCompletion(line);
  if (argc >= 2 && std::strcmp(argv[1], "--complete") == 0) {
    PrintCompletions(line, std::vector<std::string>(argv + 2, argv + argc));
    return 0;
  }
  const StatusOr<ExitCode> code = ParseAndRun(line, argc, argv);
  if (std::ferror(stdout) != 0) {
    Say("cannot write all of it to stdout; make room where that goes, and try again");
    return static_cast<int>(ExitCode::kOther);
  }
  if (code.ok()) return static_cast<int>(*code);
  Say(Message(code.status()));
  return static_cast<int>(ExitCodeOf(code.status()));
}

}  // namespace ringmaster::cli
