// The seam inside the CPU backend: a bind function makes a Kernel for one node, once; the
// executable then gives it addresses, once, and runs it every step. A kernel belongs to one
// executable and is used on that core's thread only. Nothing allocates inside Run.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "common/graph/ops/op_list.h"
#include "common/graph/program.h"
#include "common/status.h"
#include "worker/backend/cpu/device.h"
#include "worker/backend/cpu/weights.h"

namespace ringmaster::cpu {

// What keys the random ops of one run.
struct RunKeys {
  uint64_t seed = 0;
  uint64_t step = 0;
  std::span<const uint64_t> samples;  // dataset index of each row
};

// Addresses, each a multiple of kAlignment; they stay valid for the kernel's life.
struct Operands {
  std::vector<const void*> inputs;
  std::vector<void*> outputs;
  std::byte* workspace = nullptr;

  template <typename T>
  const T* input(size_t i) const {
    return static_cast<const T*>(inputs[i]);
  }
  template <typename T>
  T* output(size_t i) const {
    return static_cast<T*>(outputs[i]);
  }
};

class Kernel {
 public:
  // Elements of output 0 from `first` on, in order, a multiple of exact::kBlockElements but for the
  // last; valid during the call.
  using TakePiece = std::function<void(size_t first, std::span<const float> piece)>;

  virtual ~Kernel() = default;
  // Asked once, before anything else, of what makes a parameter's gradient that no node reads:
  // whether it hands it over in pieces, while they are in the cache, instead of writing output 0,
  // which has no address then.
  [[nodiscard]] virtual bool MakePieces() { return false; }
  // Scratch while it runs; undefined content at the start of each run.
  [[nodiscard]] virtual size_t workspace_bytes() const = 0;
  // Before the first run, and again when operands lie elsewhere.
  virtual Status Attach(const Operands& operands) = 0;
  // `take` is empty where no pieces are made.
  virtual Status Run(const RunKeys& keys, const TakePiece& take) = 0;
};

// What a bind function sees of its node.
struct BindContext {
  const graph::Program& program;
  const graph::Node& node;
  const Device& device;
  CpuWeights& weights;
  int threads = 1;
  // One for each input. A kernel that wants a parameter in a layout of its own puts the copy here;
  // where it stays null, the executable takes canonical layout.
  std::vector<WeightCopy*> copies = std::vector<WeightCopy*>(node.inputs.size());

  const graph::Value& input(size_t i) const { return program.graph.value(node.inputs[i]); }
  const graph::Value& output(size_t i) const { return program.graph.value(node.outputs[i]); }
  template <typename T>
  const T& attributes() const {
    return *node.attributes<T>();
  }
  // Asks for input `i`, a parameter, in the layout of `desc`. UNIMPLEMENTED when it is no
  // parameter.
  Status UseLayout(size_t i, const dnnl::memory::desc& desc);
};

using BindOp = StatusOr<std::unique_ptr<Kernel>>(BindContext& context);
using BindFunction = BindOp*;

// The row of an op in kernel_table.cc; nullptr when the CPU backend lacks the op.
[[nodiscard]] BindFunction FindKernel(const graph::Kind& kind);

// A kernel that is one function of its operands.
class LoopKernel final : public Kernel {
 public:
  using Body = std::function<void(const Operands&, const RunKeys&)>;
  explicit LoopKernel(Body body, size_t workspace_bytes = 0)
      : body_(std::move(body)), workspace_bytes_(workspace_bytes) {}

  [[nodiscard]] size_t workspace_bytes() const override { return workspace_bytes_; }
  Status Attach(const Operands& operands) override {
    operands_ = operands;
    return absl::OkStatus();
  }
  Status Run(const RunKeys& keys, const TakePiece& /*take*/) override {
    body_(operands_, keys);
    return absl::OkStatus();
  }

 private:
  const Body body_;
  const size_t workspace_bytes_;
  Operands operands_;
};

inline std::unique_ptr<Kernel> MakeLoop(LoopKernel::Body body, size_t workspace_bytes = 0) {
  return std::make_unique<LoopKernel>(std::move(body), workspace_bytes);
}

}  // namespace ringmaster::cpu
