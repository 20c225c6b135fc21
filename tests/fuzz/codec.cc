// A packed block as a frame of the ring brings it: the first three bytes say which of the two kinds
// of integer, the width and how many there are. What is behind them is packed.
#include "common/exact/codec.h"

#include <algorithm>
#include <memory>
#include <vector>

#include "common/check.h"
#include "common/exact/kernels.h"

namespace ringmaster {
namespace {

template <typename Integer>
void Look(int width, size_t count, std::span<const uint8_t> bytes) {
  const exact::Kernels& kernels = exact::BestKernels();
  const size_t packed = exact::PackedBytes(width, count);
  // Of exactly this size: whoever reads on is seen.
  const std::unique_ptr<uint8_t[]> in(new uint8_t[packed]());
  std::copy_n(bytes.begin(), std::min(bytes.size(), packed), in.get());
  std::vector<Integer> block(count), again(count), sums(count);
  exact::Unpack(kernels, in.get(), width, std::span(block));
  const int own = exact::Width(kernels, block);
  RING_CHECK(exact::ValidWidth(own) && own <= std::max(width, 2),
             "no wider than what it came from");
  const std::unique_ptr<uint8_t[]> out(new uint8_t[exact::PackedBytes(own, count)]);
  exact::Pack(kernels, block, own, out.get());
  exact::Unpack(kernels, out.get(), own, std::span(again));
  RING_CHECK(again == block, "packed and unpacked");
  const std::vector<Integer> zeros(count);
  RING_CHECK(exact::UnpackSum(kernels, in.get(), width, zeros, sums.data()) == own && sums == block,
             "a sum with nothing");
}

}  // namespace
}  // namespace ringmaster

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ringmaster;
  if (size < 3) return 0;
  const bool narrow = (data[0] & 1) != 0;
  const int width = data[1];
  if (!exact::ValidWidth(width) || (narrow && width > 32)) return 0;
  const size_t count = size_t{1} + data[2];
  const std::span<const uint8_t> bytes(data + 3, size - 3);
  narrow ? Look<int32_t>(width, count, bytes) : Look<int64_t>(width, count, bytes);
  return 0;
}
