#include <stdlib.h>
#include <sys/wait.h>

#include <catch2/catch.hpp>

#include <bit>
#include <random>

#include "common/graph/augment/color_jitter.h"
#include "common/graph/augment/image_ops.h"
#include "common/graph/augment/resize.h"
#include "common/numeric/elementary.h"
#include "common/status.h"
#include "tests/support/temporary_folder.h"

namespace ringmaster::graph {
namespace {

// What reference_images.py answers to the cases, one line each.
StatusOr<std::string> AskReference(const std::string& cases) {
  const TemporaryFolder folder;
  WriteWhole(folder / "cases", cases);
  const std::string command =
      fmt::format("/usr/bin/python3 -I -B '{0}' <'{1}/cases' >'{1}/answer' 2>'{1}/errors'",
                  RINGMASTER_REFERENCE_IMAGES, folder.path());
  const int result = std::system(command.c_str());
  if (result == -1 || !WIFEXITED(result) || WEXITSTATUS(result) != 0) {
    return Internal("reference_images.py ended with {}: {}", result, ReadWhole(folder / "errors"));
  }
  return ReadWhole(folder / "answer");
}

std::string Bits(const std::vector<float>& image) {
  std::string text;
  for (const float x : image) {
    text += fmt::format("{}{:08x}", text.empty() ? "" : " ", std::bit_cast<uint32_t>(x));
  }
  return text + '\n';
}

std::string Bits(double x) { return fmt::format("{:016x}", std::bit_cast<uint64_t>(x)); }

// Cases and what our code makes of them.
class Cases {
 public:
  void Resize(const ImageShape& from, const ImageShape& to) {
    const std::vector<uint8_t> pixels = Pixels(from.elements());
    cases_ += fmt::format("resize {} {} {} {} {}{}\n", from.height, from.width, from.channels,
                          to.height, to.width, Words(pixels));
    std::vector<float> out(to.elements()), rows;
    BilinearResize(from, to).Apply(pixels, &rows, out);
    ours_ += Bits(out);
  }
  void Brighten(double delta) {
    const std::vector<uint8_t> pixels = Pixels(20);
    cases_ += fmt::format("brighten {}{}\n", Bits(delta), Words(pixels));
    std::vector<float> image(pixels.begin(), pixels.end());
    graph::Brighten(delta, image);
    ours_ += Bits(image);
  }
  void Contrast(double factor, const ImageShape& shape) {
    const std::vector<uint8_t> pixels = Pixels(shape.elements());
    cases_ += fmt::format("contrast {} {}{}\n", Bits(factor), shape.channels, Words(pixels));
    std::vector<float> image(pixels.begin(), pixels.end());
    ScaleContrast(factor, shape, image);
    ours_ += Bits(image);
  }
  void Jitter(const char* kind, const JitterDraw& draw, double factor, const ImageShape& shape) {
    std::vector<uint8_t> pixels = Pixels(shape.elements());
    std::fill_n(pixels.begin(), shape.channels, pixels[0]);  // a grey one
    cases_ += fmt::format("jitter {} {} {}{}\n", kind, Bits(factor), shape.channels, Words(pixels));
    std::vector<float> image(pixels.begin(), pixels.end());
    ApplyJitter(draw, shape, image);
    ours_ += Bits(image);
  }
  // `right`: degrees over 90, whose cosine and sine are those of CosinePi.
  void Rotate(double right, int fill, const ImageShape& shape) {
    const std::vector<uint8_t> pixels = Pixels(shape.elements());
    cases_ +=
        fmt::format("rotate {} {} {} {} {}{}\n", Bits(CosinePi((1 - right) / 2)),
                    Bits(CosinePi(right / 2)), fill, shape.height, shape.width, Words(pixels));
    std::vector<float> image(pixels.begin(), pixels.end()), scratch;
    graph::Rotate(90 * right, static_cast<float>(fill), shape, &scratch, image);
    ours_ += Bits(image);
  }
  uint32_t Between(uint32_t low, uint32_t high) { return low + random_() % (high - low + 1); }
  double Real(double low, double high) { return low + (high - low) * (random_() * 0x1p-32); }
  [[nodiscard]] const std::string& cases() const { return cases_; }
  [[nodiscard]] const std::string& ours() const { return ours_; }

