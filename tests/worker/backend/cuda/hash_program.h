// A program whose kernels hash what they read, wherever that lies: a wrong address, byte or order
// shows in its results. What these are is computed here with memory of its own for each value.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/exact/block_layout.h"
#include "common/graph/augment/augment.h"
#include "common/graph/ops/op_table.h"
#include "worker/backend/backend.h"
#include "worker/backend/cuda/cuda_executable.h"
#include "worker/backend/cuda/kernel.h"
#include "worker/backend/cuda/state/weights.h"
#include "worker/backend/refresh_input.h"

namespace ringmaster::testing {

using Bytes = std::vector<std::byte>;

// `value` as a graph's float type holds it: what a backend's cast makes of it.
[[nodiscard]] Bytes Cast(float value, graph::DType type);

// What tests tell kernels, and kernels tests.
struct Switches {
  size_t ran = 0;
  std::string fails;      // the launch of this node
  std::string allocates;  // this node's launch does what a capture forbids
};

class HashKernel final : public cuda::Kernel {
 public:
  HashKernel(const graph::Program& program, size_t node, Switches& switches)
      : program_(program), node_(node), switches_(switches) {}

  [[nodiscard]] size_t workspace_bytes() const override { return 100 * (node_ % 3); }
  Status Attach(const cuda::Operands& operands) override;
  Status Launch(cudaStream_t stream) override;

 private:
  const graph::Program& program_;
  const size_t node_;
  Switches& switches_;
  cuda::Operands operands_;
};

// A core without libraries.
struct HashBench {
  HashBench();
  [[nodiscard]] std::unique_ptr<cuda::CudaExecutable> Bind(
      const graph::Program& program, cuda::CudaWeights& weights, cuda::Replay replay,
      const graph::Augmenter* augmenter = nullptr);

  cuda::Lane lane;
  Switches switches;
};

// Master arena and moving statistics, in the order of backward.
struct Master {
  Master(const graph::Program& program, uint64_t seed);
  [[nodiscard]] Status Into(Weights& weights) const;

  const RefreshSizes sizes;
  exact::BlockLayout layout;
  std::vector<float> parameters, means, variances;
};

// One that every operation changes, from stored images of another shape than the program's.
[[nodiscard]] graph::Augmenter AugmenterFor(const graph::Program& program);

struct Shard {
  // With an augmenter, AugmenterFor(program): random pixels and the images that it makes of them.
  Shard(const graph::Program& program, uint64_t seed, const graph::Augmenter* augmenter = nullptr);
  // With the pixels, where there are some; else the images.
  [[nodiscard]] ShardInput input() const;

  graph::RandomKeys keys;
  std::vector<uint8_t> pixels;
  std::vector<float> images;
  std::vector<int32_t> labels;
};

// What a run gives.
struct Result {
  ShardOutput output;
  std::map<uint32_t, std::vector<float>> gradients;
  bool operator==(const Result& other) const {
    return output.scalars == other.output.scalars &&
           output.batch_means == other.output.batch_means &&
           output.batch_variances == other.output.batch_variances && gradients == other.gradients;
  }
};

[[nodiscard]] Result Expected(const graph::Program& program, const Master& master,
                              const Shard& shard);

}  // namespace ringmaster::testing
