#include <string>

#include <catch2/catch.hpp>

#include "cli/job_spec.h"
#include "common/job/job_file.h"
#include "common/job/resolve.h"

namespace ringmaster::cli {
namespace {

RunOptions SmallRun() {
  RunOptions options;
  options.model = "alexnet";
  options.data = "cifar10";
  options.batch = 8;
  return options;
}

TEST_CASE("RunSpec: the format is what is said, or left to those who have the files") {
  const auto data = [](const std::string& text) {
    const auto source = ParseData(text);
    return source.ok() ? source->format() + " " + source->path() : Message(source.status());
  };
  CHECK(data("cifar10") == " cifar10");
  CHECK(data("images/digits/") == " images/digits/");
  CHECK(data("mnist:digits") == "mnist digits");
  CHECK(data("https://h/d/") == " https://h/d/");
  CHECK(data("npz:s3://bucket/d:e/") == "npz s3://bucket/d:e/");
  CHECK(data("cifar:digits") ==
        "--data cifar:digits: format \"cifar\" is not known; known: cifar10, cifar100, "
        "mnist, npy, npz, image_folder, tfrecord, webdataset, tokens, csv");
}

TEST_CASE("RunSpec: a job is named after its model and its data") {
  const auto name = [](const std::string& data) {
    RunOptions options = SmallRun();
    options.data = data;
    const auto spec = SpecOf(options);
    return spec.ok() ? spec->name() : Message(spec.status());
  };
  CHECK(name("mnist:a/b") == "alexnet-mnist");
  CHECK(name("images/My Digits/") == "alexnet-my-digits");
  CHECK(name(std::string(200, 'x')).size() == 100);
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
