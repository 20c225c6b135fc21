#include <regex>
#include <sstream>
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
  CHECK(data("cifar:digits") ==
        "--data cifar:digits: format \"cifar\" is not known; known: cifar10, cifar100, mnist");
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

using google::protobuf::Descriptor;

Status Check(const std::string& text) {
  RING_ASSIGN_OR_RETURN(const v1::JobSpec spec, job::ParseJobFile("job.yaml", text, {}));
  return job::Validate(spec);
}

// Every name of a field that a job file can hold, nested ones too.
void CollectKeys(const Descriptor& type, std::vector<std::string>* keys) {
  for (int i = 0; i < type.field_count(); ++i) {
    const auto& field = *type.field(i);
    if (field.name() != "values") keys->push_back(field.name());
    if (field.message_type() != nullptr) CollectKeys(*field.message_type(), keys);
  }
}

TEST_CASE("JobTemplate: is a job as it stands") {
  const Status status = Check(kJobTemplate);
  CAPTURE(std::string(status.message()));
  CHECK(status.ok());
}

TEST_CASE("JobTemplate: names every key") {
  std::vector<std::string> keys;
  CollectKeys(*v1::JobSpec::descriptor(), &keys);
  REQUIRE(keys.size() > 40);
  for (const std::string& key : keys) {
    CAPTURE(key);
    CHECK(std::regex_search(kJobTemplate, std::regex("\\b" + key + ": ?")));
  }
}

TEST_CASE("JobTemplate: each key in a comment is right where it stands") {
  std::vector<std::string> lines;
  std::istringstream stream(kJobTemplate);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  const std::regex commented("^( *)# ([a-z_0-9]+: [^ ].*)$");
  int tried = 0;
  for (size_t i = 0; i < lines.size(); ++i) {
    std::smatch match;
    if (i < 5 || !std::regex_match(lines[i], match, commented)) continue;
    std::string text;
    for (size_t j = 0; j < lines.size(); ++j) {
      text += (j == i ? match[1].str() + match[2].str() : lines[j]) + "\n";
    }
    CAPTURE(lines[i]);
    const auto spec = job::ParseJobFile("job.yaml", text, {});
    CAPTURE(std::string(spec.status().message()));
    CHECK(spec.ok());
    ++tried;
  }
  CHECK(tried >= 15);
}

}  // namespace

}  // namespace ringmaster::cli
