#include "common/graph/augment/resize.h"

#include <catch2/catch.hpp>

#include <numeric>

namespace ringmaster::graph {
namespace {

std::vector<float> Resized(const ImageShape& from, const ImageShape& to,
                           const std::vector<uint8_t>& pixels) {
  std::vector<float> out(to.elements(), -9.0F), rows;
  BilinearResize(from, to).Apply(pixels, &rows, out);
  return out;
}

std::vector<float> ResizedRow(uint32_t to, const std::vector<uint8_t>& pixels) {
  return Resized({1, static_cast<uint32_t>(pixels.size()), 1}, {1, to, 1}, pixels);
}

TEST_CASE("Resize: twice as wide takes quarters between two pixels, and the edge as it is") {
  CHECK(ResizedRow(4, {10, 20}) == std::vector<float>{10, 12.5F, 17.5F, 20});
}

TEST_CASE("Resize: half as wide takes the mean of the two pixels in the middle") {
  CHECK(ResizedRow(2, {0, 10, 20, 30}) == std::vector<float>{5, 25});
  // Not of all three that it covers: there is no anti-aliasing.
  CHECK(ResizedRow(1, {0, 10, 255}) == std::vector<float>{10});
}

TEST_CASE("Resize: from three to two, weights are exact quotients rounded once") {
  // Output 0 lies at 1/4 of input 0 to 1, output 1 at 3/4 of 1 to 2.
  CHECK(ResizedRow(2, {0, 100, 200}) == std::vector<float>{25, 175});
  // Output 1 of 3 to 5 lies at 4/10, output 3 at 1 + 6/10.
  const std::vector<float> out = ResizedRow(5, {0, 100, 200});
  CHECK(out == std::vector<float>{0, 100 * (4.0F / 10.0F), 100, 100 + 100 * (6.0F / 10.0F), 200});
}

TEST_CASE("Resize: the same size is the same image, also of one pixel") {
  std::vector<uint8_t> pixels(4 * 3 * 2);
  std::iota(pixels.begin(), pixels.end(), uint8_t{200});
  const std::vector<float> same = Resized({4, 3, 2}, {4, 3, 2}, pixels);
  CHECK(std::equal(same.begin(), same.end(), pixels.begin()));
  CHECK(Resized({1, 1, 1}, {2, 3, 1}, {7}) == std::vector<float>(6, 7.0F));
}

TEST_CASE("Resize: rows and channels, first along x, then along y") {
  // Two channels, the second is ten times the first.
  const std::vector<uint8_t> pixels = {0, 0, 4, 40, 8, 80, 20, 200};
  const std::vector<float> out = Resized({2, 2, 2}, {4, 4, 2}, pixels);
  const float first[4][4] = {
      {0, 1, 3, 4}, {2, 3.5F, 6.5F, 8}, {6, 8.5F, 13.5F, 16}, {8, 11, 17, 20}};
  for (size_t i = 0; i < 16; ++i) {
    CHECK(out[2 * i] == first[i / 4][i % 4]);
    CHECK(out[2 * i + 1] == 10 * first[i / 4][i % 4]);
  }
}

TEST_CASE("Resize: smaller than half skips rows, and each row is still its own") {
  // 7 rows to 2: rows at 5/4 and 19/4.
  const std::vector<float> out = Resized({7, 1, 1}, {2, 1, 1}, {0, 10, 20, 30, 40, 50, 60});
  CHECK(out == std::vector<float>{12.5F, 47.5F});
}

}  // namespace
}  // namespace ringmaster::graph
