// The job files that users start from.
#include <catch2/catch.hpp>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "common/data/format.h"
#include "common/job/job_file.h"
#include "common/job/resolve.h"
#include "tests/support/image_data.h"

namespace ringmaster::job {
namespace {

namespace fs = std::filesystem;

v1::JobSpec Read(const fs::path& path) {
  std::ifstream file(path);
  const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  const auto spec = ParseJobFile(path.filename(), text, {});
  INFO(spec.status());
  REQUIRE(spec.ok());
  return *spec;
}

TEST_CASE("Examples: every job file is valid, and is resolved with a dataset of its format") {
  size_t found = 0;
  for (const auto& entry : fs::directory_iterator(RINGMASTER_EXAMPLES)) {
    if (entry.path().extension() != ".yaml") continue;
    ++found;
    INFO(entry.path());
    const v1::JobSpec spec = Read(entry.path());
    CHECK(spec.name() + ".yaml" == entry.path().filename());
    const Status valid = Validate(spec);
    INFO(valid);
    REQUIRE(valid.ok());
    const bool grey = spec.data().format() == "mnist";
    v1::DatasetFacts facts;
    facts.set_format(spec.data().format());
    facts.set_train_samples(6000);
    facts.set_test_samples(1000);
    const uint32_t size = grey ? 28 : 32, channels = grey ? 1 : 3;
    testing::SetImages(size, size, channels, (*data::FindFormat(spec.data().format()))->classes,
                       &facts);
    const auto job = Resolve(spec, facts, {});
    INFO(job.status());
    REQUIRE(job.ok());
    CHECK(job->result().data_use().test_samples() == 1000);

    // With every default filled in it is the same job, and so is what is printed of that.
    const v1::JobSpec complete = WithDefaults(spec);
    const auto again = ParseJobFile("printed.yaml", PrintJobFile(complete), {});
    INFO(PrintJobFile(complete));
    REQUIRE(again.ok());
    CHECK(again->SerializeAsString() == complete.SerializeAsString());
    const auto same = Resolve(*again, facts, {});
    REQUIRE(same.ok());
    CHECK(same->SerializeAsString() == job->SerializeAsString());
    for (const char* key : {"shards: ", "seed: ", "workers: {min: ", "reduction: exact"}) {
      CHECK_THAT(PrintJobFile(complete), Catch::Contains(key));
    }
  }
  CHECK(found >= 3);
}

TEST_CASE("Examples: VGG's job is that of the CIFAR-10 tutorial") {
  const v1::JobSpec spec = Read(fs::path(RINGMASTER_EXAMPLES) / "vgg-cifar10.yaml");
  CHECK(spec.precision().policy() == v1::POLICY_MIXED_FLOAT16);
  CHECK(spec.optimizer().has_adam());
  REQUIRE(spec.augment_size() == 5);
  CHECK(spec.augment(0).has_random_crop());
  CHECK(spec.augment(1).has_random_flip());
  CHECK(spec.augment(2).random_brightness().max_delta() == 63);
  CHECK(spec.augment(3).random_contrast().lower() == 0.2);
  CHECK(spec.augment(3).random_contrast().upper() == 1.8);
  CHECK(spec.augment(4).has_per_image_standardization());
}

}  // namespace
}  // namespace ringmaster::job