 private:
  std::vector<uint8_t> Pixels(size_t count) {
    std::vector<uint8_t> pixels(count);
    for (uint8_t& pixel : pixels) pixel = static_cast<uint8_t>(random_());
    return pixels;
  }
  static std::string Words(const std::vector<uint8_t>& pixels) {
    std::string text;
    for (const uint8_t pixel : pixels) text += fmt::format(" {}", pixel);
    return text;
  }

  std::mt19937 random_{17};
  std::string cases_, ours_;
};

constexpr std::array kOrder = {Jitter::kHue, Jitter::kContrast, Jitter::kBrightness,
                               Jitter::kSaturation};

void AddJitters(Cases* cases) {
  for (const uint32_t channels : {3U, 1U}) {
    for (int i = 0; i < 20; ++i) {
      const ImageShape shape = {cases->Between(1, 9), cases->Between(1, 9), channels};
      const double factor = cases->Real(0, 2.5);
      cases->Jitter("brightness", {.brightness = factor, .order = kOrder}, factor, shape);
      cases->Jitter("contrast", {.contrast = factor, .order = kOrder}, factor, shape);
      cases->Jitter("saturation", {.saturation = factor, .order = kOrder}, factor, shape);
    }
  }
}

TEST_CASE("Reference: resized, brightened and contrasted images equal Python's fractions") {
  Cases cases;
  for (int i = 0; i < 40; ++i) {
    const uint32_t channels = cases.Between(1, 3);
    cases.Resize({cases.Between(1, 12), cases.Between(1, 12), channels},
                 {cases.Between(1, 15), cases.Between(1, 15), channels});
  }
  cases.Resize({28, 28, 1}, {33, 61, 1});
  for (int i = 0; i < 20; ++i) cases.Brighten(cases.Real(-63, 63));
  for (int i = 0; i < 20; ++i) {
    cases.Contrast(cases.Real(0.2, 1.8), {cases.Between(1, 9), cases.Between(1, 9), 3});
  }
  cases.Contrast(1.7, {32, 32, 1});
  AddJitters(&cases);
  // Angles whose fractions of 90 degrees are exact.
  for (const double right : {0.0, 0.125, 0.3125, 0.5, 0.8125, 1.0}) {
    cases.Rotate(right, 7, {cases.Between(1, 9), cases.Between(1, 9), 1});
  }
  const StatusOr<std::string> expected = AskReference(cases.cases());
  INFO(expected.status());
  REQUIRE(expected.ok());
  CHECK(cases.ours() == *expected);
}

// Numbers of one line.
std::vector<double> Values(const std::string& line) {
  std::vector<double> values;
  for (size_t at = 0; at + 8 <= line.size(); at += 9) {
    values.push_back(
        std::bit_cast<float>(static_cast<uint32_t>(std::stoul(line.substr(at, 8), nullptr, 16))));
  }
  return values;
}

TEST_CASE("Reference: a turned hue is that of colorsys' formulas to the last place") {
  for (int i = 0; i < 40; ++i) {
    Cases cases;
    for (int skip = 0; skip < i; ++skip) (void)cases.Between(0, 1);
    const double hue = cases.Real(-0.5, 0.5);
    cases.Jitter("hue", {.hue = hue, .order = kOrder}, hue, {5, 7, 3});
    const StatusOr<std::string> expected = AskReference(cases.cases());
    REQUIRE(expected.ok());
    const std::vector<double> ours = Values(cases.ours()), theirs = Values(*expected);
    REQUIRE(ours.size() == 105);
    REQUIRE(theirs.size() == ours.size());
    for (size_t k = 0; k < ours.size(); ++k) {
      REQUIRE(ours[k] == Approx(theirs[k]).epsilon(0x1p-23).margin(1e-12));
    }
  }
}

}  // namespace
}  // namespace ringmaster::graph
