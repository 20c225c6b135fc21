#include "worker/backend/cuda/node_run.h"

#include <algorithm>
#include <limits>

#include "worker/backend/cuda/kernel.h"
#include "worker/backend/cuda/kernels/state.h"

namespace ringmaster::cuda {
namespace {

constexpr size_t kPattern = 262139;  // elements: a prime, so that no two rows of an image are alike
constexpr size_t kBlockBytes = exact::kBlockElements * sizeof(int64_t);  // of a hash
constexpr int kSeries = 5;
constexpr double kSeriesMicroseconds = 2000;
constexpr int kMostLaunches = 10;  // of a series

size_t SizeOf(const graph::Value& value) {
  return static_cast<size_t>(graph::Elements(value.shape)) * graph::ByteSize(value.dtype);
}

// Numerical Recipes' quick generator, whose upper bits are good enough to fill buffers.
class Noise {
 public:
  float Next() {
    state_ = state_ * 1664525U + 1013904223U;
    return static_cast<float>(state_ >> 8) * 0x1p-23F - 1;
  }

 private:
  uint32_t state_ = 1;
};

}  // namespace

StatusOr<std::unique_ptr<NodeRun>> NodeRun::Create() {
  std::unique_ptr<NodeRun> run(new NodeRun);
  RING_ASSIGN_OR_RETURN(run->stream_, MakeStream());
  for (Event& event : run->events_) {
    cudaEvent_t raw = nullptr;
    RING_RETURN_IF_ERROR(FromCuda(cudaEventCreate(&raw), "event"));
    event.reset(raw);
  }
  RING_RETURN_IF_ERROR(run->pattern_.Grow(kPattern * sizeof(float)));
  RING_RETURN_IF_ERROR(run->sum_.Grow(2 * sizeof(uint64_t)));
  RING_RETURN_IF_ERROR(run->pinned_sum_.Grow(2 * sizeof(uint64_t)));
  return run;
}

StatusOr<std::unique_ptr<NodeRun>> NodeRun::Create(const BindContext& context) {
  RING_ASSIGN_OR_RETURN(auto run, Create());
  RING_RETURN_IF_ERROR(run->Hold(context));
  RING_RETURN_IF_ERROR(run->Bind(context, std::numeric_limits<size_t>::max()));
  return run;
}

Status NodeRun::Hold(const BindContext& context) {
  const graph::Node& node = context.node;
  kernel_ = nullptr;
  operands_ = {};
  output_bytes_.clear();
  WorkspaceLayout inputs;
  WorkspaceLayout outputs;
  std::vector<size_t> input_offsets;
  std::vector<size_t> output_offsets;
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    input_offsets.push_back(inputs.Add(SizeOf(context.input(i))));
  }
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    output_bytes_.push_back(SizeOf(context.output(i)));
    output_offsets.push_back(outputs.Add(output_bytes_.back()));
  }
  blocks_ = (outputs.bytes() + kBlockBytes - 1) / kBlockBytes;
  RING_RETURN_IF_ERROR(inputs_.Grow(inputs.bytes()));
  RING_RETURN_IF_ERROR(outputs_.Grow(blocks_ * kBlockBytes));
  // What lies between outputs enters their digest, too.
  RING_RETURN_IF_ERROR(
      FromCuda(cudaMemsetAsync(outputs_.data(), 0, blocks_ * kBlockBytes, stream_.get()), "zeros"));
  for (const size_t offset : output_offsets) {
    operands_.outputs.push_back(outputs_.data() + offset);
  }
  for (size_t i = 0; i < input_offsets.size(); ++i) {
    std::byte* const to = inputs_.data() + input_offsets[i];
    operands_.inputs.push_back(to);
    RING_RETURN_IF_ERROR(Fill(context.input(i), to));
  }
  return FromCuda(cudaStreamSynchronize(stream_.get()), "filling inputs");
}

// The pattern, then copies of what is there.
Status NodeRun::Fill(const graph::Value& value, std::byte* to) {
  const size_t bytes = SizeOf(value);
  const auto copy = [&](size_t at, const std::byte* from, size_t most, cudaMemcpyKind kind) {
    return FromCuda(cudaMemcpyAsync(to + at, from, std::min(bytes - at, most), kind, stream_.get()),
                    "filling an input");
  };
  size_t filled = kPattern * graph::ByteSize(value.dtype);
  WithStorage(value.dtype, [&]<typename T>(T) {
    Noise noise;
    T* const elements = reinterpret_cast<T*>(pattern_.data());
    for (size_t i = 0; i < kPattern; ++i) elements[i] = T(noise.Next());
  });
  RING_RETURN_IF_ERROR(copy(0, pattern_.data(), filled, cudaMemcpyHostToDevice));
  for (; filled < bytes; filled *= 2) {
    RING_RETURN_IF_ERROR(copy(filled, to, filled, cudaMemcpyDeviceToDevice));
  }
  // The next input may want another pattern.
  return FromCuda(cudaStreamSynchronize(stream_.get()), "filling an input");
}

Status NodeRun::Bind(const BindContext& context, size_t most_workspace) {
  RING_ASSIGN_OR_RETURN(const BindFunction bind, FindKernel(context.node));
  RING_ASSIGN_OR_RETURN(kernel_, bind(context));
  if (workspace_bytes() > most_workspace) {
    return Error(absl::StatusCode::kUnimplemented, "{}: {} bytes of scratch, expected at most {}",
                 context.node.name, workspace_bytes(), most_workspace);
  }
  RING_RETURN_IF_ERROR(workspace_.Grow(workspace_bytes()));
  operands_.workspace = workspace_.data();
  return kernel_->Attach(operands_);
}

