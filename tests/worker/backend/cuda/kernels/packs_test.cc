// How kernels round to 16 bits and drop elements, against the CPU backend's types.
#include "worker/backend/cuda/kernels/packs.h"

#include <bit>
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <vector>

#include "common/philox.h"
#include "worker/backend/cpu/storage.h"
#include "worker/backend/cuda/kernels/dropout.h"

namespace ringmaster::cuda {
namespace {

// Every float whose lower half is one of those that decide how it rounds.
std::vector<float> Neighbourhood() {
  std::vector<float> values;
  for (uint32_t upper = 0; upper < 65536; ++upper) {
    for (uint32_t lower : {0x0000U, 0x0001U, 0x0fffU, 0x1000U, 0x1001U, 0x2fffU, 0x3000U, 0x3001U,
                           0x7fffU, 0x8000U, 0x8001U, 0xffffU}) {
      values.push_back(std::bit_cast<float>(upper << 16 | lower));
    }
  }
  return values;
}

template <typename Device, typename Cpu>
int CountDifferences() {
  int different = 0;
  for (float value : Neighbourhood()) {
    const auto device = std::bit_cast<uint16_t>(FromFloat<Device>(value));
    const auto cpu = std::bit_cast<uint16_t>(Cpu(value));
    const float device_back = ToFloat(std::bit_cast<Device>(device));
    const float cpu_back = static_cast<float>(std::bit_cast<Cpu>(cpu));
    const bool same = std::isnan(value) ? std::isnan(device_back) && std::isnan(cpu_back)
                                        : device == cpu && device_back == cpu_back;
    if (!same) ++different;
  }
  return different;
}

}  // namespace

TEST_CASE("Packs: bfloat16 rounds as on the CPU") {
  CHECK(CountDifferences<__nv_bfloat16, cpu::BFloat16>() == 0);
}

TEST_CASE("Packs: float16 rounds as on the CPU") {
  CHECK(CountDifferences<__half, cpu::Float16>() == 0);
}

TEST_CASE("Packs: a pack is as wide as one access, and holds what was put there") {
  CHECK(sizeof(Pack<float, kPackWidth<float>>) == 16);
  CHECK(sizeof(Pack<__half, kPackWidth<__half>>) == 16);
  CHECK(alignof(Pack<__nv_bfloat16, kPackWidth<__nv_bfloat16>>) == 16);
  alignas(16) __nv_bfloat16 memory[16] = {};
  Pack<__nv_bfloat16, 8> pack = {};
  for (int i = 0; i < 8; ++i) pack.set(i, static_cast<float>(i) + 0.5F);
  StorePack<8>(pack, memory + 8);
  for (int i = 0; i < 16; ++i) {
    CHECK(ToFloat(memory[i]) == (i < 8 ? 0.0F : static_cast<float>(i - 8) + 0.5F));
  }
  CHECK(LoadPack<8>(memory + 8).get(7) == 7.5F);
}

TEST_CASE("DropoutMask: an element is kept exactly when its uniform number reaches the rate") {
  for (double rate : {0.0, 0x1p-24, 0.1, 0.25, 0.3, 0.5, 0.9, 1 - 0x1p-24}) {
    INFO(rate);
    const DropoutMask mask = MakeDropoutMask(rate, false);
    const auto around = static_cast<int64_t>(rate * 0x1p24);
    for (int64_t upper = std::max<int64_t>(0, around - 3);
         upper < std::min<int64_t>(around + 4, 1 << 24); ++upper) {
      const auto bits = static_cast<uint32_t>(upper) << 8 | 0x5aU;
      const bool keep = static_cast<double>(upper) * 0x1p-24 >= rate;
      CHECK(Drop(mask, bits, 3.0F) == (keep ? 3.0F / static_cast<float>(1 - rate) : 0.0F));
    }
  }
}

TEST_CASE("Packs: what rounds to 0, as on a CPU") {
  const auto check = [](auto device, auto cpu) {
    using Device = decltype(device);
    const float limit = kRoundsToZero<Device>;
    CHECK(limit == cpu::kRoundsToZero<decltype(cpu)>);
    CHECK(ToFloat(FromFloat<Device>(limit)) == 0);
    CHECK(ToFloat(FromFloat<Device>(std::nextafter(limit, 1.0F))) > 0);
  };
  check(float{}, float{});
  check(__nv_bfloat16{}, cpu::BFloat16{});
  check(__half{}, cpu::Float16{});
}

}  // namespace ringmaster::cuda
