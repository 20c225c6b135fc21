#include "cli/run_spec.h"

#include <catch2/catch.hpp>

#include "common/job/job_file.h"

namespace ringmaster::cli {
namespace {

RunOptions SmallRun() {
  RunOptions options;
  options.model = "alexnet";
  options.data = "cifar10";
  options.batch = 8;
  return options;
}

TEST_CASE("RunSpec: a folder tells its format, the longest name that fits") {
  const auto format = [](const std::string& data) {
    const auto source = ParseData(data);
    return source.ok() ? source->format() + " " + source->path() : "";
  };
  CHECK(format("cifar10") == "cifar10 cifar10");
  CHECK(format("images/cifar10-small/") == "cifar10 images/cifar10-small/");
  CHECK(format("cifar100-fine") == "cifar100 cifar100-fine");
  CHECK(format("mnist:digits") == "mnist digits");
  CHECK(format("mnist/digits").empty());
  CHECK(format("cifar:digits").empty());
}

TEST_CASE("RunSpec: the job file that is printed is the job that is submitted") {
  RunOptions options = SmallRun();
  options.augment = {"random_crop", "random_flip"};
  options.overrides = {"augment.0.random_crop.padding=2", "seed=7"};
  options.learning_rate = 0.25;
  const auto spec = SpecOf(options);
  REQUIRE(spec.ok());
  CHECK(spec->augment(0).random_crop().padding() == 2);
  CHECK(spec->seed() == 7);
  CHECK(spec->optimizer().adam().learning_rate() == 0.25);
  CHECK(spec->epochs() == 1);
  const auto again = job::ParseJobFile("again", job::PrintJobFile(*spec), {});
  REQUIRE(again.ok());
  CHECK(again->SerializeAsString() == spec->SerializeAsString());
}

TEST_CASE("RunSpec: what is not a job is said before anybody is asked") {
  RunOptions options = SmallRun();
  options.model = "alexnett";
  CHECK(SpecOf(options).status().code() == absl::StatusCode::kInvalidArgument);
  options = SmallRun();
  options.augment = {"random_corp"};
  CHECK(SpecOf(options).status().code() == absl::StatusCode::kInvalidArgument);
  options = SmallRun();
  options.overrides = {"btach=1"};
  CHECK(SpecOf(options).status().code() == absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace ringmaster::cli
