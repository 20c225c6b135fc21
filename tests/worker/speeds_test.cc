// Whom a job would be faster without, by what other jobs took on the same workers.
#include "worker/speeds.h"

#include <catch2/catch.hpp>

#include <sstream>

#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

namespace ringmaster::worker {
namespace {

v1::JobSpec SpecOf(uint32_t shards, uint32_t least = 1) {
  v1::JobSpec spec;
  spec.set_shards(shards);
  spec.mutable_workers()->set_min(least);
  return spec;
}

// pc-7 takes 3 s for 4 samples, the others 0.1 s; of d nothing is known.
ClusterSpeeds Cluster() {
  ClusterSpeeds cluster;
  cluster.workers = {{"a", "cpu", 1}, {"b", "cpu", 1}, {"d", "old", 2}, {"pc-7", "cpu", 1}};
  cluster.jobs = {
      {"j0003", "other", "float32", 4, {{"a", "cpu", 7}, {"b", "cpu", 9}}},
      {"j0002", "model", "float32", 4, {{"a", "cpu", 0.1}, {"pc-7", "cpu", 3}, {"gone", "cpu", 1}}},
      {"j0001", "model", "float32", 8, {{"a", "cpu", 9}, {"b", "cpu", 0.2}, {"d", "cpu", 1}}}};
  return cluster;
}

std::string Print(const SpeedPlan& plan) {
  std::ostringstream out;
  PrintSpeeds(plan, out);
  return out.str();
}

}  // namespace

TEST_CASE("Speeds: a worker whose shard took longer than all of the others' is named") {
  const SpeedPlan plan = PlanSpeeds(Cluster(), SpecOf(8), "model", "float32", 4);
  CHECK(plan.same_model);
  CHECK(plan.jobs == std::vector<std::string>{"j0002", "j0001"});
  REQUIRE(plan.groups.size() == 2);
  const SpeedGroup& cpu = plan.groups[0];
  CHECK(cpu.workers == std::vector<std::string>{"a", "b", "pc-7"});
  CHECK(cpu.leave_out == std::vector<std::string>{"pc-7"});
  CHECK(*cpu.seconds == Approx(3.0));
  CHECK(*cpu.seconds_without == Approx(0.4));
  CHECK(cpu.faster_percent == Approx(650));
  CHECK_FALSE(cpu.needed);
  // j0001 measured a d of another class.
  CHECK(plan.groups[1].unmeasured == std::vector<std::string>{"d"});
  CHECK_FALSE(plan.groups[1].seconds);
  CHECK(
      Print(plan) ==
      "\nspeed, by what these workers took in j0002, j0001:\n"
      "cpu, 3 workers: without pc-7 this job would be 650% faster: the shards of a step take 0.4 s "
      "instead of 3 s\n"
      "  the job leaves it out by itself after some steps; `ringctl drain pc-7` does it before\n"
      "old, 1 worker: nothing was measured of them: by cores nobody is too slow\n");
}

TEST_CASE("Speeds: larger shards take longer, and workers.min may need who is slow") {
  const SpeedPlan plan = PlanSpeeds(Cluster(), SpecOf(8, 3), "model", "float32", 8);
  CHECK(*plan.groups[0].seconds == Approx(6.0));
  CHECK(plan.groups[0].needed);
  CHECK_THAT(Print(plan), Catch::Contains("workers.min needs it: with a smaller one"));
}

TEST_CASE("Speeds: a job of another model tells proportions, no seconds") {
  ClusterSpeeds cluster = Cluster();
  cluster.jobs[0].workers.push_back({"pc-7", "cpu", 700});
  const SpeedPlan plan = PlanSpeeds(cluster, SpecOf(8), "new", "float32", 4);
  CHECK_FALSE(plan.same_model);
  CHECK(plan.jobs == std::vector<std::string>{"j0003"});
  CHECK(plan.groups[0].leave_out == std::vector<std::string>{"pc-7"});
  CHECK_FALSE(plan.groups[0].seconds);
  CHECK_THAT(Print(plan), Catch::Contains("in j0003, which trains another model:\n") &&
                              Catch::Contains("without pc-7 this job would be 1900% faster\n"));
  // Another policy is another model here.
  CHECK_FALSE(PlanSpeeds(Cluster(), SpecOf(8), "model", "mixed_bfloat16", 4).same_model);
}

TEST_CASE("Speeds: where nothing was measured cores count, and that is said") {
  ClusterSpeeds cluster = Cluster();
  cluster.jobs.clear();
  const SpeedPlan plan = PlanSpeeds(cluster, SpecOf(8), "model", "float32", 4);
  CHECK(plan.jobs.empty());
  for (const SpeedGroup& group : plan.groups) CHECK(group.leave_out.empty());
  CHECK(Print(plan) ==
        "\nspeed, by cores, as no job measured these workers:\n"
        "cpu, 3 workers: nothing was measured of them: by cores nobody is too slow\n"
        "old, 1 worker: nothing was measured of them: by cores nobody is too slow\n");
  // One that is measured alone says nothing of the others.
  cluster.jobs = {{"j0001", "other", "float32", 4, {{"a", "cpu", 1}}}};
  CHECK(PlanSpeeds(cluster, SpecOf(8), "model", "float32", 4).jobs.empty());
}

TEST_CASE("Speeds: a job that mixes classes leaves out one whose part is no whole shard") {
  v1::JobSpec spec = SpecOf(8);
  spec.mutable_workers()->set_mix(v1::MIX_FIXED);
  ClusterSpeeds cluster = Cluster();
  cluster.jobs = {{"j0001",
                   "model",
                   "float32",
                   4,
                   {{"a", "cpu", 0.1}, {"b", "cpu", 0.1}, {"pc-7", "cpu", 0.1}, {"d", "old", 9}}}};
  SpeedPlan plan = PlanSpeeds(cluster, spec, "model", "float32", 4);
  REQUIRE(plan.groups.size() == 1);
  CHECK(plan.groups[0].classes == std::vector<std::string>{"cpu", "old"});
  CHECK(plan.groups[0].leave_out == std::vector<std::string>{"d"});
  CHECK(*plan.groups[0].seconds == Approx(9));
  CHECK(*plan.groups[0].seconds_without == Approx(0.3));
  // Where the job file says what it computes, it stays.
  v1::ClassShards& cpu = *spec.mutable_workers()->add_classes();
  cpu.set_class_("cpu");
  cpu.set_shards(7);
  v1::ClassShards& old = *spec.mutable_workers()->add_classes();
  old.set_class_("old");
  old.set_shards(1);
  plan = PlanSpeeds(cluster, spec, "model", "float32", 4);
  CHECK(plan.groups[0].leave_out.empty());
  CHECK(*plan.groups[0].seconds == Approx(9));
}

TEST_CASE("Speeds: no more workers than the job takes, and none at all") {
  v1::JobSpec spec = SpecOf(8);
  spec.mutable_workers()->set_max(2);
  const SpeedPlan plan = PlanSpeeds(Cluster(), spec, "model", "float32", 4);
  CHECK(plan.groups[0].workers == std::vector<std::string>{"a", "b"});
  CHECK(plan.groups[0].leave_out.empty());
  const std::vector<std::string> two = {"a", "b"};
  CHECK(PlanSpeeds(Cluster(), SpecOf(2), "model", "float32", 4).groups[0].workers == two);
  CHECK(PlanSpeeds({}, spec, "model", "float32", 4).groups.empty());
  CHECK(Print({}).empty());
}

TEST_CASE("Speeds: as ringctl writes them, and what is none") {
  const auto cluster = ParseSpeeds(
      R"({"workers": [{"name": "a", "class": "cpu", "cores": 2}], "jobs": [{"job_id": "j0001",
          "model_sha256": "m", "policy": "float32", "samples": 4,
          "workers": [{"name": "a", "class": "cpu", "shard_seconds": 0.5}]}]})",
      "speeds");
  REQUIRE(cluster.ok());
  CHECK(cluster->workers[0].cores == 2);
  CHECK(cluster->jobs[0].workers[0].shard_seconds == 0.5);
  for (const char* text : {"", "[]", "{}", R"({"workers": [1], "jobs": []})",
                           R"({"workers": [{"name": 1, "class": "c", "cores": 1}], "jobs": []})"}) {
    CHECK(absl::IsInvalidArgument(ParseSpeeds(text, "speeds").status()));
  }
  const SpeedPlan plan = PlanSpeeds(*cluster, SpecOf(8), "m", "float32", 4);
  const nlohmann::ordered_json json = JsonOf(plan);
  CHECK(json["measured_in"][0] == "j0001");
  CHECK(json["groups"][0]["shards_ms"] == Approx(2000));
  CHECK(json["groups"][0]["leave_out"].empty());
}

}  // namespace ringmaster::worker
