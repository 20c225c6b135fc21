#include "tests/worker/backend/cuda/state/gpu_states.h"

#include <bit>
#include <catch2/catch.hpp>
#include <cstring>
#include <utility>

#include "tests/worker/backend/cuda/state/state_under_test.h"
#include "worker/backend/cpu/storage.h"
#include "worker/backend/cuda/device/runtime.h"
#include "worker/backend/cuda/kernels/state.h"

namespace ringmaster::testing {
namespace {

using cuda::DeviceArray;
using exact::kBlockElements;
using graph::DType;

std::vector<uint32_t> Bits(const std::vector<float>& values) {
  std::vector<uint32_t> bits;
  for (const float value : values) bits.push_back(std::bit_cast<uint32_t>(value));
  return bits;
}

template <typename T>
std::vector<T> Download(const void* from, size_t count, cudaStream_t stream) {
  std::vector<T> values(count);
  CHECK((*cuda::Downloader::Create(stream))->Copy(from, values.data(), count * sizeof(T)).ok());
  return values;
}

}  // namespace

StatusOr<cuda::Nccl> GpuStates::NoNccl() { return Internal("the test has no NCCL"); }

GpuStates::GpuStates(const graph::Program& program, const exact::BlockLayout& layout,
                     const v1::Optimizer& optimizer, std::vector<int> gpus,
                     cuda::CudaWeights::OpenNccl open_nccl)
    : layout_(layout), weights_(program, std::move(open_nccl)), gpus_(std::move(gpus)) {
  for (const int gpu : gpus_) {
    auto device = weights_.On(gpu);
    REQUIRE(Message(device.status()) == "");
    devices_.push_back(*device);
    for (const DType type : {DType::kBFloat16, DType::kFloat16}) {
      REQUIRE(devices_.back()->Provide(type).ok());
    }
  }
  auto made = weights_.MakeState({.layout = &layout,
                                  .update = UpdateOf(layout, optimizer),
                                  .shards = kShards,
                                  .precision_bits = kPrecisionBits});
  REQUIRE(Message(made.status()) == "");
  state_ = *std::move(made);
  REQUIRE(state_ != nullptr);
}

DeviceState& GpuStates::Called() {
  MakeOtherCurrent();
  return *state_;
}

void GpuStates::CheckCurrent() const {
  if (gpus_.size() == 1) CHECK(IsCurrent(gpus_.front()));
}

Status GpuStates::Load(const HostState& host) {
  const std::vector<std::span<const float>> slots(host.slots.begin(), host.slots.end());
  return Called().Load(host.parameters, slots, host.units.exponents());
}

exact::FlagKind GpuStates::Add(size_t gpu, const exact::TensorRange& tensor,
                               const float* gradient) {
  const cuda::GradientSums& sums = *device(gpu).sums();
  CHECK(cudaSetDevice(gpus_[gpu]) == cudaSuccess);
  const cuda::Stream stream = *cuda::MakeStream();
  DeviceArray<float> on_device;
  DeviceArray<uint64_t> flag;
  CHECK(on_device.Make(tensor.elements).ok());
  CHECK(flag.Make(1).ok());
  const auto uploader = *cuda::Uploader::Create(stream.get());
  CHECK(uploader->Copy(gradient + tensor.offset(), on_device.data(), on_device.bytes()).ok());
  CHECK(cudaMemsetAsync(flag.data(), 0xff, flag.bytes(), stream.get()) == cudaSuccess);
  CHECK(cudaStreamWaitEvent(stream.get(), sums.cleared, 0) == cudaSuccess);
  CHECK(cuda::LaunchQuantizeAdd(on_device.data(), static_cast<int64_t>(tensor.elements),
                                {.exponents = sums.exponents + tensor.first_block,
                                 .precision_bits = sums.precision_bits,
                                 .gradient_scale = sums.gradient_scale,
                                 .shards = sums.shards},
                                sums.sums + tensor.offset(), flag.data(),
                                stream.get()) == cudaSuccess);
  return cuda::RefusedKind(Download<uint64_t>(flag.data(), 1, stream.get())[0]);
}

std::vector<exact::Bucket> GpuStates::buckets() const { return exact::CutBuckets(layout_, 10); }

std::vector<int64_t> GpuStates::ReadSums() {
  std::vector<int64_t> sums(layout_.arena_elements(), 77);
  for (const exact::Bucket& bucket : buckets()) {
    const auto part = std::span(sums).subspan(bucket.first_block * kBlockElements,
                                              bucket.block_count * kBlockElements);
    CHECK(Message(Called().ReadSums(bucket, part)) == "");
    CheckCurrent();
  }
  return sums;
}

void GpuStates::WriteTotals(const std::vector<int64_t>& totals) {
  for (const exact::Bucket& bucket : buckets()) {
    const auto part = std::span(totals).subspan(bucket.first_block * kBlockElements,
                                                bucket.block_count * kBlockElements);
    CHECK(Message(Called().WriteTotals(bucket, part)) == "");
    CheckCurrent();
  }
}

void GpuStates::CheckAre(const HostState& host) {
  const size_t n = host.parameters.size();
  std::vector<float> parameters(n);
  std::vector<std::vector<float>> slots(host.slots.size(), std::vector<float>(n));
  std::vector<int16_t> exponents(layout_.block_count());
  const std::vector<std::span<float>> ranges(slots.begin(), slots.end());
  CHECK(Message(Called().Store(parameters, ranges, exponents)) == "");
  CheckCurrent();
  CHECK(Bits(parameters) == Bits(host.parameters));
  for (size_t s = 0; s < slots.size(); ++s) CHECK(Bits(slots[s]) == Bits(host.slots[s]));
  CHECK(std::ranges::equal(exponents, host.units.exponents()));
  for (size_t gpu = 0; gpu < size(); ++gpu) {
    INFO("GPU " << gpus_[gpu]);
    CheckCopies(gpu, host.parameters, [&](DType type) { return device(gpu).arena(type); });
  }
}

void GpuStates::CheckFrozen(const std::vector<float>& values) {
  const auto number = static_cast<uint32_t>(layout_.tensors().size());
  for (size_t gpu = 0; gpu < size(); ++gpu) {
    INFO("GPU " << gpus_[gpu]);
    CheckCopies(gpu, values, [&](DType type) { return device(gpu).parameter(number, type); });
  }
}

void GpuStates::CheckCopies(size_t gpu, const std::vector<float>& values,
                            const std::function<const void*(DType)>& place) {
  CheckCopy<float>(gpu, values, place(DType::kFloat32));
  CheckCopy<cpu::BFloat16>(gpu, values, place(DType::kBFloat16));
  CheckCopy<cpu::Float16>(gpu, values, place(DType::kFloat16));
}

template <typename T>
void GpuStates::CheckCopy(size_t gpu, const std::vector<float>& values, const void* place) {
  std::vector<T> expected;
  for (const float value : values) expected.emplace_back(value);
  CHECK(cudaSetDevice(gpus_[gpu]) == cudaSuccess);
  const cuda::Stream stream = *cuda::MakeStream();
  const auto found = Download<T>(place, expected.size(), stream.get());
  CHECK(std::memcmp(found.data(), expected.data(), expected.size() * sizeof(T)) == 0);
}

void AddShards(HostState& host, GpuStates& gpus, float scale, uint32_t first, uint32_t count) {
  for (uint32_t shard = first; shard < first + count; ++shard) {
    const std::vector<float> gradient = host.DrawGradient();
    for (const exact::TensorRange& tensor : host.layout.tensors()) {
      CHECK(gpus.Add(shard % gpus.size(), tensor, gradient.data()) ==
            host.Add(tensor, gradient.data(), scale));
    }
  }
}

void AddShards(HostState& host, GpuStates& gpus, float scale) {
  host.sums.assign(host.sums.size(), 0);
  REQUIRE(Message(gpus.Called().Clear(scale)) == "");
  gpus.CheckCurrent();
  AddShards(host, gpus, scale, 0, kShards);
}

}  // namespace ringmaster::testing
