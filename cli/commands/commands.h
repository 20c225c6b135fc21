// Every command of ringctl: each function adds one, and stands in the file of its name.
#pragma once

#include "cli/command_line.h"

namespace ringmaster::cli {

void AddUp(CommandLine& line);
void AddSubmit(CommandLine& line);
void AddPs(CommandLine& line);
void AddStatus(CommandLine& line);
void AddWatch(CommandLine& line);
void AddWait(CommandLine& line);
void AddCancel(CommandLine& line);
void AddWorkers(CommandLine& line);
void AddWhy(CommandLine& line);
void AddCheckpoint(CommandLine& line);  // ls, get
void AddDataset(CommandLine& line);     // make cifar10
void AddModel(CommandLine& line);       // ls, summary

}  // namespace ringmaster::cli
