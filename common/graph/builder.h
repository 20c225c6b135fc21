// Builds a model's forward graph, for training, node by node: what layers write into
// (common/graph/layers). Thread-compatible; lives as long as one build. The first error sticks:
// later calls do nothing and Finish returns it. It derives no gradients and knows no precision
// policy (autodiff.h, passes/); for inference a program is made from the graph's message.
#pragma once

#include <any>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/graph/ops/op_table.h"
#include "common/graph/program.h"

namespace ringmaster::graph {

class GraphBuilder {
 public:
  explicit GraphBuilder(int64_t samples);

  // Images (N, height, width, channels) in float32, and their labels (N), which have no limit yet.
  // Call once, first.
  ValueId Input(int64_t height, int64_t width, int64_t channels);
  // A column of so many rows of `shape`, float32, or int32 from least to below limit; before any
  // node. Finish leaves out those that no node reads.
  ValueId Input(const std::string& name, Shape shape, int64_t least, int64_t limit);
  // What a column of whole numbers stays below; of several, the least.
  void SetLimit(const std::string& column, int64_t limit);
  // The value of that column.
  [[nodiscard]] ValueId Column(const std::string& name);

  // A parameter of the next number. LAYER/ROLE: conv1/kernel.
  ValueId Parameter(std::string name, Shape shape, Initializer initializer);
  // The moving statistics of a batch_norm, likewise.
  void Statistic(Normalization normalization);
  // A loss or a measure of that value, the next scalar.
  void Output(graph::Output output, ValueId scalar);

  // Appends a node; what it makes, or kNoValue for each of three after an error.
  std::vector<ValueId> AddAll(const std::string& name, Kind op, std::vector<ValueId> inputs);
  // Likewise; the first thing that it makes.
  ValueId Add(const std::string& name, Kind op, std::vector<ValueId> inputs);
  ValueId Add(const std::string& name, Kind op, ValueId input);
  // A layer (common/graph/layers): its parameters and nodes. What its Build returns.
  template <typename Layer, typename Input>
  requires requires { &Layer::Build; }
  auto Add(const std::string& name, const Layer& layer, Input input) {
    const std::vector<ValueId> inputs = Listed(input);
    ++depth_;
    auto made = layer.Build(*this, name, std::move(input));
    if (--depth_ == 0) written_.push_back({name, layer, inputs, Listed(made)});
    return made;
  }

  // What was asked for: layers, and ops that no layer asked for.
  struct Written {
    std::string name;
    std::any layer;  // the struct; of an op its Kind
    std::vector<ValueId> inputs, made;
  };
  [[nodiscard]] const std::vector<Written>& written() const { return written_; }

  // What is said of a layer beside its options, and holds for what is built until the next one.
  struct Manner {
    bool float32 = false;  // of its nodes
    // In place of a parameter of its own, by role, that one: {kernel, fc1/kernel}.
    std::map<std::string, std::string> shared;
  };
  // INVALID_ARGUMENT: something shared in the manner before it was asked for by no layer.
  Status SetManner(Manner manner);

  // Stands before every name from here on: empty, or `backbone/`.
  void SetPrefix(std::string prefix) { prefix_ = std::move(prefix); }

  // False after an error; checks that x has `rank` dimensions (0: any).
  [[nodiscard]] bool Expect(const std::string& layer, ValueId x, size_t rank = 0);
  void Fail(Status status);
  [[nodiscard]] const Status& status() const { return status_; }
  // (1, 1, 1, 1) of kNoValue.
  [[nodiscard]] const Shape& shape(ValueId x) const;
  [[nodiscard]] const Graph& graph() const { return program_.graph; }
  // nullptr: there is none of that name so far.
  [[nodiscard]] const graph::Parameter* FindParameter(const std::string& name) const;

  // The program without gradients, or the first error.
  [[nodiscard]] StatusOr<Program> Finish();

 private:
  // A parameter that is there, in place of a new one of that name and shape.
  ValueId Share(const std::string& name, const Shape& shape, const std::string& shared);

  static std::vector<ValueId> Listed(ValueId value) { return {value}; }
  static std::vector<ValueId> Listed(const std::vector<ValueId>& values) { return values; }

  Program program_;
  Status status_;
  std::string prefix_;
  Manner manner_;
  std::set<std::string> taken_;  // the roles of it that were asked for
  int depth_ = 0;                // layers that are being built, one within another
  std::vector<Written> written_;
};

}  // namespace ringmaster::graph
