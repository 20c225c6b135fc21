#include "worker/data/shard_loader.h"

#include <utility>

#include "common/check.h"
#include "common/job/shards.h"

namespace ringmaster::worker {
namespace {

std::vector<v1::Augmentation> AugmentOf(const v1::ResultSpec& spec) {
  return {spec.augment().begin(), spec.augment().end()};
}

// Of the dataset as it is stored (DatasetFacts), and as the model gets it (DataUse).
template <typename Image>
graph::ImageShape ShapeOf(const Image& image) {
  return {image.height(), image.width(), image.channels()};
}

// Places of the shard's samples in the epoch's order of their set, and n.
struct Slice {
  job::Range places;
  uint64_t batch_samples = 0;
};

Slice SliceOf(const v1::ResultSpec& spec, const BatchId& id, uint64_t total) {
  const bool training = id.set == job::SampleSet::kTrain;
  const job::Range batch = job::BatchOf(training ? id.step : id.batch, spec.batch(), total);
  const job::Range shard = job::ShardOf(id.shard, spec.shards(), batch.size());
  return {{batch.begin + shard.begin, batch.begin + shard.end}, batch.size()};
}

}  // namespace

template <typename T>
AlignedArray<T>::AlignedArray(size_t size) : size_(size) {
  constexpr size_t kAlignment = 64;
  const size_t bytes = (size * sizeof(T) + kAlignment - 1) / kAlignment * kAlignment;
  if (bytes == 0) return;
  data_.reset(static_cast<T*>(std::aligned_alloc(kAlignment, bytes)));
  RING_CHECK(data_ != nullptr, "out of memory");
}
template class AlignedArray<uint8_t>;
template class AlignedArray<float>;

std::shared_ptr<const graph::Augmenter> MakeAugmenter(const v1::ResultSpec& spec) {
  return std::make_shared<const graph::Augmenter>(AugmentOf(spec), ShapeOf(spec.data()),
                                                  ShapeOf(spec.data_use()), spec.seed());
}

ShardLoader::ShardLoader(std::shared_ptr<const Dataset> dataset, v1::ResultSpec spec,
                         std::shared_ptr<const graph::Augmenter> augmenter)
    : dataset_(std::move(dataset)),
      spec_(std::move(spec)),
      samples_(spec_.data_use()),
      augmenter_(std::move(augmenter)) {}

StatusOr<std::shared_ptr<ShardBatch>> ShardLoader::Load(const BatchId& id) const {
  if (id.shard >= spec_.shards()) {
    return InvalidArgument("shard {} of a job with {} shards", id.shard, spec_.shards());
  }
  if (samples_.count(id.set) == 0) return InvalidArgument("the job has no such sample set");
  const bool training = id.set == job::SampleSet::kTrain;
  const data::Split split =
      id.set == job::SampleSet::kTest ? data::Split::kTest : data::Split::kTrain;
  const Slice slice = SliceOf(spec_, id, samples_.count(id.set));
  const size_t rows = slice.places.size();
  const size_t stored = ShapeOf(spec_.data()).elements();
  const size_t elements = ShapeOf(spec_.data_use()).elements();
  const job::Permutation permutation(spec_.seed(), id.step / spec_.steps_per_epoch(),
                                     samples_.count(job::SampleSet::kTrain));
  auto batch = std::make_shared<ShardBatch>();
  batch->id = id;
  batch->batch_samples = slice.batch_samples;
  batch->pixels = AlignedArray<uint8_t>(augmenter_ == nullptr ? rows * stored : 0);
  batch->images = AlignedArray<float>(augmenter_ == nullptr ? 0 : rows * elements);
  batch->samples.reserve(rows);
  batch->labels.reserve(rows);
  std::vector<uint8_t> one(augmenter_ == nullptr ? 0 : stored);
  graph::ImageScratch scratch;
  for (size_t row = 0; row < rows; ++row) {
    const uint64_t place = slice.places.begin + row;
    const uint64_t sample = samples_.At(id.set, training ? permutation.At(place) : place);
    const std::span<uint8_t> pixels =
        augmenter_ == nullptr ? batch->pixels.span().subspan(row * stored, stored) : std::span(one);
    RING_ASSIGN_OR_RETURN(const int32_t label, dataset_->Read(split, sample, pixels));
    if (augmenter_ != nullptr) {
      augmenter_->Apply(id.use(), id.step, sample, pixels, &scratch,
                        batch->images.span().subspan(row * elements, elements));
    }
    batch->samples.push_back(sample);
    batch->labels.push_back(label);
  }
  return batch;
}

uint64_t ShardLoader::evaluation_batches(job::SampleSet set) const {
  return (samples_.count(set) + spec_.batch() - 1) / spec_.batch();
}

}  // namespace ringmaster::worker
