// Removes the nodes whose results nobody needs. Thread-safe (free function).
#pragma once

#include "common/graph/program.h"

namespace ringmaster::graph {

// Keeps what the program's results (Results in program.h) depend on, and every fed value;
// renumbers values and nodes, their order stays.
void RemoveDeadNodes(Program* program);

}  // namespace ringmaster::graph
