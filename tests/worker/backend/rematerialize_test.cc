// Programs that compute values again, against the same programs that keep them: of every family of
// the zoo, with dropout and drop-connect where it has them.
#include <algorithm>
#include <catch2/catch.hpp>
#include <span>
#include <string>
#include <vector>

#include "tests/support/bound_program.h"
#include "tests/support/model_option.h"
#include "tests/support/program_feeds.h"
#include "tests/support/zoo_program.h"
#include "tests/worker/backend/backend_under_test.h"

namespace ringmaster {
namespace {

struct SmallModel {
  const char* name;
  int64_t samples, edge;
  double dropout = 0;  // 0: the model's own
  bool batch_norm = false;
  bool smaller = true;  // whether that is not all gradients and scratch
};
constexpr size_t kQuickModels = 3;  // the first ones
constexpr SmallModel kSmallModels[] = {
    {.name = "alexnet", .samples = 8, .edge = 32, .dropout = 0.2, .batch_norm = true},
    {.name = "mobilenetv2", .samples = 4, .edge = 32},
    {.name = "resnet20", .samples = 4, .edge = 32},
    {.name = "efficientnetb0", .samples = 4, .edge = 32, .dropout = 0.2},
    {.name = "inceptionv3", .samples = 2, .edge = 75},
    {.name = "mlp", .samples = 4, .edge = 32, .dropout = 0.2, .smaller = false},
    {.name = "mobilenet", .samples = 4, .edge = 32, .dropout = 0.1},
    {.name = "nasnetmobile", .samples = 2, .edge = 32},
    {.name = "resnet50gn", .samples = 2, .edge = 32},
    {.name = "vgg", .samples = 4, .edge = 32, .dropout = 0.5, .batch_norm = true},
};

graph::Program ProgramOf(const SmallModel& small, v1::Policy policy, bool rematerialize) {
  v1::Model model = zoo::Model(small.name);
  if (small.dropout > 0) testing::SetOption("dropout", small.dropout, &model);
  if (small.batch_norm) testing::SetOption("batch_norm", true, &model);
  v1::MemoryOptions memory;
  memory.set_rematerialize(rematerialize);
  auto program = zoo::BuildProgram(model, {.samples = small.samples,
                                           .data = {small.edge, small.edge, 3, 10},
                                           .policy = policy,
                                           .memory = memory});
  REQUIRE(Message(program.status()) == "");
  return *std::move(program);
}

struct Ran {
  std::string hash;
  std::vector<uint32_t> order;
  size_t bytes = 0;
};

StatusOr<Ran> Run(const graph::Program& program) {
  const auto backend = testing::MakeBackendUnderTest();
  REQUIRE(Message(backend.status()) == "");
  auto bound = testing::BoundProgram::Create(**backend, program);
  RING_RETURN_IF_ERROR(bound.status());
  const auto result = (*bound)->Run(testing::FeedProgram(program), testing::KeysOf(program));
  REQUIRE(Message(result.status()) == "");
  return Ran{result->Hash(), result->order, (*bound)->core().memory_bytes()};
}

void CheckSameBits(std::span<const SmallModel> models) {
  const v1::Policy policy = GENERATE(v1::POLICY_FLOAT32, v1::POLICY_MIXED_BFLOAT16);
  for (const SmallModel& small : models) {
    INFO(small.name << ", " << v1::Policy_Name(policy));
    const graph::Program kept = ProgramOf(small, policy, false);
    const graph::Program again = ProgramOf(small, policy, true);
    const StatusOr<Ran> with = Run(again), without = Run(kept);
    REQUIRE(Message(with.status()) == "");
    REQUIRE(Message(without.status()) == "");
    CHECK(with->hash == without->hash);
    CHECK(with->order == without->order);
    // What the pass plans is values alone; a GPU's kernels have scratch beside them, which may grow
    // by its alignment.
    const size_t scratch = testing::BackendName() == "CPU" ? 0 : without->bytes / 1000;
    CHECK(with->bytes <= without->bytes + scratch);
    if (small.smaller || scratch == 0) {
      CHECK((with->bytes < without->bytes) == small.smaller);
    }
  }
}

}  // namespace

TEST_CASE("Rematerialize: the same bits, and never more memory") {
  CheckSameBits(std::span(kSmallModels).first(kQuickModels));
}

TEST_CASE("Rematerialize: the same bits for every family of the zoo", "[nightly]") {
  CheckSameBits(kSmallModels);
}

}  // namespace ringmaster
