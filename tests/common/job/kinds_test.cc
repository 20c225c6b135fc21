// Jobs that do not train: what they may say, and what is made of them.
#include <catch2/catch.hpp>

#include <string>
#include <vector>

#include "common/job/sample_use.h"
#include "tests/common/job/small_job.h"

namespace ringmaster::job {
namespace {

using small::Facts;
using small::Numerics;
using small::Spec;

TEST_CASE("Resolve: a job of kind evaluate takes no step, on the samples that it names") {
  const std::vector<std::string> kind = {"kind=evaluate", "steps=null", "optimizer=null",
                                         "init={job: j0001}"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), kind.begin(), kind.end());
    return Spec(more);
  };
  const auto test = Resolve(with({}), Facts(), Numerics());
  INFO(Message(test.status()));
  REQUIRE(test.ok());
  CHECK(test->result().total_steps() == 0);
  CHECK(test->result().data_use().test_samples() == 3);
  const auto train = Resolve(with({"evaluate={split: train}"}), Facts(), Numerics());
  REQUIRE(train.ok());
  CHECK(train->result().data_use().test_samples() == 10);
  CHECK(train->result().data_use().test_from() == v1::SAMPLE_SPLIT_TRAIN);
  const auto aside = Resolve(with({"evaluate={split: validation}", "validation={split: 0.5}"}),
                             Facts(), Numerics());
  REQUIRE(aside.ok());
  CHECK(aside->result().data_use().test_samples() == 0);
  CHECK(aside->result().data_use().validation_samples() == 5);
  CHECK(Message(Validate(Spec({"kind=evaluate", "init={job: j0001}"}))) ==
        "steps: only a job that trains has it; leave it out");
  CHECK(Message(Validate(with({"init=null"}))) ==
        "init: missing: the weights that are evaluated; for example init: {job: j0001}");
  CHECK(Message(Validate(with({"evaluate={split: validation}"}))) ==
        "evaluate.split: there is no validation set: add validation: {split: 0.1}, or choose test "
        "or train");
  CHECK(Message(Validate(Spec({"evaluate={split: test}"}))) ==
        "evaluate.split: only a job of kind evaluate has it; leave it out");
  CHECK(Message(Validate(with({"evaluate={every_steps: 3}"}))) ==
        "evaluate.every_steps: only a job that trains has it; leave it out");
  v1::DatasetFacts facts = Facts();
  facts.set_test_samples(0);
  CHECK(Message(Resolve(with({}), facts, Numerics()).status()) ==
        "evaluate: the data have no test samples, and the job sets none aside; choose evaluate: "
        "{split: train}");
}

TEST_CASE("Resolve: a job of kind predict takes a step for each batch of one set") {
  const auto with = [](std::vector<std::string> more) {
    const std::vector<std::string> kind = {"kind=predict", "steps=null", "optimizer=null",
                                           "init={job: j0001}"};
    more.insert(more.begin(), kind.begin(), kind.end());
    return Spec(more);
  };
  const auto test = Resolve(with({}), Facts(), Numerics());
  INFO(Message(test.status()));
  REQUIRE(test.ok());
  CHECK(test->result().total_steps() == 1);
  CHECK(HeldOutSet(test->result().data_use()) == SampleSet::kTest);
  CHECK(test->result().updates_size() == 0);
  REQUIRE(test->result().graph().outputs_size() == 1);
  CHECK(test->result().graph().outputs(0).has_rows());
  CHECK(test->result().graph().columns_size() == 1);
  const std::vector<std::string> held = {"predict={split: validation}", "validation={split: 0.5}"};
  const auto aside = Resolve(with(held), Facts(), Numerics());
  REQUIRE(aside.ok());
  CHECK(aside->result().total_steps() == 2);
  CHECK(HeldOutSet(aside->result().data_use()) == SampleSet::kValidation);
  v1::DatasetFacts facts = Facts();
  facts.set_test_samples(0);
  CHECK(Resolve(with({}), facts, Numerics())->result().total_steps() == 3);  // of train
  facts.mutable_columns()->RemoveLast();
  CHECK(Resolve(with({}), facts, Numerics())->result().graph().outputs(0).name() == "values");
  CHECK(Resolve(with({"data.classes=10"}), facts, Numerics()).ok());
  CHECK(Message(Validate(with({"evaluate={split: test}"}))) ==
        "evaluate.split: only a job of kind evaluate has it; write predict.split");
  CHECK(Message(Validate(Spec({"predict={split: test}"}))) ==
        "predict: only a job of kind predict has it; leave it out");
  CHECK(Message(Resolve(Spec({"data.classes=9"}), Facts(), Numerics()).status()) ==
        "data.classes: 9 of them, and column label has labels up to 9");
}

TEST_CASE("Validate: only a job that predicts may have a model without a loss") {
  const std::vector<std::string> features = {
      "model={name: resnet18, head: none}",
      "model={layers: [{zoo: {model: resnet18, head: none}}]}"};
  const std::vector<std::string> predicts = {"kind=predict", "steps=null", "optimizer=null",
                                             "init={job: j0001}"};
  for (const std::string& model : features) {
    INFO(model);
    for (const std::string format : {"data.format=cifar10", "data.format=null"}) {
      std::vector<std::string> changes = predicts;
      changes.insert(changes.end(), {model, format});
      CHECK(Message(Validate(Spec(changes))) == "");
    }
    std::vector<std::string> changes = predicts;
    changes.push_back(model);
    const auto job = Resolve(Spec(changes), Facts(), Numerics());
    INFO(job.status());
    REQUIRE(job.ok());
    CHECK(job->result().graph().outputs(0).name() == "values");
    CHECK_THAT(Message(Validate(Spec({model}))), Catch::Contains("no loss to train by"));
    changes.push_back("kind=evaluate");
    CHECK_THAT(Message(Validate(Spec(changes))), Catch::Contains("no loss to train by"));
  }
}

}  // namespace
}  // namespace ringmaster::job
