#include "common/job/sample_use.h"

#include <catch2/catch.hpp>
#include <set>
#include <string>
#include <vector>

#include "tests/support/image_data.h"

namespace ringmaster::job {
namespace {

// 100 grey training and 20 test images of 28x28, and a job on them.
v1::DatasetFacts MnistFacts() {
  v1::DatasetFacts facts;
  facts.set_format("mnist");
  facts.set_train_samples(100);
  facts.set_test_samples(20);
  testing::SetImages(28, 28, 1, 10, &facts);
  return facts;
}

v1::JobSpec MnistSpec() {
  v1::JobSpec spec;
  spec.mutable_data()->set_format("mnist");
  return spec;
}

std::vector<uint64_t> SamplesOf(const SampleUse& use, SampleSet set) {
  std::vector<uint64_t> samples;
  for (uint64_t i = 0; i < use.count(set); ++i) samples.push_back(use.At(set, i));
  return samples;
}

std::set<uint64_t> FirstSamples(uint64_t count) {
  std::set<uint64_t> all;
  for (uint64_t i = 0; i < count; ++i) all.insert(i);
  return all;
}

TEST_CASE("Sample use: without validation the stored order stays") {
  const auto use = ResolveDataUse(MnistSpec(), MnistFacts());
  REQUIRE(use.ok());
  CHECK(use->train_samples() == 100);
  CHECK(use->validation_samples() == 0);
  CHECK(use->test_samples() == 20);
  const SampleUse samples(*use);
  for (uint64_t i = 0; i < 100; ++i) REQUIRE(samples.At(SampleSet::kTrain, i) == i);
}

TEST_CASE("Sample use: a split sets samples aside, and no sample is in both sets") {
  v1::JobSpec spec = MnistSpec();
  spec.mutable_validation()->set_split(0.1);
  spec.mutable_data()->set_take(55);
  const auto use = ResolveDataUse(spec, MnistFacts());
  REQUIRE(use.ok());
  CHECK(use->validation_samples() == 5);
  CHECK(use->train_samples() == 50);
  const SampleUse samples(*use);
  std::set<uint64_t> seen;
  for (const SampleSet set : {SampleSet::kTrain, SampleSet::kValidation}) {
    for (const uint64_t sample : SamplesOf(samples, set)) CHECK(seen.insert(sample).second);
  }
  CHECK(seen == FirstSamples(55));
}

TEST_CASE("Sample use: folds partition the training samples") {
  std::set<uint64_t> seen;
  for (int fold = 1; fold <= 7; ++fold) {
    v1::JobSpec spec = MnistSpec();
    spec.set_seed(fold);
    spec.mutable_validation()->set_fold(std::to_string(fold) + "/7");
    const auto use = ResolveDataUse(spec, MnistFacts());
    REQUIRE(use.ok());
    const SampleUse samples(*use);
    for (const uint64_t sample : SamplesOf(samples, SampleSet::kValidation)) {
      CHECK(seen.insert(sample).second);
    }
    for (const uint64_t sample : SamplesOf(samples, SampleSet::kTrain)) {
      CHECK(sample < 100);
    }
  }
  CHECK(seen == FirstSamples(100));
}

TEST_CASE("Sample use: what the dataset does not have is refused") {
  v1::JobSpec spec = MnistSpec();
  spec.mutable_data()->set_take(101);
  CHECK(Message(ResolveDataUse(spec, MnistFacts()).status()) ==
        "data.take: 101 samples are wanted, the dataset has 100");
  spec = MnistSpec();
  spec.mutable_validation()->set_split(0.001);
  CHECK(Message(ResolveDataUse(spec, MnistFacts()).status()) ==
        "validation: 0 of 100 training samples would be set aside: both sets need a sample");
  spec = MnistSpec();
  spec.mutable_data()->set_repeat_channels(3);
  v1::DatasetFacts colour = MnistFacts();
  testing::SetImages(28, 28, 3, 10, &colour);
  CHECK(Message(ResolveColumns(spec, colour).status()) ==
        "data.repeat_channels: images of format mnist have 3 channels; only those with one can be "
        "repeated: leave it out");
}

TEST_CASE("Sample use: the model's images are resized and get three channels") {
  v1::JobSpec spec = MnistSpec();
  spec.mutable_data()->mutable_resize()->add_values(224);
  spec.mutable_data()->set_repeat_channels(3);
  const auto image = [&] {
    const auto columns = ResolveColumns(spec, MnistFacts());
    REQUIRE(columns.ok());
    REQUIRE(columns->size() == 2);
    CHECK(columns->front().type() == v1::ELEMENT_TYPE_FLOAT32);
    CHECK(columns->back().limit() == 10);
    return std::vector<int64_t>(columns->front().shape().begin(), columns->front().shape().end());
  };
  CHECK(image() == std::vector<int64_t>{224, 224, 3});
  spec.mutable_data()->mutable_resize()->add_values(100);
  CHECK(image() == std::vector<int64_t>{224, 100, 3});
}

TEST_CASE("Sample use: what is done to images needs a column of images, and one alone") {
  v1::DatasetFacts facts = MnistFacts();
  v1::StoredColumn& second = *facts.add_columns() = facts.columns(0);
  second.set_name("depth");
  CHECK(Message(ResolveColumns(MnistSpec(), facts).status()) ==
        "columns image and depth are both images (uint8): a job has one; name it in data.inputs, "
        "or save the other as float32");
  facts = MnistFacts();
  facts.mutable_columns(0)->set_type(v1::ELEMENT_TYPE_FLOAT32);
  CHECK(ResolveColumns(MnistSpec(), facts).ok());
  v1::JobSpec spec = MnistSpec();
  spec.add_augment()->mutable_random_flip();
  CHECK(Message(ResolveColumns(spec, facts).status()) ==
        "augment: the data have no images, an input column of uint8 (height, width, channels); "
        "they have image, label: leave it out");
  spec.mutable_data()->mutable_resize()->add_values(8);
  CHECK_THAT(Message(ResolveColumns(spec, facts).status()), Catch::StartsWith("data.resize: "));
}

}  // namespace
}  // namespace ringmaster::job
