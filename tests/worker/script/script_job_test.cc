// A job's script on a worker: its files, what its interpreter is given, and its end.
#include <algorithm>
#include <catch2/catch.hpp>
#include <filesystem>
#include <string>
#include <vector>

#include "tests/support/temporary_folder.h"
#include "tests/worker/script/fake_child.h"
#include "worker/backend/failure.h"
#include "worker/script/script_job.h"

namespace ringmaster::script {
namespace {

using Catch::Contains;

v1::Script ScriptOf(const std::string& name) {
  v1::Script script;
  script.set_file(name);
  for (const auto& [path, content] :
       {std::pair<std::string, std::string>{"configs/small.yaml", "width: 3\n"},
        {name, "pass\n"}}) {
    v1::ScriptFile& file = *script.add_files();
    file.set_path(path);
    file.set_content(content);
  }
  return script;
}

ScriptJobOptions OptionsIn(const TemporaryFolder& place) {
  return {.folder = place / "script",
          .interpreters = {{"default", FAKE_ZYGOTE_FILE}},
          .attach_limit = std::chrono::seconds(20)};
}

TEST_CASE("ScriptJob: files are written, a child attaches, and nothing is left of it") {
  const TemporaryFolder place;
  std::filesystem::create_directories(place / "script/former");
  {
    const auto job = ScriptJob::Open(ScriptOf("train.py"), OptionsIn(place), {});
    REQUIRE(Message(job.status()) == "");
    CHECK((*job)->facts().tensors_size() == 2);
    CHECK(ReadWhole(place / "script/configs/small.yaml") == "width: 3\n");
    CHECK_FALSE(std::filesystem::exists(place / "script/former"));
    std::vector<float> values(kWeights, 7);
    REQUIRE((*job)->backend()->Given(0, values));
    CHECK(values == std::vector<float>(kWeights, 0));
  }
  CHECK_FALSE(std::filesystem::exists(place / "script"));
}

TEST_CASE("ScriptJob: what cannot be run is refused") {
  const TemporaryFolder place;
  v1::Script script = ScriptOf("train.py");
  script.set_python("venv");
  const auto error = [&](const std::stop_token& stop = {}) {
    return ScriptJob::Open(script, OptionsIn(place), stop).status();
  };
  CHECK_THAT(Message(error()), Contains("no Python interpreter of the name venv") &&
                                   Contains("ringworker with --python venv=PATH"));
  script.clear_python();
  script.mutable_files(0)->set_path("../small.yaml");
  CHECK(absl::IsInvalidArgument(error()));
  CHECK_FALSE(std::filesystem::exists(place / "small.yaml"));
  script = ScriptOf("dies.py");
  CHECK_THAT(Message(error()), Contains("signal 11"));
  script = ScriptOf("no torch.py");
  CHECK_THAT(Message(error()), Contains("apt install python3-torch"));
  script = ScriptOf("train.py");
  std::stop_source stop;
  stop.request_stop();
  CHECK(absl::IsCancelled(error(stop.get_token())));
}

TEST_CASE("ScriptJob: an interpreter has what it computes with, and no secrets") {
  v1::Script script;
  v1::ScriptVariable& variable = *script.add_env();
  variable.set_name("HF_HOME");
  variable.set_value("/models");
  v1::ScriptVariable& threshold = *script.add_env();
  threshold.set_name("MALLOC_MMAP_THRESHOLD_");
  threshold.set_value("65536");
  const std::vector<std::string> all = ScriptEnvironment(
      {"PATH=/bin", "AWS_SECRET_ACCESS_KEY=s3", "RINGMASTER_TOKEN=t", "PYTHONPATH=/mine",
       "OMP_NUM_THREADS=64", "CUDA_VISIBLE_DEVICES=1", "LC_ALL=C", "EDITOR=ed"},
      "/package", 2, script.env());
  const auto has = [&](const std::string& text) {
    return std::ranges::any_of(all, [&](const std::string& each) { return each == text; });
  };
  for (const char* kept :
       {"PATH=/bin", "PYTHONPATH=/package:/mine", "OMP_NUM_THREADS=2", "OPENBLAS_NUM_THREADS=2",
        "CUDA_VISIBLE_DEVICES=1", "LC_ALL=C", "PYTHONHASHSEED=0", "HF_HOME=/models",
        "MALLOC_TRIM_THRESHOLD_=4294967296", "MALLOC_MMAP_THRESHOLD_=65536"}) {
    INFO(kept);
    CHECK(has(kept));
  }
  for (const std::string& each : all) {
    INFO(each);
    CHECK_FALSE(each.starts_with("AWS_"));
    CHECK_FALSE(each.starts_with("RINGMASTER_"));
    CHECK_FALSE(each.starts_with("EDITOR"));
  }
}

}  // namespace
}  // namespace ringmaster::script
