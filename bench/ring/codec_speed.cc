// The block kernels alone, on one core: each step of an exact reduction over an array of gradients,
// for every instruction set that this processor has. bench/codec pins it to a core and prints its
// table. Rounds are interleaved; a line is
//   KERNELS STEP SECONDS...      one time a round, over all elements
// after a first line with the number of elements.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <map>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "common/arena.h"
#include "common/exact/codec.h"
#include "common/exact/digest.h"
#include "common/exact/kernels.h"

namespace ringmaster::bench {
namespace {

using exact::kBlockElements;
using exact::Kernels;

constexpr int kUnit = -30;
constexpr size_t kPackedStride = 1024;  // of a block's packed bytes: widths up to 32

// Everything that the steps read and write, as if another member's sums were like the own ones.
template <typename T>
struct Arrays {
  explicit Arrays(size_t blocks)
      : gradient(blocks * kBlockElements),
        sums(gradient.size()),
        totals(gradient.size()),
        widths(blocks),
        packed(blocks * kPackedStride),
        reduced(gradient.size()) {
    std::minstd_rand sizes(7), numbers(1);
    std::normal_distribution<float> normal;
    float size = 0;
    for (size_t i = 0; i < gradient.size(); ++i) {
      if (i % kBlockElements == 0) size = std::ldexp(1.0F, -10 - static_cast<int>(sizes() % 8));
      gradient.span()[i] = size * normal(numbers);
    }
  }

  [[nodiscard]] size_t blocks() const { return widths.size(); }
  template <typename U>
  static std::span<U, kBlockElements> Of(Arena<U>& all, size_t block) {
    return std::span<U, kBlockElements>(all.span().data() + block * kBlockElements, kBlockElements);
  }
  uint8_t* PackedOf(size_t block) { return packed.span().data() + block * kPackedStride; }

  Arena<float> gradient;
  Arena<T> sums, totals;
  std::vector<int> widths;
  Arena<uint8_t> packed;
  Arena<float> reduced;
};

void Quantize(const Kernels& kernels, std::span<const float> gradient, int64_t* sums) {
  std::fill_n(sums, gradient.size(), 0);
  (void)exact::QuantizeAdd(kernels, gradient, kUnit, 1, 8, sums);
}

void Quantize(const Kernels& kernels, std::span<const float> gradient, int32_t* sums) {
  static constexpr int32_t kNothing[kBlockElements] = {};
  int bits = 0;
  if (!exact::QuantizeAddNarrow(kernels, gradient, kUnit, 1, 8, kNothing, sums, &bits))
    std::abort();
}

using Step = std::function<void(const Kernels&, size_t block)>;

// The steps in the order in which they need each other's results.
template <typename T>
std::vector<std::pair<std::string, Step>> StepsOf(Arrays<T>* arrays) {
  using A = Arrays<T>;
  const std::string kind = sizeof(T) == 4 ? "int32" : "int64";
  return {
      {kind + "_quantize",
       [arrays](const Kernels& kernels, size_t b) {
         Quantize(kernels, A::Of(arrays->gradient, b), A::Of(arrays->sums, b).data());
       }},
      {kind + "_pack",
       [arrays](const Kernels& kernels, size_t b) {
         const std::span<const T> sums = A::Of(arrays->sums, b);
         arrays->widths[b] = exact::Width(kernels, sums);
         exact::Pack(kernels, sums, arrays->widths[b], arrays->PackedOf(b));
       }},
      {kind + "_hop",  // unpack, add, width, pack
       [arrays](const Kernels& kernels, size_t b) {
         const std::span<const T> sums = A::Of(arrays->sums, b);
         T summed[kBlockElements];
         const int width =
             exact::UnpackSum(kernels, arrays->PackedOf(b), arrays->widths[b], sums, summed);
         const std::span<const T> result(summed, kBlockElements);
         uint8_t out[kPackedStride];
         exact::Pack(kernels, result, width, out);
         arrays->widths[b] += out[0] == 255 && out[1] == 254 && width < 0 ? 1 : 0;  // is used
       }},
      {kind + "_unpack",
       [arrays](const Kernels& kernels, size_t b) {
         exact::Unpack(kernels, arrays->PackedOf(b), arrays->widths[b],
                       std::span<T>(A::Of(arrays->totals, b)));
       }},
      {kind + "_dequantize",
       [arrays](const Kernels& kernels, size_t b) {
         exact::Dequantize(kernels, std::span<const T>(A::Of(arrays->totals, b)), kUnit,
                           A::Of(arrays->reduced, b).data());
       }},
  };
}

int Run(size_t elements, size_t rounds) {
  const size_t blocks = elements / kBlockElements;
  Arrays<int64_t> wide(blocks);
  Arrays<int32_t> narrow(blocks);
  auto steps = StepsOf(&narrow);
  for (auto& step : StepsOf(&wide)) steps.push_back(std::move(step));
  std::vector<int64_t> hashed(kBlockElements);
  exact::BlockSum hash;
  steps.emplace_back("int64_digest", [&](const Kernels&, size_t b) {
    hash.Add(0, static_cast<uint32_t>(b), Arrays<int64_t>::Of(wide.totals, b));
  });
  std::vector<const Kernels*> tables = {&exact::PortableKernels(), &exact::Avx2Kernels()};
  if (exact::Avx512Kernels() != nullptr) tables.push_back(exact::Avx512Kernels());

  std::map<std::string, std::vector<double>> times;
  std::vector<std::string> order;
  for (size_t round = 0; round <= rounds; ++round) {  // the first is not counted
    for (const Kernels* const kernels : tables) {
      for (const auto& [name, step] : steps) {
        const std::string line = fmt::format("{} {}", kernels->name, name);
        const auto begin = std::chrono::steady_clock::now();
        for (size_t b = 0; b < blocks; ++b) step(*kernels, b);
        const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
        if (round == 0) order.push_back(line);
        if (round > 0) times[line].push_back(seconds.count());
      }
    }
  }
  fmt::print("{}\n", blocks * kBlockElements);
  for (const std::string& line : order) {
    fmt::print("{}", line);
    for (const double seconds : times[line]) fmt::print(" {:.9f}", seconds);
    fmt::print("\n");
  }
  return 0;
}

}  // namespace
}  // namespace ringmaster::bench

int main(int argc, char** argv) {
  if (argc != 3) {
    fmt::print(stderr, "usage: codec_speed ELEMENTS ROUNDS: see bench/codec\n");
    return 2;
  }
  return ringmaster::bench::Run(static_cast<size_t>(std::atoll(argv[1])),
                                static_cast<size_t>(std::atoll(argv[2])));
}
