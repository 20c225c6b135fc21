// Profiles: read, written, refused with what is wrong; what a step takes by their times.
#include "worker/profile.h"

#include <catch2/catch.hpp>

#include <cstdlib>

namespace ringmaster::worker {
namespace {

WorkerProfile Rack() {
  return {.name = "rack1",
          .device = "cpu",
          .device_model = "EPYC",
          .instruction_set = "avx2",
          .cores = 4,
          .threads_per_core = 2,
          .memory_per_core = uint64_t{2} << 30,
          .workers = 3,
          .measured = {{.model_sha256 = "ab",
                        .policy = "float32",
                        .samples = 16,
                        .seconds_per_round = 0.5,
                        .seconds_per_update = 0.125}}};
}

std::string Refused(const std::string& text) {
  const auto profiles = ParseProfiles(text, "rack.json");
  REQUIRE(absl::IsInvalidArgument(profiles.status()));
  return Message(profiles.status());
}

TEST_CASE("Profile: what is written is read") {
  const auto read = ParseProfiles(ToJson(Rack()), "rack.json");
  REQUIRE(Message(read.status()) == "");
  REQUIRE(read->size() == 1);
  CHECK((*read)[0] == Rack());
  const auto list = ParseProfiles("[" + ToJson(Rack()) + "," + ToJson(Rack()) + "]", "rack.json");
  REQUIRE(list.ok());
  CHECK(list->size() == 2);
  const auto short_one = ParseProfiles(R"({"cores": 2, "memory_per_core": "8GiB"})", "rack.json");
  REQUIRE(short_one.ok());
  CHECK((*short_one)[0].memory_per_core == uint64_t{8} << 30);
  CHECK((*short_one)[0].device == "cpu");
}

TEST_CASE("Profile: what is wrong in it is named") {
  CHECK(Refused("[]") == "rack.json: a list without any profile");
  CHECK(Refused(R"({"cores": 2})") ==
        "rack.json: memory_per_core: expected an amount of memory, for example \"8GiB\", got "
        "nothing");
  CHECK(Refused(R"({"memory_per_core": 1, "cores": 0})") ==
        "rack.json: cores: expected a whole number from 1 to 4096, got 0");
  CHECK(Refused(R"({"memory_per_core": 1, "core": 1})")
            .starts_with("rack.json: no key is called core; there are name, device"));
  CHECK(Refused(R"({"memory_per_core": 1, "measured": [{"samples": 8}]})") ==
        "rack.json: measured: seconds_per_round: expected a number of seconds, got nothing");
  CHECK(Refused(R"({"memory_per_core": 1, "measured": [{"rematerialize": 1}]})") ==
        "rack.json: measured: rematerialize: expected true or false, got 1");
  CHECK(Refused("7").starts_with("rack.json: expected an object"));
}

TEST_CASE("Profile: a step takes its rounds and the update") {
  JobPlan plan;
  plan.samples = 16;
  plan.shards = 12;
  plan.cores = 4;
  plan.workers = 1;
  CHECK(SecondsPerStep(Rack(), plan, "ab", "float32") == 3 * 0.5 + 0.125);
  plan.workers = 3;
  CHECK(SecondsPerStep(Rack(), plan, "ab", "float32") == 0.5 + 0.125);
  plan.shards = 13;
  plan.samples = 32;
  CHECK(SecondsPerStep(Rack(), plan, "ab", "float32") == 2 * 1.0 + 0.125);
  CHECK(SecondsPerStep(Rack(), plan, "ab", "mixed_bfloat16") == std::nullopt);
  CHECK(SecondsPerStep(Rack(), plan, "cd", "float32") == std::nullopt);
  plan.samples = 64;
  CHECK(SecondsPerStep(Rack(), plan, "ab", "float32").has_value());
  plan.samples = 65;
  CHECK(SecondsPerStep(Rack(), plan, "ab", "float32") == std::nullopt);
  plan.samples = 16;
  plan.rematerialize.on = true;
  CHECK(SecondsPerStep(Rack(), plan, "ab", "float32") == std::nullopt);
  plan.rematerialize.on = false;
  plan.samples = 65;
  // The nearest counts.
  WorkerProfile profile = Rack();
  Keep({.model_sha256 = "ab", .policy = "float32", .samples = 64, .seconds_per_round = 1},
       &profile);
  plan.shards = 12;
  CHECK(SecondsPerStep(profile, plan, "ab", "float32") == 1 + (1 - 0.5) / (64 - 16));
  Keep({.model_sha256 = "ab", .policy = "float32", .samples = 64, .seconds_per_round = 2},
       &profile);
  CHECK(profile.measured.size() == 2);
  CHECK(SecondsPerStep(profile, plan, "ab", "float32") == 2 + (2 - 0.5) / (64 - 16));
  // A line that begins below 0, or falls, is chance.
  for (const double seconds : {2.5, 0.25}) {
    Keep({.model_sha256 = "ab", .policy = "float32", .samples = 64, .seconds_per_round = seconds},
         &profile);
    CHECK(SecondsPerStep(profile, plan, "ab", "float32") == seconds / 64 * 65);
  }
}

TEST_CASE("Profile: workers with TPUs are known by name") {
  const auto v3 = ShippedProfile("tpu-v3-8");
  REQUIRE(v3);
  CHECK(v3->device == "tpu");
  CHECK(v3->cores == 8);
  CHECK(v3->memory_per_core == uint64_t{16} << 30);
  for (const char* name : {"tpu-v2-8", "tpu-v4-8", "tpu-v5e-8", "tpu-v5p-8", "tpu-v6e-8"}) {
    INFO(name);
    CHECK(ShippedProfile(name));
  }
  CHECK_FALSE(ShippedProfile("tpu-v1-8"));
}

TEST_CASE("Profile: a name is a file in the user's folder") {
  CHECK(ProfilePath("./rack1") == "./rack1");
  CHECK(ProfilePath("rack1.json") == "rack1.json");
  setenv("XDG_CONFIG_HOME", "/config", 1);
  CHECK(ProfilePath("rack1") == "/config/ringmaster/profiles/rack1.json");
  unsetenv("XDG_CONFIG_HOME");
}

}  // namespace
}  // namespace ringmaster::worker
