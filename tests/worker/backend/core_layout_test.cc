#include "worker/backend/core_layout.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <set>
#include <vector>

#include "tests/worker/backend/model_program.h"
#include "worker/backend/failure.h"
#include "worker/backend/shard_io.h"

namespace ringmaster {

using Catch::Contains;

TEST_CASE("Core layout: gradients lie behind the arena, aligned, each in bytes of its own") {
  for (const size_t alignment : {size_t{64}, size_t{256}}) {
    const auto program = testing::ModelProgram({.samples = 2});
    REQUIRE(program.ok());
    std::vector<size_t> workspace(program->graph.nodes().size());
    workspace[3] = 1000;
    const CoreLayout layout = LayOut(*program, alignment, workspace);
    CHECK(layout.plan.workspaces[3].bytes == 1000);
    size_t end = layout.plan.arena_bytes;
    for (size_t p = 0; p < program->parameters.size(); ++p) {
      CHECK(layout.gradients[p] % alignment == 0);
      CHECK(layout.gradients[p] >= end);
      end = layout.gradients[p] +
            sizeof(float) * ElementsOf(*program, program->parameters[p].gradient);
    }
    CHECK(layout.bytes >= end);
    CHECK(layout.bytes < end + alignment);
  }
}

TEST_CASE("Core layout: addresses of what has bytes, null for parameters and moving statistics") {
  for (const graph::Mode mode : {graph::Mode::kTraining, graph::Mode::kInference}) {
    const auto program = testing::ModelProgram({.samples = 2, .mode = mode});
    REQUIRE(program.ok());
    const CoreLayout layout = LayOut(*program, 64, {});
    std::vector<std::byte> memory(layout.bytes);
    const std::vector<void*> addresses = AddressesOf(*program, layout, memory.data());
    std::set<graph::ValueId> outside;
    for (const graph::Parameter& parameter : program->parameters) outside.insert(parameter.value);
    for (const graph::Normalization& normalization : program->normalizations) {
      outside.insert({normalization.moving_mean, normalization.moving_variance});
    }
    REQUIRE(addresses.size() == program->graph.values().size());
    for (size_t v = 0; v < addresses.size(); ++v) {
      INFO(program->graph.values()[v].name);
      const auto* const address = static_cast<std::byte*>(addresses[v]);
      if (outside.contains(static_cast<graph::ValueId>(v))) {
        CHECK(address == nullptr);
      } else {
        CHECK(address >= memory.data());
        CHECK(address < memory.data() + memory.size());
      }
    }
    for (size_t p = 0; mode == graph::Mode::kTraining && p < program->parameters.size(); ++p) {
      const graph::ValueId gradient = program->parameters[p].gradient;
      CHECK(addresses[static_cast<size_t>(gradient)] == memory.data() + layout.gradients[p]);
    }
  }
}

TEST_CASE(
    "Core layout: gradients that are taken at once lie in the arena, those in pieces nowhere") {
  const auto program = testing::ModelProgram({.samples = 2});
  REQUIRE(program.ok());
  const auto largest = std::ranges::max_element(program->parameters, {}, [](const auto& parameter) {
    return graph::Elements(parameter.shape);
  });
  const graph::ValueId in_pieces = largest->gradient;
  const CoreLayout layout = LayOut(*program, 64, {}, std::vector{in_pieces});
  CHECK(layout.gradients.empty());
  CHECK(layout.bytes == AlignUp(layout.plan.arena_bytes, 64));
  CHECK(layout.bytes < LayOut(*program, 64, {}, std::vector<graph::ValueId>()).bytes);
  CHECK(layout.bytes < LayOut(*program, 64, {}).bytes);
  std::vector<std::byte> memory(layout.bytes);
  const std::vector<void*> addresses = AddressesOf(*program, layout, memory.data());
  const std::vector<graph::NodeId> nodes = GradientNodes(*program);
  for (size_t i = 0; i < nodes.size(); ++i) {
    const graph::ValueId gradient = program->parameters[program->gradient_order[i]].gradient;
    const graph::Placement& placement = layout.plan.values[static_cast<size_t>(gradient)];
    INFO(program->graph.value(gradient).name);
    CHECK((addresses[static_cast<size_t>(gradient)] == nullptr) == (gradient == in_pieces));
    if (gradient == in_pieces) continue;
    CHECK(placement.bytes == sizeof(float) * ElementsOf(*program, gradient));
    CHECK(placement.last >= nodes[i]);
  }
  CHECK_THAT(Message(CheckFits(*program, layout, 0, 1)), !Contains(", gradients "));
}

TEST_CASE("Core layout: what does not fit is refused with the plan") {
  const auto program = testing::ModelProgram({.samples = 64});
  REQUIRE(program.ok());
  const CoreLayout layout = LayOut(*program, 256, {});
  CHECK(CheckFits(*program, layout, 1, layout.bytes + 1).ok());
  CHECK_THAT(Message(CheckFits(*program, layout, 3 << 20, layout.bytes + 1)),
             Contains("(exceeded by 3.0 MiB)") && Contains(", weights, state and input 3.0 MiB\n"));
  const Status status = CheckFits(*program, layout, 0, size_t{32} << 20);
  CHECK(absl::IsResourceExhausted(status));
  CHECK(FailureOf(status) == v1::FAILURE_CODE_MEMORY);
  CHECK_THAT(Message(status), Catch::StartsWith("Used ") &&
                                  Contains("of 32.0 MiB memory per core") &&
                                  Contains("(64, 32, 32, 96) float32"));
  CHECK_THAT(Message(status), !Contains("pixels"));
  CoreLayout with_pixels = layout;
  with_pixels.bytes += size_t{5} << 20;
  with_pixels.input_bytes = size_t{5} << 20;
  const std::string gradients =
      Message(status).substr(0, Message(status).find('\n')).substr(Message(status).find("arena"));
  CHECK_THAT(Message(CheckFits(*program, with_pixels, 0, size_t{32} << 20)),
             Contains(gradients + ", pixels 5.0 MiB\n"));
}

}  // namespace ringmaster
