// The stage on the late runtime, whose GPU's memory the test reads as it is. What runs do with it
// is tested with the executable.
#include "worker/backend/cuda/input.h"

#include <catch2/catch.hpp>
#include <vector>

#include "tests/worker/backend/cuda/late_runtime.h"

namespace ringmaster::cuda {

using Catch::Contains;

TEST_CASE("CUDA input stage: a slot holds what was brought until its last reference goes") {
  {
    const auto stage = CudaInputStage::Create({.device = 3, .slots = 2, .slot_bytes = 100});
    REQUIRE(Message(stage.status()) == "");
    CHECK(testing::CurrentDevice() == 3);
    const auto bring = [&](uint8_t value, size_t bytes) {
      std::vector<uint8_t> pixels(bytes, value);
      auto staged = (*stage)->Bring(pixels);
      pixels.assign(bytes, 0xcd);
      REQUIRE(Message(staged.status()) == "");
      return *std::move(staged);
    };
    const auto stream = MakeStream();
    REQUIRE(stream.ok());
    Arena memory(Place::kDevice);
    REQUIRE(memory.Grow(100).ok());
    const auto holds = [&](const StagedInput& staged, uint8_t value, size_t bytes) {
      const auto& brought = dynamic_cast<const CudaStagedInput&>(staged);
      std::fill_n(memory.data(), 100, std::byte{0xab});
      CHECK(brought.device() == 3);
      CHECK(brought.bytes() == bytes);
      CHECK(brought.CopyTo(memory.data(), stream->get()).ok());
      CHECK(cudaStreamSynchronize(stream->get()) == cudaSuccess);
      bool same = true;
      for (size_t i = 0; i < 100; ++i) {
        same = same && memory.data()[i] == std::byte{i < bytes ? value : uint8_t{0xab}};
      }
      return same;
    };
    auto first = bring(1, 100);
    const auto second = bring(2, 99);
    CHECK(holds(*second, 2, 99));
    CHECK(holds(*first, 1, 100));
    CHECK(bring(3, 10) == nullptr);
    auto also_first = first;
    first.reset();
    CHECK(bring(4, 10) == nullptr);
    CHECK(holds(*also_first, 1, 100));
    also_first.reset();
    const auto fifth = bring(5, 10);
    REQUIRE(fifth != nullptr);
    CHECK(bring(6, 10) == nullptr);
    CHECK(holds(*fifth, 5, 10));
    CHECK(holds(*second, 2, 99));
  }
  CHECK(testing::LiveObjects() == 0);
}

TEST_CASE("CUDA input stage: what does not fit is refused") {
  const Status status =
      CudaInputStage::Create({.slots = 3, .slot_bytes = size_t{1} << 50}).status();
  CHECK(absl::IsResourceExhausted(status));
  CHECK_THAT(Message(status),
             Contains("3 slots of 1125899906842624 bytes for input that is copied ahead"));
  const auto stage = CudaInputStage::Create({.slots = 1, .slot_bytes = 10});
  REQUIRE(stage.ok());
  const std::vector<uint8_t> pixels(11);
  CHECK(Message((*stage)->Bring(pixels).status()) == "11 bytes of pixels for slots of 10");
  CHECK((*stage)->Bring(std::span(pixels).first(10)).ok());
  CHECK(cudaGetLastError() == cudaSuccess);
}

}  // namespace ringmaster::cuda
