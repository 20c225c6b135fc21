#include "worker/backend/cuda/node_run.h"

#include <algorithm>

#include "worker/backend/cuda/device/runtime.h"
#include "worker/backend/cuda/kernel.h"
#include "worker/backend/cuda/kernel_table.h"

namespace ringmaster::cuda {
namespace {

constexpr int kWarmLaunches = 3;
constexpr int kSeries = 5;
constexpr int kLaunches = 10;  // of a series

size_t BytesOf(const graph::Value& value) {
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

StatusOr<std::unique_ptr<NodeRun>> NodeRun::Create(const BindContext& context) {
  const graph::Node& node = context.node;
  RING_ASSIGN_OR_RETURN(const BindFunction bind, FindKernel(node));
  std::unique_ptr<NodeRun> run(new NodeRun);
  RING_ASSIGN_OR_RETURN(run->kernel_, bind(context));
  RING_ASSIGN_OR_RETURN(run->stream_, MakeStream());
  WorkspaceLayout layout;
  std::vector<size_t> offsets;
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    offsets.push_back(layout.Add(BytesOf(context.input(i))));
  }
  run->inputs_bytes_ = layout.bytes();
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    run->output_bytes_.push_back(BytesOf(context.output(i)));
    offsets.push_back(layout.Add(run->output_bytes_.back()));
  }
  const size_t workspace = layout.Add(run->kernel_->workspace_bytes());
  RING_RETURN_IF_ERROR(run->memory_.Grow(layout.bytes()));
  std::byte* const memory = run->memory_.data();
  for (size_t i = 0; i < offsets.size(); ++i) {
    if (i >= node.inputs.size()) {
      run->operands_.outputs.push_back(memory + offsets[i]);
      continue;
    }
    run->operands_.inputs.push_back(memory + offsets[i]);
    RING_RETURN_IF_ERROR(run->Fill(context.input(i), memory + offsets[i]));
  }
  run->operands_.workspace = memory + workspace;
  RING_RETURN_IF_ERROR(run->kernel_->Attach(run->operands_));
  return run;
}

Status NodeRun::Fill(const graph::Value& value, void* to) {
  return WithStorage(value.dtype, [&]<typename T>(T) {
    std::vector<T> values(static_cast<size_t>(graph::Elements(value.shape)));
    Noise noise;
    for (T& element : values) element = T(noise.Next());
    RING_RETURN_IF_ERROR(FromCuda(cudaMemcpyAsync(to, values.data(), values.size() * sizeof(T),
                                                  cudaMemcpyHostToDevice, stream_.get()),
                                  "filling an input"));
    return FromCuda(cudaStreamSynchronize(stream_.get()), "filling an input");
  });
}

Status NodeRun::Run() {
  RING_RETURN_IF_ERROR(kernel_->Launch(stream_.get()));
  return FromCuda(cudaStreamSynchronize(stream_.get()), "run of a node");
}

StatusOr<float> NodeRun::Milliseconds(int launches) {
  cudaEvent_t raw[2] = {};
  Event events[2];
  for (int i = 0; i < 2; ++i) {
    RING_RETURN_IF_ERROR(FromCuda(cudaEventCreate(&raw[i]), "event"));
    events[i].reset(raw[i]);
  }
  RING_RETURN_IF_ERROR(FromCuda(cudaEventRecord(raw[0], stream_.get()), "event"));
  for (int i = 0; i < launches; ++i) RING_RETURN_IF_ERROR(kernel_->Launch(stream_.get()));
  RING_RETURN_IF_ERROR(FromCuda(cudaEventRecord(raw[1], stream_.get()), "event"));
  RING_RETURN_IF_ERROR(FromCuda(cudaEventSynchronize(raw[1]), "timed run of a node"));
  float milliseconds = 0;
  RING_RETURN_IF_ERROR(FromCuda(cudaEventElapsedTime(&milliseconds, raw[0], raw[1]), "event"));
  return milliseconds;
}

StatusOr<double> NodeRun::Microseconds() {
  RING_RETURN_IF_ERROR(Milliseconds(kWarmLaunches).status());
  double least = 0;
  for (int series = 0; series < kSeries; ++series) {
    RING_ASSIGN_OR_RETURN(const float milliseconds, Milliseconds(kLaunches));
    const double mean = 1000.0 * static_cast<double>(milliseconds) / kLaunches;
    least = series == 0 ? mean : std::min(least, mean);
  }
  return least;
}

Status NodeRun::Scribble(int byte) {
  // In the stream of the runs: the one without a name waits for none of ours, nor they for it.
  return FromCuda(cudaMemsetAsync(memory_.data() + inputs_bytes_, byte,
                                  memory_.size() - inputs_bytes_, stream_.get()),
                  "filling a workspace");
}

StatusOr<std::vector<std::byte>> NodeRun::Outputs() {
  std::vector<std::byte> bytes;
  for (size_t i = 0; i < output_bytes_.size(); ++i) {
    const size_t at = bytes.size();
    bytes.resize(at + output_bytes_[i]);
    RING_RETURN_IF_ERROR(FromCuda(cudaMemcpy(bytes.data() + at, operands_.outputs[i],
                                             output_bytes_[i], cudaMemcpyDeviceToHost),
                                  "reading an output"));
  }
  return bytes;
}

}  // namespace ringmaster::cuda
