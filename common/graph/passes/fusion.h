// Folds relu nodes into the nodes before them. Thread-safe (free function). It runs after the
// policy; what it fuses is a fixed rule, so that it never depends on a device's memory.
#pragma once

#include "common/graph/program.h"

namespace ringmaster::graph {

// A relu whose input comes from conv2d, dense, batch_norm or batch_norm_inference and has no other
// reader becomes that node's activation. Where the gradient of such a batch_norm alone reads the
// relu_gradient, it takes the mask over (y as its last input); conv2d and dense keep theirs.
void FuseActivations(Program* program);

}  // namespace ringmaster::graph
