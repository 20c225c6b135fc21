#include "worker/backend/cuda/state/weights.h"

#include <catch2/catch.hpp>
#include <cstring>
#include <vector>

#include "tests/worker/backend/cuda/gpu.h"
#include "tests/worker/backend/model_program.h"
#include "worker/backend/cpu/storage.h"

namespace ringmaster::cuda {
namespace {

using graph::DType;

// Weights of a program whose parameters lie in the order of backward.
struct Master {
  explicit Master(const graph::Program& program) : sizes(program) {
    std::vector<exact::BlockLayout::Tensor> tensors;
    for (const uint32_t p : program.gradient_order) tensors.push_back({p, sizes.parameters[p]});
    auto made = exact::BlockLayout::Create(tensors);
    REQUIRE(made.ok());
    layout = *std::move(made);
    values.resize(layout.arena_elements());
    size_t channels = 0;
    for (const uint64_t count : sizes.channels) channels += count;
    for (size_t i = 0; i < channels; ++i) {
      means.push_back(static_cast<float>(i));
      variances.push_back(0.5F + static_cast<float>(i));
    }
  }

  // Bit patterns of all exponents, with low bits that have to be rounded; finite.
  void Draw(uint32_t seed) {
    for (size_t i = 0; i < values.size(); ++i) {
      auto bits = static_cast<uint32_t>(i + seed) * 2654435761U;
      if ((bits >> 23 & 0xff) == 0xff) bits &= 0xbfffffff;
      std::memcpy(&values[i], &bits, sizeof(bits));
    }
  }

  const RefreshSizes sizes;
  exact::BlockLayout layout;
  std::vector<float> values, means, variances;
};

template <typename T>
std::vector<T> Download(const void* from, size_t count) {
  std::vector<T> values(count);
  REQUIRE(cudaMemcpy(values.data(), from, count * sizeof(T), cudaMemcpyDeviceToHost) ==
          cudaSuccess);
  return values;
}

template <typename Narrow>
void CheckCopies(const Master& master, const DeviceWeights& weights, DType dtype) {
  for (uint32_t p = 0; p < master.sizes.parameters.size(); ++p) {
    const size_t count = master.sizes.parameters[p];
    const void* const address = weights.parameter(p, dtype);
    CHECK(reinterpret_cast<uintptr_t>(address) % 256 == 0);
    std::vector<Narrow> expected;
    for (size_t i = 0; i < count; ++i) {
      expected.emplace_back(master.values[master.layout.tensor(p).offset() + i]);
    }
    const auto found = Download<Narrow>(address, count);
    CHECK(std::memcmp(found.data(), expected.data(), count * sizeof(Narrow)) == 0);
  }
}

}  // namespace

TEST_CASE(
    "CUDA weights: copies have the CPU's bits in every type, however late they are asked for") {
  const auto backend = testing::CudaBackendOrSkip();
  if (backend == nullptr) return;
  const auto program = testing::ModelProgram({.samples = 1});
  REQUIRE(program.ok());
  Master master(*program);
  const auto weights = DeviceWeights::Create(master.sizes, 0);
  REQUIRE(Message(weights.status()) == "");
  REQUIRE((*weights)->Provide(DType::kBFloat16).ok());
  CHECK(absl::IsFailedPrecondition((*weights)->Ready()));
  for (const uint32_t seed : {1U, 77U}) {
    master.Draw(seed);
    REQUIRE(Message((*weights)->StartFilling(master.layout, master.values)) == "");
    (*weights)->SetStatistics(master.means, master.variances);
    REQUIRE((*weights)->FinishFilling().ok());
    REQUIRE(Message((*weights)->BringStatistics()) == "");
    REQUIRE((*weights)->Provide(DType::kFloat16).ok());  // the first time after a filling
    REQUIRE((*weights)->Ready().ok());
    CheckCopies<float>(master, **weights, DType::kFloat32);
    CheckCopies<cpu::BFloat16>(master, **weights, DType::kBFloat16);
    CheckCopies<cpu::Float16>(master, **weights, DType::kFloat16);
  }
  size_t from = 0;
  for (size_t i = 0; i < master.sizes.channels.size(); ++i) {
    const size_t channels = master.sizes.channels[i];
    const auto means = Download<float>((*weights)->moving_mean(i), channels);
    const auto variances = Download<float>((*weights)->moving_variance(i), channels);
    CHECK(std::equal(means.begin(), means.end(), master.means.begin() + from));
    CHECK(std::equal(variances.begin(), variances.end(), master.variances.begin() + from));
    from += channels;
  }
}

TEST_CASE("CUDA weights: another order of the parameters than at first is refused") {
  const auto backend = testing::CudaBackendOrSkip();
  if (backend == nullptr) return;
  auto program = testing::ModelProgram({.samples = 1});
  REQUIRE(program.ok());
  const Master master(*program);
  std::swap(program->gradient_order.front(), program->gradient_order.back());
  const Master other(*program);
  const auto weights = DeviceWeights::Create(master.sizes, 0);
  REQUIRE(weights.ok());
  const auto fill = [&](const Master& from) {
    RING_RETURN_IF_ERROR((*weights)->StartFilling(from.layout, from.values));
    return (*weights)->FinishFilling();
  };
  CHECK(fill(master).ok());
  CHECK(absl::IsInvalidArgument(fill(other)));
  CHECK(fill(master).ok());
}

}  // namespace ringmaster::cuda
