// What an op is made of. An op is a struct, a family of them a file: its attributes are members,
// those that a model says described by Fields(), and beside them stand
//
//   static constexpr OpTraits kTraits;
//   static Status InferTypes(const Node&, std::span<const TensorType> inputs,
//   std::vector<TensorType>*); static StatusOr<std::vector<ValueId>> Gradient(const
//   GradientRequest&);  absent: not differentiable static void Reference(const ReferenceCall&);
//
// (those of the elementwise family have formulas instead: unary.h). op_list.h lists them all, and
// op_table.h says what the functions do. Constants; thread-safe. An
// op knows no backend.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/fields.h"
#include "common/graph/tensor_type.h"
#include "common/status.h"

namespace ringmaster::graph {

struct Node;
struct GradientRequest;
struct ReferenceCall;

// Whether output 0 may lie where an input lies.
enum class Storage : uint8_t {
  kOwn,      // never
  kInPlace,  // may overwrite `storage_input` when that dies here
  kAlias,    // is the same bytes as `storage_input`
};

// How the backward pass may compute what a node made once more, with the same bits: every kernel is
// a function of its operands and of what keys its draws.
enum class Recompute : uint8_t {
  kSame,          // the same node again
  kByStatistics,  // batch_norm: with the statistics that it found, as a batch_norm_inference
  kNever,         // a sum over samples, which nothing reads
};

struct OpTraits {
  const char* name;
  const char* keras = nullptr;  // what Keras calls a layer of it; nullptr: nothing
  // Bit i: input i stays float32 under a mixed policy (statistics, scales, biases, the loss).
  uint32_t float32_inputs = 0;
  Storage storage = Storage::kOwn;
  int storage_input = 0;
  uint32_t version = 1;        // of what it means: another version is another op to an old worker
  bool internal = false;       // only passes make it: no model has one
  uint32_t count_outputs = 0;  // bit i: output i is a scalar that counts
  Recompute recompute = Recompute::kSame;
};

using OpInputs = std::span<const TensorType>;
using OpOutputs = std::vector<TensorType>;
using Gradients = StatusOr<std::vector<ValueId>>;  // by input

}  // namespace ringmaster::graph
