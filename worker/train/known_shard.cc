#include "worker/train/known_shard.h"

#include <algorithm>

#include "common/exact/quantize.h"
#include "common/sha256.h"
#include "worker/train/shard_work.h"

namespace ringmaster::worker {
namespace {

// Hashes one gradient's integers block by block; says whether a value could not be added.
exact::FlagKind HashGradient(const TrainingJob& job, uint32_t tensor,
                             std::span<const float> gradient, Sha256* sha) {
  const exact::TensorRange& range = job.state->layout->blocks().tensor(tensor);
  auto kind = exact::FlagKind::kNone;
  for (size_t i = 0; i < range.block_count; ++i) {
    const size_t at = i * exact::kBlockElements;
    const size_t count = std::min<size_t>(exact::kBlockElements, gradient.size() - at);
    int64_t integers[exact::kBlockElements] = {};
    const exact::FlagKind found = exact::QuantizeAdd(
        gradient.subspan(at, count), job.state->units.unit_exponent(range.first_block + i),
        job.state->loss_scale.inverse(), job.spec().shards(), integers);
    if (kind == exact::FlagKind::kNone) kind = found;
    sha->Update(integers, count * sizeof(int64_t));
  }
  return kind;
}

StatusOr<std::string> HashShard(const TrainingJob& job, const ShardBatch& batch, const Seat& seat) {
  RING_ASSIGN_OR_RETURN(Executable* const executable,
                        seat.executable({ModeOf(batch.id), batch.samples.size()}));
  Sha256 sha;
  ShardResult result;
  const GradientSink hash{.take = [&](uint32_t tensor, std::span<const float> gradient) {
    KeepFirst(HashGradient(job, tensor, gradient, &sha), tensor, &result.flag);
  }};
  RING_RETURN_IF_ERROR(RunShard(job, batch, executable, hash, &result));
  exact::Record record = job.EmptyRecord();
  AddToRecord(result, &record);
  sha.Update(record.integers().data(), record.integers().size_bytes());
  for (const std::vector<float>& rows : result.output.rows) {
    sha.Update(rows.data(), rows.size() * sizeof(float));
  }
  return Hex(sha.Finish());
}

}  // namespace

StatusOr<std::vector<std::string>> KnownShardSha256(TrainingJob* job) {
  const v1::ResultSpec& spec = job->spec();
  const BatchId known =
      Trains(spec) ? BatchId::Training(0, spec.shards() - 1)
                   : BatchId::Evaluation(0, job::HeldOutSet(spec.data_use()), 0, spec.shards() - 1);
  RING_ASSIGN_OR_RETURN(const std::shared_ptr<const ShardBatch> batch, job->loader->Load(known));
  std::vector<std::string> hashes(job->cores->size());
  RING_RETURN_IF_ERROR(job->cores->RunOnAll([&](const Seat& seat) -> Status {
    RING_ASSIGN_OR_RETURN(hashes[seat.index()], HashShard(*job, *batch, seat));
    return absl::OkStatus();
  }));
  return hashes;
}

}  // namespace ringmaster::worker
