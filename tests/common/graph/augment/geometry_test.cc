// Bytes and distributions are held against Pillow and torchvision by tests/parity/image_parity.py.
#include "common/graph/augment/geometry.h"

#include <catch2/catch.hpp>

#include <set>
#include <tuple>

#include "common/graph/augment/augment.h"

namespace ringmaster::graph {
namespace {

using image::Placement;
using image::Size;
using image::Window;

v1::Augmentation Resize(uint32_t height, uint32_t width) {
  v1::Augmentation op;
  op.mutable_resize()->mutable_size()->add_values(height);
  op.mutable_resize()->mutable_size()->add_values(width);
  op.mutable_resize()->set_antialias(true);
  return op;
}

v1::Augmentation Short(uint32_t side) {
  v1::Augmentation op;
  op.mutable_resize()->set_short_(side);
  return op;
}

v1::Augmentation Center(uint32_t size) {
  v1::Augmentation op;
  op.mutable_center_crop()->mutable_size()->add_values(size);
  return op;
}

v1::Augmentation Fraction(double fraction) {
  v1::Augmentation op;
  op.mutable_center_crop()->set_fraction(fraction);
  return op;
}

v1::Augmentation RandomWindow(uint32_t size) {
  v1::Augmentation op;
  op.mutable_random_crop()->mutable_size()->add_values(size);
  return op;
}

v1::Augmentation RandomArea(uint32_t size, double least = 0.08, double ratio = 4.0 / 3) {
  v1::Augmentation op;
  v1::RandomResizedCrop& crop = *op.mutable_random_resized_crop();
  crop.mutable_size()->add_values(size);
  crop.mutable_scale()->add_values(least);
  crop.mutable_scale()->add_values(1);
  crop.mutable_ratio()->add_values(1 / ratio);
  crop.mutable_ratio()->add_values(ratio);
  return op;
}

v1::Augmentation Mirrored() {
  v1::Augmentation op;
  op.mutable_random_flip();
  return op;
}

using List = std::vector<v1::Augmentation>;

Placement Placed(const List& list, const Size& size, uint64_t step = 0, uint64_t sample = 0,
                 uint64_t seed = 1) {
  return Geometry(list, seed).Place(step, sample, size);
}

TEST_CASE("Geometry: short side and middle, as torchvision rounds") {
  const Placement placed = Placed({Short(256), Center(224)}, {375, 500});
  CHECK(placed.source == Window{0, 0, {375, 500}});
  CHECK(placed.resized == Size{256, 341});  // int(256 * 500 / 375)
  // round((341 - 224) / 2) = round(58.5) = 58: halves go to the even number.
  CHECK(placed.kept == Window{16, 58, {224, 224}});
  CHECK(Placed({Center(3)}, {10, 8}).source == Window{4, 2, {3, 3}});  // 3.5 to 4, 2.5 to 2
}

TEST_CASE("Geometry: a fraction of the shorter side, as the TPU's preprocessing has it") {
  const Placement placed = Placed({Fraction(0.875), Resize(224, 224)}, {375, 500});
  CHECK(placed.source == Window{24, 86, {328, 328}});  // (375 - 328 + 1) / 2
  CHECK(placed.resized == Size{224, 224});
}

TEST_CASE("Geometry: windows of windows") {
  const Placement placed = Placed({Center(20), Center(10), Resize(40, 50), Center(30)}, {50, 60});
  CHECK(placed.source == Window{20, 25, {10, 10}});
  CHECK(placed.resized == Size{40, 50});
  CHECK(placed.kept == Window{5, 10, {30, 30}});
}

TEST_CASE("Geometry: random windows depend on seed, step, sample and place, and on nothing else") {
  const List list = {RandomWindow(24)};
  std::set<std::tuple<uint32_t, uint32_t>> places;
  for (uint64_t sample = 0; sample < 2000; ++sample) {
    const Window window = Placed(list, {32, 32}, 3, sample).source;
    CHECK(window.size == Size{24, 24});
    places.insert({window.top, window.left});
  }
  CHECK(places.size() == 81);  // all of 9 x 9
  const auto at = [&](uint64_t seed, uint64_t step, uint64_t sample) {
    return Placed({RandomArea(8)}, {300, 400}, step, sample, seed).source;
  };
  CHECK(at(1, 2, 3) == at(1, 2, 3));
  CHECK_FALSE(at(2, 2, 3) == at(1, 2, 3));
  CHECK_FALSE(at(1, 3, 3) == at(1, 2, 3));
  CHECK_FALSE(at(1, 2, 4) == at(1, 2, 3));
  const auto second = [](const List& two) { return Placed(two, {300, 400}).source; };
  CHECK_FALSE(second({RandomWindow(300), RandomArea(8)}) == second({Center(300), RandomArea(9)}));
}

TEST_CASE("Geometry: where no window of random area fits it is the middle one") {
  // Wider than any ratio that is allowed: of the whole height, three times as wide.
  const Placement placed = Placed({RandomArea(8, 1, 3)}, {10, 200});
  CHECK(placed.source == Window{0, 85, {10, 30}});
}

TEST_CASE("Geometry: what nobody means ends in some window") {
  const Size line{1, 1'000'000};
  CHECK(Placed({Short(8000), Center(10)}, line).kept.size == Size{10, 10});
  const Window thin = Placed({RandomArea(8, 1, 1e300)}, {7, 9}).source;
  CHECK(thin.top + thin.size.height <= 7);
  CHECK(thin.left + thin.size.width <= 9);
}

TEST_CASE("Geometry: sizes are known before anything is read") {
  const SizeRange any = {{40, 60}, {500, 700}};
  const auto check = [&](const List& list) { return Geometry::Check(list, any); };
  CHECK(*check({RandomArea(8), Mirrored()}) == Size{8, 8});
  CHECK(*check({Short(50), RandomWindow(32)}) == Size{32, 32});
  CHECK(*check({Center(40)}) == Size{40, 40});
  CHECK(*check({Short(256), Fraction(0.875)}) == Size{224, 224});
  CHECK(*check({Short(256), Fraction(0.875), Fraction(0.5)}) == Size{112, 112});
  CHECK(*check({Short(256), Center(100), Fraction(0.5)}) == Size{50, 50});
  CHECK(Placed({Short(256), Fraction(0.875)}, {500, 700}).kept.size == Size{224, 224});
  CHECK(*Geometry::Check({}, {{9, 8}, {9, 8}}) == Size{9, 8});
  CHECK(*Geometry::Check(List{Short(18)}, {{9, 8}, {9, 8}}) == Size{20, 18});
  const auto error = [&](const List& list) { return Message(check(list).status()); };
  CHECK(error({Center(41)}) ==
        "0: a window of 41 x 41 does not fit into images of 40 x 60, as the smallest are here: "
        "resize first");
  CHECK(error({Short(50), Center(51)})
            .find("1: a window of 51 x 51 does not fit into images of 50 x 50") == 0);
  CHECK(error({Mirrored(), Center(8)}) ==
        "1: what changes the size of images stands at the front of the list");
  CHECK(error({Short(50), RandomArea(8)}) == "1: images are resized twice: once is enough");
  CHECK(error({Short(50)}).find("the images are of different sizes") == 0);
  CHECK(error({Fraction(0.5)}).find("the images are of different sizes") == 0);
  CHECK(error({}).find("the images are of different sizes, from 40 x 60 on") == 0);
}

TEST_CASE("Geometry: evaluation takes the middle of what training takes at random") {
  const List list = ForEvaluation(List{RandomArea(224), Mirrored()});
  REQUIRE(list.size() == 2);
  CHECK(list[0].resize().short_() == 256);
  CHECK(list[1].center_crop().size().values(0) == 224);
  CHECK(ForEvaluation(List{RandomWindow(24)})[0].center_crop().size().values(0) == 24);
}

}  // namespace
}  // namespace ringmaster::graph
