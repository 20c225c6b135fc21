// What `ringworker plan` says, held against what binding takes.
#include "worker/plan.h"

#include <catch2/catch.hpp>

#include <sstream>

#include <nlohmann/json.hpp>

#include "common/job/job_file.h"
#include "worker/offline_job.h"
#include "worker/train/shard_shapes.h"

namespace ringmaster::worker {
namespace {

constexpr char kPlannedJob[] = R"(
name: planned
model: {name: mlp, hidden: [64, 32]}
data: {format: mnist, path: mnist, take: 96, take_test: 48}
batch: 96
shards: 3
epochs: 1
optimizer: {adam: {}}
)";

v1::JobSpec PlannedSpec() {
  auto spec = job::ParseJobFile("job.yaml", kPlannedJob, {});
  REQUIRE(Message(spec.status()) == "");
  return *spec;
}

PlanFlags FlagsOf(uint64_t memory) { return {.cores = 2, .workers = 3, .memory_per_core = memory}; }

JobPlan Planned(uint64_t memory, Backend* backend) {
  const auto plan = PlanJob(PlannedSpec(), FlagsOf(memory), backend);
  REQUIRE(Message(plan.status()) == "");
  return *plan;
}

// Whether a core with that limit binds every program of a job of so many samples a step.
Status Bound(uint64_t batch, uint64_t memory, Backend* backend) {
  v1::JobSpec spec = PlannedSpec();
  spec.set_batch(static_cast<uint32_t>(batch));
  spec.mutable_data()->set_take(batch);
  spec.mutable_data()->set_take_test(batch);
  const auto result = ResultWithoutCluster(spec, "");
  REQUIRE(result.ok());
  const auto programs = ProgramSet::Build(*result);
  REQUIRE(programs.ok());
  const auto weights = backend->MakeWeights(programs->training());
  const auto core = backend->MakeCore({.name = "core", .threads = 1, .memory_bytes = memory});
  REQUIRE(core.ok());
  for (const auto& [shape, program] : programs->programs()) {
    const auto bound = (*core)->Bind(program, **weights, nullptr);
    if (!bound.ok()) return bound.status();
  }
  return absl::OkStatus();
}

uint64_t Steps(uint64_t limit, uint64_t most, const std::function<uint64_t(uint64_t)>& bytes,
               int* calls) {
  *calls = 0;
  const auto found = LargestWithin(limit, most, [&](uint64_t n) -> StatusOr<uint64_t> {
    ++*calls;
    return bytes(n);
  });
  REQUIRE(found.ok());
  return *found;
}

}  // namespace

