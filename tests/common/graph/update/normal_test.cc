#include "common/graph/update/initialize.h"

#include <catch2/catch.hpp>

#include <cmath>

#include "common/numeric/philox.h"

namespace ringmaster::graph {
namespace {

std::vector<float> Draw(Initializer::Kind kind, double scale, size_t n) {
  Parameter parameter;
  parameter.name = "w";
  parameter.initializer = {kind, scale};
  std::vector<float> values(n);
  Initialize(parameter, 0, 1, values);
  return values;
}

double Mean(const std::vector<float>& values) {
  double sum = 0;
  for (const float value : values) sum += double{value};
  return sum / static_cast<double>(values.size());
}

double MeanSquare(const std::vector<float>& values) {
  double sum = 0;
  for (const float value : values) sum += double{value} * double{value};
  return sum / static_cast<double>(values.size());
}

}  // namespace

TEST_CASE("Normal: quantiles are those of tables, both tails alike") {
  // Python's statistics.NormalDist().inv_cdf: near the middle, in the tail, far out.
  CHECK(NormalQuantile(0.3) == Approx(-0.5244005127080407).epsilon(1e-15));
  CHECK(NormalQuantile(0.05) == Approx(-1.6448536269514726).epsilon(1e-15));
  CHECK(NormalQuantile(0.01) == Approx(-2.3263478740408408).epsilon(1e-15));
  CHECK(NormalQuantile(1e-9) == Approx(-5.9978070150076865).epsilon(1e-15));
  CHECK(NormalQuantile(1e-12) == Approx(-7.034483825301132).epsilon(1e-15));
  CHECK(NormalQuantile(0.5) == 0);
  CHECK(NormalQuantile(0.875) == -NormalQuantile(0.125));
  CHECK(NormalQuantile(1 - 0x1p-20) == -NormalQuantile(0x1p-20));
}

TEST_CASE("Initialize: normal, and normal cut at two deviations") {
  const std::vector<float> normal = Draw(Initializer::Kind::kNormal, 0.02, 100'000);
  CHECK(Mean(normal) == Approx(0).margin(2e-4));
  CHECK(MeanSquare(normal) == Approx(0.02 * 0.02).epsilon(0.02));
  const std::vector<float> cut = Draw(Initializer::Kind::kTruncatedNormal, 1, 100'000);
  for (const float value : cut) REQUIRE(std::abs(value) <= 2.0F);
  CHECK(Mean(cut) == Approx(0).margin(1e-2));
  // What kCutDeviation of common/graph/layers makes up for.
  CHECK(MeanSquare(cut) == Approx(0.87962566103423978 * 0.87962566103423978).epsilon(0.02));
}

TEST_CASE("Initialize: element i of a normal is made of word i of the stream") {
  const std::vector<float> values = Draw(Initializer::Kind::kNormal, 0.5, 100);
  const PhiloxStream stream(1, PhiloxStream::Purpose::kInitialize, 0, 0, "w");
  for (size_t i = 0; i < values.size(); ++i) {
    const double u = (static_cast<double>(stream.At(i)) + 0.5) / 0x1p32;
    REQUIRE(values[i] == static_cast<float>(NormalQuantile(u) * 0.5));
  }
}

}  // namespace ringmaster::graph
