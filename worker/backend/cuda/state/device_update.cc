#include "worker/backend/cuda/state/device_update.h"

#include <algorithm>
#include <span>

namespace ringmaster::cuda {
namespace {

size_t RunsOf(const exact::TensorRange& tensor) {
  return (tensor.block_count + kRunBlocks - 1) / kRunBlocks;
}

void AddRuns(const exact::TensorRange& tensor, std::vector<BlockRun>* runs) {
  for (size_t done = 0; done < tensor.block_count; done += kRunBlocks) {
    const size_t count = std::min<size_t>(kRunBlocks, tensor.block_count - done);
    runs->push_back({.tensor = tensor.tensor,
                     .first_block = static_cast<uint32_t>(tensor.first_block + done),
                     .block_count = static_cast<uint32_t>(count)});
  }
}

// Makes the array, with these values.
template <typename T>
Status Fill(const std::vector<T>& values, Uploader& uploader, DeviceArray<T>* array) {
  RING_RETURN_IF_ERROR(array->Make(values.size()));
  return uploader.Copy(values.data(), array->data(), array->bytes());
}

}  // namespace

DeviceUpdate::DeviceUpdate(const exact::BlockLayout& layout, const graph::Optimizer& optimizer,
                           int precision_bits)
    : layout_(layout),
      optimizer_(optimizer),
      precision_bits_(precision_bits),
      tensors_(layout.tensors().size()) {}

uint64_t DeviceUpdate::DeviceBytes(const exact::BlockLayout& layout,
                                   const graph::Optimizer& optimizer) {
  const uint64_t steps = layout.block_count() * sizeof(uint32_t);
  if (!optimizer.needs_norms()) return steps;
  uint64_t runs = 0;
  for (const exact::TensorRange& tensor : layout.tensors()) runs += RunsOf(tensor);
  constexpr uint64_t kOfTensor = sizeof(TensorRuns) + sizeof(graph::TensorNorms) +
                                 kSquares * sizeof(double) + sizeof(graph::NormFactors);
  return steps + runs * (sizeof(BlockRun) + sizeof(double)) + layout.tensors().size() * kOfTensor;
}

Status DeviceUpdate::Open(Uploader& uploader, cudaStream_t stream) {
  const std::vector<exact::TensorRange> tensors = SortBySteps();
  std::vector<uint32_t> blocks;
  for (const exact::TensorRange& tensor : tensors) {
    for (size_t b = 0; b < tensor.block_count; ++b) {
      blocks.push_back(static_cast<uint32_t>(tensor.first_block + b));
    }
  }
  RING_RETURN_IF_ERROR(Fill(blocks, uploader, &blocks_));
  return optimizer_.needs_norms() ? OpenNorms(tensors, uploader, stream) : absl::OkStatus();
}

std::vector<exact::TensorRange> DeviceUpdate::SortBySteps() {
  const std::span<const exact::TensorRange> tensors = layout_.tensors();
  std::vector<exact::TensorRange> sorted;
  std::vector<bool> taken(tensors.size(), false);
  size_t blocks = 0;
  size_t runs = 0;
  for (size_t first = 0; first < tensors.size(); ++first) {
    if (taken[first]) continue;
    EqualSteps equal{.tensor = tensors[first].tensor, .first_block = blocks, .first_run = runs};
    for (size_t i = first; i < tensors.size(); ++i) {
      if (taken[i] || !optimizer_.SameStep(equal.tensor, tensors[i].tensor)) continue;
      taken[i] = true;
      sorted.push_back(tensors[i]);
      blocks += tensors[i].block_count;
      runs += RunsOf(tensors[i]);
    }
    equal.block_count = blocks - equal.first_block;
    equal.run_count = runs - equal.first_run;
    steps_.push_back(equal);
  }
  return sorted;
}

Status DeviceUpdate::OpenNorms(std::span<const exact::TensorRange> tensors, Uploader& uploader,
                               cudaStream_t stream) {
  std::vector<BlockRun> runs;
  std::vector<TensorRuns> of_tensor(tensors_);
  std::vector<graph::TensorNorms> norms;
  for (const exact::TensorRange& tensor : tensors) {
    of_tensor[tensor.tensor] = {static_cast<uint32_t>(runs.size()),
                                static_cast<uint32_t>(RunsOf(tensor))};
    AddRuns(tensor, &runs);
  }
  for (uint32_t t = 0; t < tensors_; ++t) norms.push_back(optimizer_.NormsOf(t));
  run_count_ = runs.size();
  RING_RETURN_IF_ERROR(Fill(runs, uploader, &runs_));
  RING_RETURN_IF_ERROR(Fill(of_tensor, uploader, &tensor_runs_));
  RING_RETURN_IF_ERROR(Fill(norms, uploader, &tensor_norms_));
  RING_RETURN_IF_ERROR(run_sums_.Make(runs.size()));
  RING_RETURN_IF_ERROR(run_sums_.Zero(stream));  // of tensors without a step nobody writes one
  RING_RETURN_IF_ERROR(squares_.Make(kSquares * tensors_));
  RING_RETURN_IF_ERROR(squares_.Zero(stream));
  return factors_.Make(tensors_);
}

Status DeviceUpdate::Start(UpdateArrays arrays, uint64_t update, cudaStream_t stream) const {
  if (optimizer_.needs_norms()) RING_RETURN_IF_ERROR(StartNorms(&arrays, update, stream));
  for (const EqualSteps& equal : steps_) {
    const BlockList list = {blocks_.data() + equal.first_block,
                            static_cast<int64_t>(equal.block_count)};
    const cudaError_t updated =
        LaunchUpdate(optimizer_.step(update, equal.tensor), arrays, list, precision_bits_, stream);
    RING_RETURN_IF_ERROR(FromCuda(updated, fmt::format("update {}", update)));
  }
  return absl::OkStatus();
}

// As worker/train/weight_update.cc does it on the host's cores.
Status DeviceUpdate::StartNorms(UpdateArrays* arrays, uint64_t update, cudaStream_t stream) const {
  const graph::NormRule& rule = optimizer_.norms();
  const std::string what = fmt::format("norms of update {}", update);
  const RunSums all = Runs(0, run_count_);
  if (rule.needs_gradients()) {
    RING_RETURN_IF_ERROR(
        FromCuda(LaunchGradientSquares(*arrays, rule.limit, precision_bits_, all, stream), what));
    RING_RETURN_IF_ERROR(FromCuda(SumTensors(kGradient, stream), what));
  }
  if (rule.needs_weights()) {
    RING_RETURN_IF_ERROR(FromCuda(LaunchWeightSquares(*arrays, all, stream), what));
    RING_RETURN_IF_ERROR(FromCuda(SumTensors(kWeight, stream), what));
  }
  RING_RETURN_IF_ERROR(FromCuda(MakeFactors(stream), what));
  arrays->factors = factors_.data();
  if (!rule.needs_steps()) return absl::OkStatus();
  for (const EqualSteps& equal : steps_) {
    RING_RETURN_IF_ERROR(
        FromCuda(LaunchPrepare(optimizer_.step(update, equal.tensor), *arrays, precision_bits_,
                               Runs(equal.first_run, equal.run_count), stream),
                 what));
  }
  RING_RETURN_IF_ERROR(FromCuda(SumTensors(kStep, stream), what));
  return FromCuda(MakeFactors(stream), what);
}

cudaError_t DeviceUpdate::SumTensors(Square square, cudaStream_t stream) const {
  return LaunchTensorSquares(tensor_runs_.data(), static_cast<int64_t>(tensors_), run_sums_.data(),
                             squares_.data() + square * tensors_, stream);
}

cudaError_t DeviceUpdate::MakeFactors(cudaStream_t stream) const {
  const SquareSums squares = {.gradients = squares_.data() + kGradient * tensors_,
                              .weights = squares_.data() + kWeight * tensors_,
                              .steps = squares_.data() + kStep * tensors_};
  return LaunchFactors(optimizer_.norms(), tensor_norms_.data(), static_cast<int64_t>(tensors_),
                       squares, factors_.data(), stream);
}

}  // namespace ringmaster::cuda