TEST_CASE("Plan: the largest that fits is found wherever it is") {
  int calls = 0;
  const auto affine = [](uint64_t n) { return 1000 + 7 * n; };
  CHECK(Steps(1006, 1 << 24, affine, &calls) == 0);
  CHECK(Steps(1007, 1 << 24, affine, &calls) == 1);
  CHECK(Steps(1'000'000, 1 << 24, affine, &calls) == 142'714);
  CHECK(calls <= 8);
  CHECK(Steps(1'000'000, 5, affine, &calls) == 5);
  CHECK(Steps(1'000'000, 1, affine, &calls) == 1);
  // Alignment, and a kernel that another size makes hungry.
  const auto steps = [](uint64_t n) {
    return (n * 100 + 4095) / 4096 * 4096 + (n > 700 ? 50'000 : 0);
  };
  CHECK(Steps(100'000, 1 << 24, steps, &calls) == 700);
  CHECK(calls <= 40);
  const auto flat = [](uint64_t) { return uint64_t{5}; };
  CHECK(Steps(5, 1000, flat, &calls) == 1000);
  // What cannot be built is too large; of one sample it is an error.
  const auto unbuildable = [](uint64_t n) -> StatusOr<uint64_t> {
    if (n > 3) return InvalidArgument("too many elements");
    return n;
  };
  CHECK(*LargestWithin(100, 1 << 24, unbuildable) == 3);
  const auto never = [](uint64_t) -> StatusOr<uint64_t> { return InvalidArgument("no"); };
  CHECK(Message(LargestWithin(100, 1 << 24, never).status()) == "no");
}

TEST_CASE("Plan: its word is good: the batch that it names binds, and one more sample does not") {
  const auto backend = MakeBackend("cpu");
  REQUIRE(backend.ok());
  constexpr uint64_t kMemory = 3 << 20;
  const JobPlan plan = Planned(kMemory, backend->get());
  CHECK(plan.fits());
  REQUIRE(plan.largest_batch > 96);
  CHECK(plan.largest_batch % 3 == 0);
  CHECK(Message(Bound(plan.largest_batch, kMemory, backend->get())) == "");
  CHECK(absl::IsResourceExhausted(Bound(plan.largest_batch + 3, kMemory, backend->get())));
  // To the byte.
  CHECK(Message(Bound(96, plan.core_bytes, backend->get())) == "");
  CHECK(absl::IsResourceExhausted(Bound(96, plan.core_bytes - 1, backend->get())));
}

TEST_CASE("Plan: what does not fit is said, with what does") {
  const auto backend = MakeBackend("cpu");
  REQUIRE(backend.ok());
  const uint64_t most = Planned(1 << 30, backend->get()).core_bytes;
  const JobPlan plan = Planned(most - 64, backend->get());
  CHECK_FALSE(plan.core_fits());
  CHECK_FALSE(plan.fits());
  CHECK(plan.largest_batch < 96);
  std::ostringstream text;
  PrintPlan(plan, text);
  CHECK(text.str().find("does not fit") != std::string::npos);
  CHECK(text.str().find(fmt::format("advice: batch {} fits", plan.largest_batch)) !=
        std::string::npos);
}

TEST_CASE("Plan: lengths that no step is known for are no reason to refuse a job") {
  const auto backend = MakeBackend("cpu");
  REQUIRE(backend.ok());
  v1::JobSpec spec = PlannedSpec();
  spec.mutable_data()->clear_take();
  spec.mutable_optimizer()->mutable_schedule()->mutable_warmup()->mutable_over()->set_updates(500);
  spec.mutable_optimizer()->mutable_schedule()->mutable_cosine();
  spec.mutable_optimizer()->mutable_ema()->set_start_update(1000);
  const auto plan = PlanJob(spec, FlagsOf(1 << 30), backend->get());
  REQUIRE(Message(plan.status()) == "");
  // The average is a slot: a third of the state beside Adam's two.
  CHECK(plan->host.parts[1].bytes == 3 * plan->host.parts[0].bytes);
}

TEST_CASE("Plan: for programs") {
  const auto backend = MakeBackend("cpu");
  REQUIRE(backend.ok());
  const JobPlan plan = Planned(1 << 30, backend->get());
  const auto json = nlohmann::json::parse(ToJson(plan));
  CHECK(json["fits"] == true);
  CHECK(json["largest_batch"] == plan.largest_batch);
  CHECK(json["bytes_per_core"]["cpu"] == plan.core_bytes);
  CHECK(json["host_bytes"] == plan.host.total);
  CHECK(json["seconds_per_step"].is_null());
  REQUIRE(json["peak"].size() <= 10);
  CHECK(json["peak"][0].contains("shape"));
  CHECK(json["peak"][0]["bytes"] >= json["peak"][1]["bytes"]);
  // 784 x 64 + 64 + 64 x 32 + 32 + 32 x 10 + 10 elements, two thirds of them twice, at 24 bits:
  // 21, one for the sign and two for the sum of three.
  CHECK(json["wire_bytes_per_step"] == 2 * 2 * (52'650 / 3) * 24 / 8);
  REQUIRE(json["advice"].size() == 1);
  CHECK(json["advice"][0] == "3 of 6 cores of 3 workers have nothing to do with 3 shards");
}

}  // namespace ringmaster::worker
