#include "worker/backend/refresh_input.h"

#include <catch2/catch.hpp>

#include "tests/worker/backend/model_program.h"

namespace ringmaster {
namespace {

exact::BlockLayout LayoutOf(const std::vector<uint64_t>& elements) {
  std::vector<exact::BlockLayout::Tensor> tensors;
  for (uint32_t p = 0; p < elements.size(); ++p) tensors.push_back({p, elements[p]});
  auto layout = exact::BlockLayout::Create(tensors);
  REQUIRE(layout.ok());
  return *std::move(layout);
}

}  // namespace

TEST_CASE("Refresh: what is not of the program is refused") {
  const auto program = testing::ModelProgram({.samples = 1});
  REQUIRE(program.ok());
  const RefreshSizes sizes(*program);
  REQUIRE(sizes.parameters.size() == program->parameters.size());
  REQUIRE(sizes.channels.size() == program->normalizations.size());
  size_t channels = 0;
  for (const uint64_t count : sizes.channels) channels += count;
  REQUIRE(channels > 1);

  const exact::BlockLayout layout = LayoutOf(sizes.parameters);
  const std::vector<float> values(layout.arena_elements());
  const std::vector<float> moving(channels);
  CHECK(sizes.Check(layout, values, moving, moving).ok());

  const auto short_values = std::span(values).first(values.size() - 1);
  CHECK(absl::IsInvalidArgument(sizes.Check(layout, short_values, moving, moving)));
  const auto short_moving = std::span(moving).first(channels - 1);
  CHECK(Message(sizes.Check(layout, values, short_moving, moving)) ==
        fmt::format("weights: expected {0} moving means and variances, got {1} and {0}", channels,
                    channels - 1));
  CHECK(absl::IsInvalidArgument(sizes.Check(layout, values, moving, short_moving)));

  std::vector<uint64_t> other = sizes.parameters;
  ++other[2];
  const exact::BlockLayout other_layout = LayoutOf(other);
  const std::vector<float> other_values(other_layout.arena_elements());
  CHECK(Message(sizes.Check(other_layout, other_values, moving, moving)) ==
        fmt::format("weights: expected parameter 2 to have {} elements, got {}",
                    sizes.parameters[2], other[2]));
  other.pop_back();
  CHECK(absl::IsInvalidArgument(sizes.Check(LayoutOf(other), other_values, moving, moving)));
}

}  // namespace ringmaster
