// What `ringworker plan` says, held against what binding takes.
#include "worker/plan.h"

#include <catch2/catch.hpp>

#include <algorithm>
#include <sstream>

#include <nlohmann/json.hpp>

#include "common/amount.h"
#include "common/data/sample_data.h"
#include "common/job/job_file.h"
#include "common/job/resolve.h"
#include "tests/support/temporary_folder.h"
#include "worker/backend/pjrt/tpus.h"
#include "worker/profile.h"
#include "worker/train/trainer.h"

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

FilePlan Planned(uint64_t memory, Backend* backend) {
  const auto plan = PlanJob(PlannedSpec(), FlagsOf(memory), backend);
  REQUIRE(Message(plan.status()) == "");
  return *plan;
}

// Whether a worker of two cores with that limit prepares a job of so many samples a step.
Status Prepared(uint64_t batch, uint64_t memory, Backend* backend) {
  v1::JobSpec spec = PlannedSpec();
  spec.set_batch(static_cast<uint32_t>(batch));
  const TemporaryFolder temporary;
  const std::string folder = temporary.path();
  RING_RETURN_IF_ERROR(
      data::MakeSampleData(folder + "/mnist", {.format = "mnist", .train = batch, .test = 48}));
  spec.mutable_data()->set_take(batch);
  RING_ASSIGN_OR_RETURN(const auto dataset, data::Dataset::Open({folder, ""}, spec.data()));
  RING_ASSIGN_OR_RETURN(const v1::ResolvedJob resolved,
                        job::Resolve(spec, dataset->facts(), backend->numerics_class(1)));
  const std::vector<CoreOptions> cores = {{.name = "core0", .memory_bytes = memory},
                                          {.name = "core1", .memory_bytes = memory}};
  return Trainer::Prepare(JobId("job"), resolved, dataset, backend, cores).status();
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

TEST_CASE("Plan: its word is good: the batch that it names is prepared, and one more is not") {
  const auto backend = MakeBackend("cpu");
  REQUIRE(backend.ok());
  constexpr uint64_t kMemory = 24 << 20;
  const JobPlan plan = Planned(kMemory, backend->get()).job;
  CHECK(plan.fits());
  REQUIRE(plan.largest_batch > 96);
  CHECK(plan.largest_batch % 3 == 0);
  CHECK(Message(Prepared(plan.largest_batch, kMemory, backend->get())) == "");
  const Status refused = Prepared(plan.largest_batch + 3, kMemory, backend->get());
  CHECK(absl::IsResourceExhausted(refused));
  const std::string words = Message(refused);
  INFO(words);
  CHECK(words.find(" of 24.0 MiB memory per core (exceeded by ") != std::string::npos);
  CHECK(words.find("\nlargest batch   ") != std::string::npos);
  CHECK(words.find("a core's largest buffers while ") != std::string::npos);
  // To the byte, whatever the number of workers.
  CHECK(Message(Prepared(96, plan.needed(), backend->get())) == "");
  CHECK(absl::IsResourceExhausted(Prepared(96, plan.needed() - 1, backend->get())));
}

TEST_CASE("Plan: what does not fit is said, with what does") {
  const auto backend = MakeBackend("cpu");
  REQUIRE(backend.ok());
  const uint64_t most = Planned(1 << 30, backend->get()).job.needed();
  const FilePlan plan = Planned(most - 64, backend->get());
  CHECK_FALSE(plan.job.fits());
  CHECK(plan.job.largest_batch < 96);
  std::ostringstream text;
  PrintPlan(plan, text);
  CHECK(text.str().find("does not fit") != std::string::npos);
  CHECK(text.str().find(fmt::format("advice: batch {} fits", plan.job.largest_batch)) !=
        std::string::npos);
}

TEST_CASE("Plan: what rematerializing would save is said, and counts where the job has it") {
  const auto backend = MakeBackend("cpu");
  REQUIRE(backend.ok());
  const auto planned = [&](bool on) {
    const auto spec = job::ParseJobFile(
        "job.yaml", kPlannedJob,
        {"model={name: resnet20}", "data={format: cifar10, path: cifar10, take: 96, take_test: 48}",
         fmt::format("memory.rematerialize={}", on)});
    REQUIRE(Message(spec.status()) == "");
    const auto plan = PlanJob(*spec, FlagsOf(256 << 20), backend->get());
    REQUIRE(Message(plan.status()) == "");
    return plan->job;
  };
  const JobPlan off = planned(false), on = planned(true);
  CHECK_FALSE(off.rematerialize.on);
  CHECK(on.rematerialize.on);
  for (const JobPlan* plan : {&off, &on}) {
    CHECK(plan->rematerialize.needed_without == off.needed());
    CHECK(plan->rematerialize.needed_with == on.needed());
    CHECK(plan->rematerialize.operations > 1);
    CHECK(plan->rematerialize.operations < 1.34);  // a forward pass again
  }
  CHECK(static_cast<double>(on.core_bytes) < 0.6 * static_cast<double>(off.core_bytes));
  CHECK(on.largest_batch > off.largest_batch);
  const std::string advice = fmt::format(
      "memory: {{rematerialize: true}} would need {} instead of ", FormatBytes(on.needed()));
  const auto advises = [&](const JobPlan& plan) {
    return std::ranges::any_of(plan.advice,
                               [&](const std::string& line) { return line.starts_with(advice); });
  };
  CHECK(advises(off));
  CHECK_FALSE(advises(on));
}

TEST_CASE("Plan: on TPUs tiles count, and the host's memory does not") {
  const auto tpu = pjrt::MakeTpuPlanner("TPU v2");
  PlanFlags flags = FlagsOf(uint64_t{8} << 30);
  flags.cores = 8;
  flags.workers = 1;
  v1::JobSpec spec = PlannedSpec();
  spec.set_shards(8);
  const auto text_of = [&](uint32_t batch) {
    spec.set_batch(batch);
    const auto plan = PlanJob(spec, flags, tpu.get());
    REQUIRE(Message(plan.status()) == "");
    std::ostringstream text;
    PrintPlan(*plan, text);
    return std::pair(*plan, text.str());
  };
  const auto [small, said] = text_of(1024);
  INFO(said);
  CHECK(small.job.fits());
  CHECK(small.job.samples == 128);
  CHECK(small.job.needed() == small.job.core_bytes);
  CHECK(small.job.core_bytes > small.job.element_bytes);
  CHECK(said.find("batch 1024 in 8 shards of at most 128 samples, on 8 cores") !=
        std::string::npos);
  CHECK(said.find(" of 8.00G hbm: fits") != std::string::npos);
  CHECK(said.find("fill up tiles of 8 x 128") != std::string::npos);
  CHECK(small.job.advice.empty());
  const auto part = [&small](const char* what) {
    const auto found = std::ranges::find(small.job.host.always, what, &WorkerMemory::Part::what);
    return found == small.job.host.always.end() ? 0 : found->bytes;
  };
  // Images go to each core, and gradients come back from it. An arena has more, up to whole blocks.
  const uint64_t parameters = 9 * part("parameters") / 10;
  CHECK(part("columns and gradients on their way") > 8 * parameters);
  CHECK(part("compute copies of weights") >= parameters);
  // Beyond the memory, with the largest batch that is not.
  spec.mutable_data()->clear_take();
  const auto [large, refused] = text_of(static_cast<uint32_t>(small.job.largest_batch) + 1024);
  INFO(refused);
  CHECK_FALSE(large.job.fits());
  CHECK(refused.find(" of 8.00G hbm: does not fit") != std::string::npos);
  CHECK(refused.find(fmt::format("advice: batch {} fits", large.job.largest_batch)) !=
        std::string::npos);
  // 100 rows fill 104 of one tile, or 128 lanes.
  CHECK(text_of(800).second.find("advice: a core computes 128 samples at a time: shards of 100") !=
        std::string::npos);
}

TEST_CASE("Plan: AlexNet on TPUs of 8 and of 16 GiB a core, as batches grow") {
  struct Expected {
    uint32_t batch;
    const char *shard, *used, *padding;
    bool fits_v2;
  };
  const Expected batches[] = {
      {1024, "at most 128 samples, on 8 cores", "Used 273.68M", "2.67M", true},
      {16'384, "at most 2048 samples, on 8 cores", "Used 3.90G", "40.17M", true},
      {50'000, "at most 6250 samples, on 8 cores", "Used 11.88G", "147.87M", false}};
  for (const auto& [name, hbm, largest] :
       {std::tuple("tpu-v2-8", "8.00G", 33'600), {"tpu-v3-8", "16.00G", 67'392}}) {
    const auto profile = ShippedProfile(name);
    REQUIRE(profile);
    const auto tpu = pjrt::MakeTpuPlanner(profile->device_model);
    const PlanFlags flags = {
        .cores = profile->cores, .workers = 1, .memory_per_core = profile->memory_per_core};
    for (const Expected& expected : batches) {
      const auto spec = job::ParseJobFile("job.yaml", kPlannedJob,
                                          {"model={name: alexnet, batch_norm: true, dropout: 0.2}",
                                           "data={format: cifar10, path: cifar10}", "shards=8",
                                           fmt::format("batch={}", expected.batch)});
      REQUIRE(Message(spec.status()) == "");
      const auto plan = PlanJob(*spec, flags, tpu.get());
      REQUIRE(Message(plan.status()) == "");
      std::ostringstream out;
      PrintPlan(*plan, out);
      const std::string text = out.str();
      INFO(name << "\n" << text);
      const bool fits = expected.fits_v2 || name == std::string("tpu-v3-8");
      const auto says = [&](const std::string& what) {
        return text.find(what) != std::string::npos;
      };
      CHECK(says(fmt::format("batch {} in 8 shards of {}", expected.batch, expected.shard)));
      CHECK(says(
          fmt::format("{} of {} hbm: {}\n", expected.used, hbm, fits ? "fits" : "does not fit")));
      CHECK(says(fmt::format("padding         {} of them fill up tiles", expected.padding)));
      CHECK(says(fmt::format("largest batch   {}\n", largest)));
      CHECK(says(fmt::format("advice: batch {} fits", largest)) == !fits);
    }
  }
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
  CHECK(plan->job.host.always[1].bytes == 3 * plan->job.host.always[0].bytes);
}

TEST_CASE("Plan: for programs") {
  const auto backend = MakeBackend("cpu");
  REQUIRE(backend.ok());
  const FilePlan planned = Planned(1 << 30, backend->get());
  const JobPlan& plan = planned.job;
  const auto json = nlohmann::json::parse(ToJson(planned));
  CHECK(json["fits"] == true);
  CHECK(json["largest_batch"] == plan.largest_batch);
  CHECK(json["bytes_per_core"]["cpu"] == plan.core_bytes);
  CHECK(json["host_bytes"] == plan.host.usual());
  CHECK(json["checkpoint_copy_bytes"] == plan.host.copy);
  CHECK(plan.host.copy > 0);
  CHECK(json["worker_bytes"] == plan.host.usual() + 2 * plan.core_bytes);
  CHECK(json["host"][0]["what"] == "parameters");
  uint64_t parts = 0;
  for (const char* list : {"host", "host_at_times"}) {
    for (const auto& part : json[list]) parts += part["bytes"].get<uint64_t>();
  }
  CHECK(json["host_most_bytes"] == parts);
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
