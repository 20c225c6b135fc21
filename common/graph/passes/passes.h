// What is done to a program once it is made, in this order; each in the file that is named.
// Thread-safe (free functions).
#pragma once

#include "common/graph/program.h"

namespace ringmaster::graph {

// policy.cc. The precision policy: which values are kept in a 16-bit compute type. It runs after
// autodiff and before fusion.

// Every node reads and makes `compute`, but for the operands that its row of the op table keeps in
// float32 (biases, scales, statistics, the loss), with `cast` nodes where the two meet. A parameter
// that is read in `compute` alone is fed in it; gradients of parameters stay float32. kFloat32
// changes nothing.
[[nodiscard]] Status ApplyPolicy(Program* program, DType compute);

// fusion.cc. Folds adds and activations into the nodes before them. It runs after the policy; what
// it fuses is a fixed rule, so that it never depends on a device's memory.

// An add of two values of one shape, of which one comes from a batch_norm or batch_norm_inference
// with gamma and beta and has no other reader, becomes that node: the other value is its residual.
// Of two such nodes the later one takes it. It runs in the place of the add.
//
// A relu whose input comes from conv2d, dense, batch_norm or batch_norm_inference and has no other
// reader becomes that node's activation. Where the gradient of such a batch_norm alone reads the
// relu_gradient, it takes the mask over, which it computes from beta; conv2d and dense keep theirs.
// That of one with a residual takes the relu_gradient over whoever reads it, which is its
// residual's gradient then, and an add of two before it that nobody else reads; it runs in its
// place.
//
// A relu6 becomes the activation of a batch_norm or batch_norm_inference without residual in the
// same way, and its gradient the mask of the batch_norm's. So does a swish; but one that has a
// gradient, which reads the swish's input, too, does so together with that or not at all, and so
// stays behind a frozen batch_norm, which is a batch_norm_inference.
void FuseActivations(Program* program);

// rewrite.cc. Removes the nodes whose results nobody needs.

// Keeps what the program's results (Results in program.h) depend on, and every fed value;
// renumbers values and nodes, their order stays.
void RemoveDeadNodes(Program* program);

// rematerialize.cc. Less memory for more operations, and the same bits. It runs last.

// Chooses forward values that only the backward pass still reads while most is live, and has nodes
// that compute them again directly before their first reader there. A function of the program,
// which stays as it is where that would save less than a twentieth of the peak.
void Rematerialize(Program* program);

}  // namespace ringmaster::graph
