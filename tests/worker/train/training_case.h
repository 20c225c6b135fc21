// A job and a cluster inside one process: real data files, any backend, one thread for each worker,
// rings over memory links. Results come back as values, so that only the main thread asserts.
#pragma once

#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include "common/mutex.h"
#include "tests/support/memory_link.h"
#include "tests/support/memory_state.h"
#include "tests/support/temporary_folder.h"
#include "worker/backend/backend.h"
#include "worker/train/trainer.h"

namespace ringmaster::worker {

// Keeps checkpoints in memory. Thread-safe.
class MemorySink : public CheckpointSink {
 public:
  Status Deliver(const Checkpoint& checkpoint, const std::stop_token& stop) override;
  [[nodiscard]] std::vector<Checkpoint> checkpoints() const;

 private:
  mutable Mutex mu_;
  std::vector<Checkpoint> checkpoints_ ABSL_GUARDED_BY(mu_);
};

// Refuses every checkpoint.
class BrokenSink : public CheckpointSink {
 public:
  Status Deliver(const Checkpoint&, const std::stop_token&) override {
    return absl::ResourceExhaustedError("disk full");
  }
};

// Keeps every progress.
class ProgressList : public Observer {
 public:
  void OnProgress(const Progress& progress) override { all.push_back(progress); }
  void OnCheckpointDropped(uint64_t step, const std::string& reason) override {
    dropped.emplace_back(step, reason);
  }
  std::vector<Progress> all;                              // read when the run is over
  std::vector<std::pair<uint64_t, std::string>> dropped;  // likewise
};

// A dataset of few images in a folder of its own.
class SmallDataset {
 public:
  SmallDataset(uint64_t train, uint64_t test);
  [[nodiscard]] const std::shared_ptr<const Dataset>& dataset() const { return dataset_; }

 private:
  TemporaryFolder folder_;
  std::shared_ptr<const Dataset> dataset_;
};

// A spec that resolves: mlp without hidden layers, batch 20, 4 shards, 2 epochs, Adam, dropout and
// augmentation where they apply.
v1::JobSpec SmallSpec();
// `init`: of its source, where it has one.
v1::ResolvedJob ResolveSpec(const v1::JobSpec& spec, const Dataset& dataset, const Backend& backend,
                            const InitWeights* init = nullptr);

// One worker: its cores and shards. Workers stand in ring order.
struct Member {
  uint32_t cores = 1;
  std::vector<uint32_t> shards;
};
using Cluster = std::vector<Member>;

struct MemberResult {
  Status prepared;
  RunResult run;
  std::vector<std::string> known_shard_sha256;
  std::vector<Progress> progress;
  std::vector<Checkpoint> checkpoints;
};

std::vector<CoreOptions> Cores(uint32_t count);
TrainerOptions SmallBuckets();

// Prepares and runs every member to the end of the job, or to the first error. `on_frame` sees what
// the first member sends.
std::vector<MemberResult> RunCluster(const Cluster& cluster, const v1::ResolvedJob& resolved,
                                     const std::shared_ptr<const Dataset>& dataset,
                                     Backend* backend,
                                     const std::function<void(ring::Frame&)>& on_frame = {},
                                     std::shared_ptr<const InitWeights> init = nullptr);

// SHA-256 of the last checkpoint's manifest, "" when the first member did not finish.
std::string LastManifest(const std::vector<MemberResult>& results);

// Requests a stop when a step is reported.
class StopAt : public Observer {
 public:
  StopAt(uint64_t applied, std::stop_source* stop) : applied_(applied), stop_(stop) {}
  void OnProgress(const Progress& progress) override {
    if (progress.applied == applied_) stop_->request_stop();
  }

 private:
  const uint64_t applied_;
  std::stop_source* const stop_;
};

// A state from one trainer to another without a network.
using testing::MemoryState;
inline StatusOr<MemoryState> CopyOf(const Trainer& trainer, uint64_t step,
                                    size_t piece = size_t{1} << 20) {
  RING_ASSIGN_OR_RETURN(const std::unique_ptr<StateSource> source, trainer.Open(step));
  return testing::ReadAll(source.get(), piece);
}
inline Status AdoptCopy(const MemoryState& copy, const Sha256Digest& digest, Trainer* trainer) {
  const std::unique_ptr<IncomingState> incoming = trainer->Expect();
  RING_RETURN_IF_ERROR(testing::WriteAll(copy, incoming.get()));
  return trainer->Adopt(incoming.get(), digest);
}

}  // namespace ringmaster::worker
