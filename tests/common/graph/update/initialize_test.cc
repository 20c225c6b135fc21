#include "common/graph/update/initialize.h"

#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "common/numeric/philox.h"

namespace ringmaster::graph {
namespace {

std::vector<float> Initial(const Initializer& initializer, uint32_t tensor = 0, uint64_t seed = 1,
                           const std::string& name = "conv1/kernel", size_t n = 1001) {
  Parameter parameter;
  parameter.name = name;
  parameter.initializer = initializer;
  std::vector<float> values(n, -9.0F);
  Initialize(parameter, tensor, seed, values);
  return values;
}

const Initializer kGlorot = GlorotUniform(30, 70);

TEST_CASE("Initialize: constants") {
  CHECK(Initial({}) == std::vector<float>(1001, 0.0F));
  CHECK(Initial({.scale = 1}) == std::vector<float>(1001, 1.0F));
}

TEST_CASE("Initialize: Glorot's uniform fills its interval evenly") {
  const std::vector<float> values = Initial(kGlorot, 0, 1, "w", 100'000);
  const double limit = std::sqrt(6.0 / 100);
  double sum = 0, squares = 0;
  for (const float value : values) {
    sum += value;
    squares += double{value} * value;
  }
  CHECK(*std::ranges::max_element(values) <= limit);
  CHECK(*std::ranges::max_element(values) > 0.999 * limit);
  CHECK(*std::ranges::min_element(values) >= -limit * 1.0000001);
  CHECK(*std::ranges::min_element(values) < -0.999 * limit);
  CHECK(sum / 1e5 == Approx(0).margin(0.002));
  CHECK(squares / 1e5 == Approx(limit * limit / 3).epsilon(0.02));
}

TEST_CASE("Initialize: element i is draw i of the stream of (seed, tensor, name)") {
  const std::vector<float> values = Initial(kGlorot);
  const PhiloxStream stream(1, PhiloxStream::Purpose::kInitialize, 0, 0, "conv1/kernel");
  const auto limit = static_cast<float>(std::sqrt(6.0 / 100));
  for (size_t i = 0; i < values.size(); ++i) {
    REQUIRE(values[i] == (2 * stream.Uniform(i) - 1) * limit);
  }
  CHECK(values != Initial(kGlorot, 1));
  CHECK(values != Initial(kGlorot, 0, 2));
  CHECK(values != Initial(kGlorot, 0, 1, "conv2/kernel"));
}

}  // namespace
}  // namespace ringmaster::graph
