#include "tests/worker/train/training_case.h"
#include "tests/support/model_option.h"

#include <thread>

#include "common/check.h"
#include "common/data/sample_data.h"
#include "common/job/resolve.h"

namespace ringmaster::worker {

Status MemorySink::Deliver(const Checkpoint& checkpoint, const std::stop_token&) {
  MutexLock lock(mu_);
  checkpoints_.push_back(checkpoint);
  return absl::OkStatus();
}

std::vector<Checkpoint> MemorySink::checkpoints() const {
  MutexLock lock(mu_);
  return checkpoints_;
}

SmallDataset::SmallDataset(uint64_t train, uint64_t test) {
  const Status made = data::MakeSampleData(folder_ / "cifar10", {.train = train, .test = test});
  RING_CHECK(made.ok(), Message(made).c_str());
  v1::DataSource source;
  source.set_format("cifar10");
  source.set_path("cifar10");
  auto opened = Dataset::Open({.data_root = folder_.path(), .state_dir = ""}, source);
  RING_CHECK(opened.ok(), Message(opened.status()).c_str());
  dataset_ = *std::move(opened);
}

v1::JobSpec SmallSpec() {
  v1::JobSpec spec;
  spec.set_name("small");
  spec.mutable_model()->set_name("mlp");
  testing::SetHidden({}, spec.mutable_model());
  spec.mutable_data()->set_format("cifar10");
  spec.mutable_data()->set_path("cifar10");
  spec.set_batch(20);
  spec.set_shards(4);
  spec.set_epochs(2);
  spec.set_seed(1);
  spec.mutable_precision()->set_policy(v1::POLICY_FLOAT32);
  spec.mutable_optimizer()->mutable_adam();
  spec.add_augment()->mutable_random_crop();
  spec.add_augment()->mutable_random_flip();
  spec.add_augment()->mutable_per_image_standardization();
  spec.mutable_checkpoint()->set_every_steps(2);
  return spec;
}

v1::ResolvedJob ResolveSpec(const v1::JobSpec& spec, const Dataset& dataset, const Backend& backend,
                            const InitWeights* init) {
  const Status valid = job::Validate(spec);
  RING_CHECK(valid.ok(), Message(valid).c_str());
  auto resolved = job::Resolve(spec, dataset.facts(), backend.numerics_class(1),
                               init == nullptr ? nullptr : &init->facts());
  RING_CHECK(resolved.ok(), Message(resolved.status()).c_str());
  return *std::move(resolved);
}

std::vector<CoreOptions> Cores(uint32_t count) {
  std::vector<CoreOptions> cores(count);
  for (uint32_t i = 0; i < count; ++i) cores[i].name = "core" + std::to_string(i);
  return cores;
}

TrainerOptions SmallBuckets() {
  TrainerOptions options;
  options.bucket_elements = 4096;
  options.reduce.segment_elements = 1024;
  options.checkpoint_copies = 24;  // steps are quicker here than any sink: none is dropped
  return options;
}

std::vector<MemberResult> RunCluster(const Cluster& cluster, const v1::ResolvedJob& resolved,
                                     const std::shared_ptr<const Dataset>& dataset,
                                     Backend* backend,
                                     const std::function<void(ring::Frame&)>& on_frame,
                                     std::shared_ptr<const InitWeights> init) {
  const auto size = static_cast<uint32_t>(cluster.size());
  ring::MemoryRing ring(size);
  if (on_frame) ring.Tamper(0, on_frame);
  std::vector<MemberResult> results(size);
  const auto run = [&](uint32_t rank) {
    MemberResult& result = results[rank];
    TrainerOptions options = SmallBuckets();
    options.init = init;
    auto trainer = Trainer::Prepare(JobId("job"), resolved, dataset, backend,
                                    Cores(cluster[rank].cores), options);
    result.prepared = trainer.status();
    if (!trainer.ok()) {
      ring.Lose(rank);
      return;
    }
    result.known_shard_sha256 = (*trainer)->known_shard_sha256();
    const auto sink = std::make_shared<MemorySink>();
    ProgressList observer;
    const Assignment assignment{.generation = {1, 1},
                                .position = {.rank = rank, .size = size},
                                .shards = cluster[rank].shards,
                                .start_step = 0};
    ring::Link* const link = size > 1 ? ring.link(rank) : nullptr;
    result.run = (*trainer)->Run(assignment, {link, sink, &observer}, {});
    if (link != nullptr) link->Cancel(absl::CancelledError("the run is over"));
    result.progress = std::move(observer.all);
    result.checkpoints = sink->checkpoints();
  };
  std::vector<std::jthread> threads;
  for (uint32_t rank = 0; rank < size; ++rank) threads.emplace_back(run, rank);
  threads.clear();
  return results;
}

std::string LastManifest(const std::vector<MemberResult>& results) {
  if (results[0].run.end != RunEnd::kFinished) return "";
  return results[0].run.manifest_sha256;
}

}  // namespace ringmaster::worker
