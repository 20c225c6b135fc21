// Every command of ringctl: each function adds one, and stands in the file of its name, or where it
// says.
#pragma once

#include <string>
#include <vector>

#include "cli/command_line.h"

namespace ringmaster::cli {

void AddUp(CommandLine& line);
void AddSubmit(CommandLine& line);
// evaluate.cc
void AddEvaluate(CommandLine& line);
void AddPredict(CommandLine& line);

void AddRun(CommandLine& line);
void AddInit(CommandLine& line);
void AddKeys(CommandLine& line);

// jobs.cc
void AddPs(CommandLine& line);
void AddStatus(CommandLine& line);
void AddSpec(CommandLine& line);
void AddWhy(CommandLine& line);
void AddEvents(CommandLine& line);
void AddCancel(CommandLine& line);
void AddRemove(CommandLine& line);
// follow.cc
void AddWatch(CommandLine& line);
void AddWait(CommandLine& line);
void AddLogs(CommandLine& line);
// workers.cc
void AddWorkers(CommandLine& line);
void AddDrain(CommandLine& line);

// access.cc
void AddToken(CommandLine& line);      // create, ls, revoke
void AddIdentity(CommandLine& line);   // ls, revoke
void AddAuthority(CommandLine& line);  // ls, rotate
void AddAudit(CommandLine& line);
void AddWhoAmI(CommandLine& line);

// login.cc
void AddLogin(CommandLine& line);
void AddLogout(CommandLine& line);
void AddContext(CommandLine& line);  // ls, use

void AddMetrics(CommandLine& line);
void AddCheckpoint(CommandLine& line);  // ls, get, verify
void AddDataset(CommandLine& line);     // make, stat, verify
void AddModel(CommandLine& line);       // ls, summary
void AddPlan(CommandLine& line);
void AddTune(CommandLine& line);
void AddBench(CommandLine& line);  // allreduce
void AddCheck(CommandLine& line);
void AddCompletion(CommandLine& line);  // bash

// `ringctl --complete WORD...`: what the completion script asks for at every Tab.
void PrintCompletions(const CommandLine& line, const std::vector<std::string>& words);

}  // namespace ringmaster::cli
