#include "common/job/offline_job.h"

#include <catch2/catch.hpp>

#include "common/job/job_file.h"

namespace ringmaster::job {
namespace {

constexpr char kRemoteJob[] = R"(name: small
model: {name: mlp}
data: {format: cifar10, path: "s3://bucket/cifar10/"}
batch: 4
steps: 10
optimizer: {adam: {}}
)";

StatusOr<v1::ResultSpec> OfRemoteJob(const std::vector<std::string>& overrides,
                                     const std::string& data_root) {
  const auto spec = ParseJobFile("job.yaml", kRemoteJob, overrides);
  REQUIRE(spec.ok());
  return ResultWithoutCluster(*spec, data_root);
}

TEST_CASE("Offline job: data at an address are what their format usually is") {
  const auto result = OfRemoteJob({}, "");
  INFO(result.status());
  REQUIRE(result.ok());
  CHECK(result->data_use().train_samples() == 4);
}

TEST_CASE("Offline job: data at an address are not looked at, and that is said") {
  const auto with_root = OfRemoteJob({}, "/data");
  CHECK(with_root.status().code() == absl::StatusCode::kInvalidArgument);
  CHECK(Message(with_root.status()) ==
        "data.path: s3://bucket/cifar10/ is an address, and what is there is not looked at here; "
        "leave --data-root out, or name a copy of the data beneath it: --set data.path=FOLDER");
  CHECK(Message(OfRemoteJob({"data.format=null"}, "").status()) ==
        "data.format: missing; give it: s3://bucket/cifar10/ is an address, and what is there is "
        "not looked at here");
}

TEST_CASE("Offline job: of a script is said what can be known, and what not") {
  const auto spec = ParseJobFile("job.yaml", "name: own\nscript: train.py\nbatch: 64\n", {});
  REQUIRE(spec.ok());
  const Status planned = ResultWithoutCluster(*spec, "").status();
  CHECK(planned.code() == absl::StatusCode::kFailedPrecondition);
  CHECK_THAT(Message(planned),
             Catch::StartsWith("own: what train.py computes is known when a worker has run it") &&
                 Catch::Contains("the interpreter default, batch 64. Submit it"));
}

}  // namespace
}  // namespace ringmaster::job
