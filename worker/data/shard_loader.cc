#include "worker/data/shard_loader.h"

#include <utility>

#include "common/check.h"
#include "common/job/shards.h"

namespace ringmaster::worker {
namespace {

std::vector<v1::Augmentation> AugmentOf(const v1::ResultSpec& spec) {
  return {spec.augment().begin(), spec.augment().end()};
}

graph::ImageShape ShapeOf(const v1::DatasetFacts& data) {
  return {data.height(), data.width(), data.channels()};
}

// Places of the shard's samples in their split's order, and n.
struct Slice {
  job::Range places;
  uint64_t batch_samples = 0;
};

Slice SliceOf(const v1::ResultSpec& spec, const BatchId& id) {
  const bool training = id.use == graph::Use::kTraining;
  const uint64_t total = training ? spec.data().train_samples() : spec.data().test_samples();
  const job::Range batch = job::BatchOf(training ? id.step : id.batch, spec.batch(), total);
  const job::Range shard = job::ShardOf(id.shard, spec.shards(), batch.size());
  return {{batch.begin + shard.begin, batch.begin + shard.end}, batch.size()};
}

}  // namespace

std::strong_ordering BatchId::operator<=>(const BatchId& other) const {
  if (const auto order = step <=> other.step; order != 0) return order;
  const auto rank = [](graph::Use use) { return use == graph::Use::kEvaluation ? 0 : 1; };
  if (const auto order = rank(use) <=> rank(other.use); order != 0) return order;
  if (const auto order = batch <=> other.batch; order != 0) return order;
  return shard <=> other.shard;
}

AlignedFloats::AlignedFloats(size_t size) : size_(size) {
  constexpr size_t kAlignment = 64;
  const size_t bytes = (size * sizeof(float) + kAlignment - 1) / kAlignment * kAlignment;
  if (bytes == 0) return;
  data_.reset(static_cast<float*>(std::aligned_alloc(kAlignment, bytes)));
  RING_CHECK(data_ != nullptr, "out of memory");
}

ShardLoader::ShardLoader(std::shared_ptr<const Dataset> dataset, v1::ResultSpec spec)
    : dataset_(std::move(dataset)),
      spec_(std::move(spec)),
      augmenter_(AugmentOf(spec_), ShapeOf(spec_.data()), spec_.seed()) {}

StatusOr<std::shared_ptr<const ShardBatch>> ShardLoader::Load(const BatchId& id) const {
  if (id.shard >= spec_.shards()) {
    return InvalidArgument("shard {} of a job with {} shards", id.shard, spec_.shards());
  }
  const bool training = id.use == graph::Use::kTraining;
  const data::Split split = training ? data::Split::kTrain : data::Split::kTest;
  const Slice slice = SliceOf(spec_, id);
  const size_t rows = slice.places.size();
  const size_t elements = ShapeOf(spec_.data()).elements();
  const job::Permutation permutation(spec_.seed(), id.step / spec_.steps_per_epoch(),
                                     spec_.data().train_samples());
  auto batch = std::make_shared<ShardBatch>();
  batch->id = id;
  batch->batch_samples = slice.batch_samples;
  batch->images = AlignedFloats(rows * elements);
  batch->samples.reserve(rows);
  batch->labels.reserve(rows);
  std::vector<uint8_t> pixels(elements);
  for (size_t row = 0; row < rows; ++row) {
    const uint64_t place = slice.places.begin + row;
    const uint64_t sample = training ? permutation.At(place) : place;
    RING_ASSIGN_OR_RETURN(const int32_t label, dataset_->Read(split, sample, pixels));
    augmenter_.Apply(id.use, id.step, sample, pixels,
                     batch->images.span().subspan(row * elements, elements));
    batch->samples.push_back(sample);
    batch->labels.push_back(label);
  }
  return batch;
}

uint64_t ShardLoader::evaluation_batches() const {
  return (spec_.data().test_samples() + spec_.batch() - 1) / spec_.batch();
}

}  // namespace ringmaster::worker
