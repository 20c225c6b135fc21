// Scripts on the command line, and how people see jobs of them.
#include <catch2/catch.hpp>

#include <string>

#include "cli/job_spec.h"
#include "cli/show/json.h"
#include "cli/show/render.h"
#include "tests/cli/job_statuses.h"
#include "tests/support/temporary_folder.h"

namespace ringmaster::cli {
namespace {

ScriptOptions OptionsOf(const TemporaryFolder& folder, const std::string& name) {
  WriteWhole(folder / name, "import torch");
  return {.file = folder / name};
}

TEST_CASE("Script: a job of a script has its files, its arguments, and what was said of it") {
  const TemporaryFolder folder;
  ScriptOptions options = OptionsOf(folder, "Train_GPT.py");
  options.arguments = {"--layers=6", "a b"};
  options.batch = 64;
  options.steps = 5000;
  options.overrides = {"script.env={LEVEL: 3}", "batch=32"};
  const auto spec = SpecOf(options);
  INFO(spec.status());
  REQUIRE(spec.ok());
  CHECK(spec->name() == "train_gpt");
  CHECK(spec->script().file() == "Train_GPT.py");
  CHECK(spec->script().args(1) == "a b");
  CHECK(spec->script().env(0).value() == "3");
  REQUIRE(spec->script().files_size() == 1);
  CHECK(spec->script().files(0).content() == "import torch");
  CHECK(spec->batch() == 32);  // --set has the last word
  CHECK(spec->steps() == 5000);
  CHECK_FALSE(spec->has_model());
}

TEST_CASE("Script: a job's name is what a name may be") {
  const TemporaryFolder folder;
  CHECK(SpecOf(OptionsOf(folder, "_my run.py"))->name() == "my-run");
  CHECK(SpecOf(OptionsOf(folder, "__.py"))->name() == "script");
  ScriptOptions named = OptionsOf(folder, "a.py");
  named.name = "mine";
  CHECK(SpecOf(named)->name() == "mine");
}

TEST_CASE("Script: run takes one in place of a model, and nothing that it says itself") {
  const TemporaryFolder folder;
  RunOptions options;
  options.model = OptionsOf(folder, "train.py").file;
  options.precision = "mixed_bfloat16";
  options.arguments = {"-v"};
  const auto spec = SpecOf(options);
  INFO(spec.status());
  REQUIRE(spec.ok());
  CHECK(spec->script().args(0) == "-v");
  CHECK(spec->precision().policy() == v1::POLICY_MIXED_BFLOAT16);
  CHECK(spec->length_case() == v1::JobSpec::LENGTH_NOT_SET);
  CHECK_FALSE(spec->has_batch());
  options.learning_rate = 0.1;
  CHECK_THAT(Message(SpecOf(options).status()), Catch::StartsWith("--learning-rate: "));
  options.learning_rate.reset();
  options.augment = {"random_flip"};
  CHECK_THAT(Message(SpecOf(options).status()), Catch::StartsWith("--augment: "));
  options.augment.clear();
  options.optimizer = "adam";
  CHECK_THAT(Message(SpecOf(options).status()), Catch::StartsWith("--optimizer: "));
}

TEST_CASE("Script: a status is titled by it, and JSON names its files") {
  v1::JobStatus status = Running();
  v1::JobSpec& spec = *status.mutable_spec();
  spec.clear_model();
  spec.clear_data();
  spec.mutable_script()->set_file("train.py");
  spec.mutable_script()->add_args("--layers=6");
  spec.mutable_script()->add_files()->set_path("model.py");
  spec.mutable_script()->add_files()->set_path("train.py");
  CHECK_THAT(RenderStatus(status, Terminal::Plain()), Catch::Contains("train.py --layers=6\n"));
  CHECK(ToJson(spec)["script"].dump() ==
        R"({"file":"train.py","args":["--layers=6"],"files":["model.py","train.py"]})");
}

}  // namespace
}  // namespace ringmaster::cli
