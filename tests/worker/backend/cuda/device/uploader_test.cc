#include "worker/backend/cuda/device/runtime.h"

#include <catch2/catch.hpp>
#include <numeric>
#include <vector>

#include "tests/worker/backend/cuda/gpu.h"

namespace ringmaster::cuda {
namespace {

std::vector<uint32_t> Numbers(size_t count, uint32_t first) {
  std::vector<uint32_t> numbers(count);
  std::iota(numbers.begin(), numbers.end(), first);
  return numbers;
}

}  // namespace

TEST_CASE("CUDA upload: small and large copies arrive, and the source may change at once") {
  const auto backend = testing::CudaBackendOrSkip();
  if (backend == nullptr) return;
  const auto stream = MakeStream();
  REQUIRE(stream.ok());
  const auto uploader = Uploader::Create(stream->get());
  REQUIRE(Message(uploader.status()) == "");
  // Around a slot's end, several slots, and many small ones.
  std::vector<size_t> counts = {1, (size_t{1} << 20) - 17, 1 << 20, (size_t{5} << 20) + 3};
  counts.insert(counts.end(), 3000, 401);
  Arena memory(Place::kDevice);
  const size_t total = std::accumulate(counts.begin(), counts.end(), size_t{0});
  REQUIRE(memory.Grow(total * sizeof(uint32_t)).ok());

  size_t at = 0;
  for (const size_t count : counts) {
    std::vector<uint32_t> numbers = Numbers(count, static_cast<uint32_t>(at));
    REQUIRE(
        (*uploader)
            ->Copy(numbers.data(), memory.data() + at * sizeof(uint32_t), count * sizeof(uint32_t))
            .ok());
    std::fill(numbers.begin(), numbers.end(), 0xdeadbeef);
    at += count;
  }
  REQUIRE(cudaStreamSynchronize(stream->get()) == cudaSuccess);
  std::vector<uint32_t> found(total);
  REQUIRE(cudaMemcpy(found.data(), memory.data(), total * sizeof(uint32_t),
                     cudaMemcpyDeviceToHost) == cudaSuccess);
  CHECK((found == Numbers(total, 0)));
}

TEST_CASE("CUDA arena: it grows by moving, and says when there is no more") {
  const auto backend = testing::CudaBackendOrSkip();
  if (backend == nullptr) return;
  for (const Place place : {Place::kDevice, Place::kPinned}) {
    Arena arena(place);
    REQUIRE(arena.Grow(1000).ok());
    const uint64_t version = arena.version();
    CHECK(reinterpret_cast<uintptr_t>(arena.data()) % 256 == 0);
    REQUIRE(arena.Grow(999).ok());
    CHECK(arena.version() == version);
    REQUIRE(arena.Grow(100000).ok());
    CHECK(arena.version() != version);
    CHECK(arena.size() == 100000);
  }
  Arena arena(Place::kDevice);
  CHECK(absl::IsResourceExhausted(arena.Grow(size_t{1} << 50)));
  CHECK(arena.size() == 0);
  CHECK(cudaGetLastError() == cudaSuccess);
}

}  // namespace ringmaster::cuda
