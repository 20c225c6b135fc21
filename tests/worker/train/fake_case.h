// A small job on the backend of hashes: everything but kernels is real.
#pragma once

#include <catch2/catch.hpp>
#include <memory>
#include <utility>
#include <vector>

#include "tests/support/fake_backend.h"
#include "tests/worker/train/training_case.h"

namespace ringmaster::worker {

// 42 images: batches of 20, 20 and 2, so that the last one has empty shards.
inline constexpr uint64_t kTrain = 42;
inline constexpr uint64_t kTest = 27;
inline constexpr uint64_t kSteps = 6;

inline const Cluster kAlone = {{1, {0, 1, 2, 3}}};

struct FakeCase {
  explicit FakeCase(FakeHooks hooks = {}, const v1::JobSpec& spec = SmallSpec())
      : data(kTrain, kTest),
        backend(std::move(hooks)),
        resolved(ResolveSpec(spec, *data.dataset(), backend)) {}

  std::vector<MemberResult> Run(const Cluster& cluster,
                                const std::function<void(ring::Frame&)>& on_frame = {}) {
    return RunCluster(cluster, resolved, data.dataset(), &backend, on_frame);
  }
  StatusOr<std::unique_ptr<Trainer>> Prepare(uint32_t cores = 1,
                                             TrainerOptions options = SmallBuckets()) {
    return Trainer::Prepare(JobId("job"), resolved, data.dataset(), &backend, Cores(cores),
                            options);
  }

  SmallDataset data;
  FakeBackend backend;
  v1::ResolvedJob resolved;
};

inline void RequireFinished(const std::vector<MemberResult>& results, uint64_t steps = kSteps) {
  for (const MemberResult& result : results) {
    INFO(Message(result.prepared) << result.run.reason);
    REQUIRE(result.run.end == RunEnd::kFinished);
    REQUIRE(result.run.applied == steps);
    REQUIRE(result.run.digest == results[0].run.digest);
  }
}

}  // namespace ringmaster::worker
