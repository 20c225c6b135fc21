#include "worker/tune_subject.h"

#include <catch2/catch.hpp>

#include "common/data/sample_data.h"
#include "common/job/job_file.h"
#include "tests/support/temporary_folder.h"

namespace ringmaster::worker {
namespace {

using Catch::Matchers::Contains;

// batch 16 in 3 shards: 5 or 6 samples each.
constexpr char kSmallJob[] =
    "name: small\nmodel: {name: mlp, hidden: [4]}\ndata: {format: mnist, path: digits}\n"
    "batch: 16\nshards: 3\nepochs: 1\noptimizer: {sgd: {}}\n";

TuneSubject SubjectWith(const std::vector<std::string>& overrides,
                        const TuneSubjectOptions& options = {}) {
  const auto spec = job::ParseJobFile("job.yaml", kSmallJob, overrides);
  REQUIRE(Message(spec.status()) == "");
  auto subject = TuneSubjectOf(*spec, options);
  REQUIRE(Message(subject.status()) == "");
  return *std::move(subject);
}

// training 5 6, evaluation 5: as T5 T6 E5.
std::string Shapes(const TuneSubject& subject) {
  std::string text;
  for (const ProgramSet& set : subject.programs) {
    for (const auto& [shape, program] : set.programs()) {
      CHECK(program.samples == static_cast<int64_t>(shape.samples));
      const char* const mode = shape.mode == graph::Mode::kTraining ? "T" : "E";
      text += fmt::format("{}{}{}", text.empty() ? "" : " ", mode, shape.samples);
    }
  }
  return text;
}

TEST_CASE("TuneSubject: without a dataset full batches, and a note that says what is left out") {
  const TuneSubject subject = SubjectWith({});
  CHECK(Shapes(subject) == "T5 T6 E5 E6");
  CHECK(subject.title == "small: mlp in float32, images of 28x28x1, 10 classes");
  CHECK_THAT(subject.note, Contains("--data-root") && Contains("data.take_test"));
}

TEST_CASE("TuneSubject: numbers of samples in the job file tell the last batches too") {
  // 16 + 8 training samples, 7 test samples.
  const TuneSubject subject = SubjectWith({"data.take=24", "data.take_test=7"});
  CHECK(Shapes(subject) == "T2 T3 T5 T6 E2 E3");
  CHECK(subject.note.empty());
  CHECK_FALSE(SubjectWith({"data.take=24"}).note.empty());
}

TEST_CASE("TuneSubject: a validation set has its shards, also when its size is not known") {
  // 24 - 4 = 16 + 4 training samples; validation 4; test 16.
  CHECK(Shapes(SubjectWith({"data.take=24", "data.take_test=16", "validation.fold=1/6"})) ==
        "T1 T2 T5 T6 E1 E2 E5 E6");
  const TuneSubject unknown =
      SubjectWith({"data.take_test=1", "validation.split=0.1", "checkpoint.best=validation_loss"});
  CHECK(Shapes(unknown) == "T5 T6 E1 E5 E6");
}

TEST_CASE("TuneSubject: the dataset tells all shapes where there is one") {
  const TemporaryFolder root;
  REQUIRE(data::MakeSampleData(root / "digits", {.format = "mnist", .train = 24, .test = 7}).ok());
  const TuneSubject subject = SubjectWith({}, {.samples = {}, .data_root = root.path()});
  CHECK(Shapes(subject) == "T2 T3 T5 T6 E2 E3");
  CHECK(subject.note.empty());
}

TEST_CASE("TuneSubject: a dataset that is named and not there is an error") {
  const TemporaryFolder root;
  const auto spec = job::ParseJobFile("job.yaml", kSmallJob, {});
  REQUIRE(spec.ok());
  const auto subject = TuneSubjectOf(*spec, {.samples = {}, .data_root = root.path()});
  CHECK_THAT(Message(subject.status()), Contains("digits"));
}

TEST_CASE("TuneSubject: given samples are those of a shard, each once") {
  const TuneSubject subject =
      SubjectWith({"validation.split=0.5"}, {.samples = {9, 4, 9}, .data_root = ""});
  CHECK(Shapes(subject) == "T4 E4 T9 E9");
  CHECK(subject.note.empty());
}

TEST_CASE("TuneSubject: model, policy and images are those of the job") {
  const TuneSubject subject = SubjectWith(
      {"model={name: vgg, depth: 11}", "data={format: cifar100, path: c, resize: [64, 32]}",
       "precision.policy=mixed_bfloat16"},
      {.samples = {1}, .data_root = ""});
  CHECK(subject.title == "small: vgg in mixed_bfloat16, images of 64x32x3, 100 classes");
  CHECK(Shapes(subject) == "T1 E1");
}

}  // namespace
}  // namespace ringmaster::worker
