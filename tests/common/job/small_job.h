// A small job for tests of what is made of specs. Thread-safe (free functions).
#pragma once

#include <catch2/catch.hpp>

#include <string>
#include <vector>

#include "common/job/job_file.h"
#include "common/job/resolve.h"
#include "tests/support/image_data.h"

namespace ringmaster::job::small {

inline constexpr char kMinimal[] = R"(name: small
model: {name: mlp}
data: {format: cifar10, path: cifar10}
batch: 4
steps: 10
optimizer: {adam: {}}
)";

inline v1::JobSpec Spec(const std::vector<std::string>& overrides = {}) {
  const StatusOr<v1::JobSpec> spec = ParseJobFile("job.yaml", kMinimal, overrides);
  INFO(spec.status());
  REQUIRE(spec.ok());
  return *spec;
}

inline v1::DatasetFacts Facts() {
  v1::DatasetFacts facts;
  facts.set_format("cifar10");
  facts.set_train_samples(10);
  facts.set_test_samples(3);
  testing::SetImages(32, 32, 3, 10, &facts);
  v1::DataFile* file = facts.add_files();
  file->set_name("data_batch_1.bin");
  file->set_bytes(30730);
  file->set_samples(10);
  file->set_sha256(std::string(64, 'a'));
  return facts;
}

inline v1::NumericsClass Numerics() {
  v1::NumericsClass numerics;
  numerics.set_backend("cpu");
  numerics.set_device_model("Some \"CPU\"");
  numerics.add_cache_bytes(32768);
  numerics.set_instruction_set("avx2");
  numerics.set_threads_per_core(1);
  numerics.set_compute_id("b1");
  (*numerics.mutable_libraries())["onednn"] = "2.7";
  (*numerics.mutable_libraries())["glibc"] = "2.36";
  return numerics;
}

}  // namespace ringmaster::job::small