Status NodeRun::Run() {
  RING_RETURN_IF_ERROR(kernel_->Launch(stream_.get()));
  return FromCuda(cudaStreamSynchronize(stream_.get()), "run of a node");
}

// In microseconds.
StatusOr<double> NodeRun::Mean(int launches) {
  RING_RETURN_IF_ERROR(FromCuda(cudaEventRecord(events_[0].get(), stream_.get()), "event"));
  for (int i = 0; i < launches; ++i) RING_RETURN_IF_ERROR(kernel_->Launch(stream_.get()));
  RING_RETURN_IF_ERROR(FromCuda(cudaEventRecord(events_[1].get(), stream_.get()), "event"));
  RING_RETURN_IF_ERROR(FromCuda(cudaEventSynchronize(events_[1].get()), "timed run of a node"));
  float milliseconds = 0;
  RING_RETURN_IF_ERROR(
      FromCuda(cudaEventElapsedTime(&milliseconds, events_[0].get(), events_[1].get()), "event"));
  return 1000.0 * static_cast<double>(milliseconds) / launches;
}

StatusOr<double> NodeRun::Glance() {
  constexpr double kShort = 200;  // microseconds: here one launch says too little
  RING_RETURN_IF_ERROR(Run());
  RING_ASSIGN_OR_RETURN(const double one, Mean(1));
  if (one >= kShort) return one;
  RING_ASSIGN_OR_RETURN(const double first, Mean(kMostLaunches / 2));
  RING_ASSIGN_OR_RETURN(const double second, Mean(kMostLaunches / 2));
  return std::min(first, second);
}

StatusOr<double> NodeRun::Microseconds(double limit) {
  constexpr double kToSpare = 1.05;
  RING_ASSIGN_OR_RETURN(const double first, Mean(1));
  const int launches = static_cast<int>(
      std::clamp(kSeriesMicroseconds / std::max(first, 1.0), 1.0, double{kMostLaunches}));
  double least = std::numeric_limits<double>::infinity();
  for (int series = 0; series < kSeries; ++series) {
    RING_ASSIGN_OR_RETURN(const double mean, Mean(launches));
    least = std::min(least, mean);
    if (least > kToSpare * limit) break;
  }
  return least;
}

Status NodeRun::Scribble(int byte) {
  // In the stream of the runs: the one without a name waits for none of ours, nor they for it.
  const auto fill = [&](void* at, size_t bytes) {
    return FromCuda(cudaMemsetAsync(at, byte, bytes, stream_.get()), "filling a workspace");
  };
  for (size_t i = 0; i < output_bytes_.size(); ++i) {
    RING_RETURN_IF_ERROR(fill(operands_.outputs[i], output_bytes_[i]));
  }
  return workspace_.size() == 0 ? absl::OkStatus() : fill(workspace_.data(), workspace_bytes());
}

// Those of more blocks begin as those of fewer do.
Status NodeRun::NameBlocks(size_t blocks) {
  if (blocks <= named_) return absl::OkStatus();
  named_ = 0;
  const size_t bytes = 3 * blocks * sizeof(uint32_t);
  RING_RETURN_IF_ERROR(names_.Grow(bytes));
  RING_RETURN_IF_ERROR(pinned_names_.Grow(bytes));
  auto* const names = reinterpret_cast<uint32_t*>(pinned_names_.data());
  for (size_t i = 0; i < blocks; ++i) {
    names[i] = exact::kBlockElements;
    names[blocks + i] = 0;
    names[2 * blocks + i] = static_cast<uint32_t>(i);
  }
  RING_RETURN_IF_ERROR(scratch_.Grow(DigestScratch(static_cast<int64_t>(blocks))));
  RING_RETURN_IF_ERROR(FromCuda(cudaMemcpyAsync(names_.data(), pinned_names_.data(), bytes,
                                                cudaMemcpyHostToDevice, stream_.get()),
                                "names of blocks"));
  named_ = blocks;
  return absl::OkStatus();
}

StatusOr<exact::BlockSum> NodeRun::Digest() {
  RING_RETURN_IF_ERROR(NameBlocks(blocks_));
  const auto* const names = reinterpret_cast<const uint32_t*>(names_.data());
  auto* const sum = reinterpret_cast<uint64_t*>(sum_.data());
  RING_RETURN_IF_ERROR(FromCuda(
      LaunchDigest({names + named_, names + 2 * named_, names},
                   reinterpret_cast<const int64_t*>(outputs_.data()), static_cast<int64_t>(blocks_),
                   reinterpret_cast<uint64_t*>(scratch_.data()), sum, stream_.get()),
      "digest of outputs"));
  RING_RETURN_IF_ERROR(FromCuda(cudaMemcpyAsync(pinned_sum_.data(), sum, 2 * sizeof(uint64_t),
                                                cudaMemcpyDeviceToHost, stream_.get()),
                                "digest of outputs"));
  RING_RETURN_IF_ERROR(FromCuda(cudaStreamSynchronize(stream_.get()), "digest of outputs"));
  const auto* const halves = reinterpret_cast<const uint64_t*>(pinned_sum_.data());
  return exact::BlockSum::OfHalves(halves[0], halves[1]);
}

}  // namespace ringmaster::cuda
