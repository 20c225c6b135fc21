#include "worker/data/shard_loader.h"

#include <algorithm>
#include <utility>

#include "common/check.h"
#include "common/job/image_rules.h"
#include "common/job/shards.h"
#include "worker/backend/failure.h"

namespace ringmaster::worker {
namespace {

std::vector<v1::Augmentation> AugmentOf(const v1::ResultSpec& spec, graph::Use use) {
  const auto& list = use == graph::Use::kTraining ? spec.augment() : spec.evaluation_augment();
  return {list.begin(), list.end()};
}

data::Split SplitOf(const v1::ResultSpec& spec, const BatchId& id) {
  const bool test =
      id.set == job::SampleSet::kTest && spec.data_use().test_from() != v1::SAMPLE_SPLIT_TRAIN;
  return test ? data::Split::kTest : data::Split::kTrain;
}

// What the data have under the name of a column of the graph.
size_t StoredOf(const v1::ResultSpec& spec, const std::string& name) {
  const auto& columns = spec.data().columns();
  const auto found = std::ranges::find(columns, name, &v1::StoredColumn::name);
  RING_CHECK(found != columns.end(), "a graph of columns that the data have not");
  return static_cast<size_t>(found - columns.begin());
}

// Of a stored image, as geometry leaves it: the job was resolved, so it is of one size.
graph::ImageShape StoredShape(const v1::ResultSpec& spec, const v1::StoredColumn& column) {
  const auto size = graph::Geometry::Check(AugmentOf(spec, graph::Use::kTraining),
                                           job::SizesOf(spec.data(), column));
  RING_CHECK(size.ok(), "images of one size");
  return {size->height, size->width, static_cast<uint32_t>(column.shape(2))};
}

// The column of the graph that is stored as uint8; nullptr: none.
const v1::Column* ImageOf(const v1::ResultSpec& spec) {
  for (const v1::Column& column : spec.graph().columns()) {
    const size_t stored = StoredOf(spec, column.name());
    if (spec.data().columns(static_cast<int>(stored)).type() == v1::ELEMENT_TYPE_UINT8) {
      return &column;
    }
  }
  return nullptr;
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
template class AlignedArray<std::byte>;

std::optional<std::span<const std::byte>> ShardBatch::column(std::string_view name) const {
  const auto found = std::ranges::find(columns, name, &BatchColumn::name);
  if (found == columns.end()) return std::nullopt;
  return found->rows.span();
}

std::shared_ptr<const graph::Augmenter> MakeAugmenter(const v1::ResultSpec& spec) {
  const v1::Column* const image = ImageOf(spec);
  if (image == nullptr) return nullptr;
  const v1::StoredColumn& stored =
      spec.data().columns(static_cast<int>(StoredOf(spec, image->name())));
  const auto at = [&](int axis) { return static_cast<uint32_t>(image->shape(axis)); };
  return std::make_shared<const graph::Augmenter>(
      AugmentOf(spec, graph::Use::kTraining), AugmentOf(spec, graph::Use::kEvaluation),
      StoredShape(spec, stored), graph::ImageShape{at(0), at(1), at(2)}, spec.seed());
}

bool CoresMayAugment(const v1::ResultSpec& spec) {
  const auto& columns = spec.graph().columns();
  const auto first = std::ranges::find_if(columns, [](const v1::Column& column) {
    return column.type() == v1::ELEMENT_TYPE_FLOAT32 && column.shape_size() == 3;
  });
  const auto hosts_do = [](const auto& list) {
    return std::ranges::any_of(list, graph::HostsAlone);
  };
  return first != columns.end() && &*first == ImageOf(spec) && !hosts_do(spec.augment()) &&
         !hosts_do(spec.evaluation_augment());
}

bool MixesLabels(const v1::ResultSpec& spec) {
  return std::ranges::any_of(spec.augment(), graph::IsOfShards);
}

ShardLoader::ShardLoader(std::shared_ptr<const Dataset> dataset, v1::ResultSpec spec,
                         std::shared_ptr<const graph::Augmenter> augmenter)
    : dataset_(std::move(dataset)),
      spec_(std::move(spec)),
      sources_(SourcesOf(spec_)),
      samples_(spec_.data_use()),
      training_(AugmentOf(spec_, graph::Use::kTraining), spec_.seed()),
      evaluation_(AugmentOf(spec_, graph::Use::kEvaluation), spec_.seed()),
      augmenter_(std::move(augmenter)),
      mixer_(augmenter_ == nullptr ? std::nullopt
                                   : graph::Mixer::Of(augmenter_->operations(graph::Use::kTraining),
                                                      augmenter_->model(), spec_.seed())) {
  RING_CHECK(augmenter_ != nullptr || !MixesLabels(spec_), "hosts mix images");
}

std::vector<ShardLoader::Source> ShardLoader::SourcesOf(const v1::ResultSpec& spec) {
  std::vector<Source> sources;
  for (const v1::Column& column : spec.graph().columns()) {
    Source source = {.name = column.name(), .stored = StoredOf(spec, column.name())};
    source.row_bytes = sizeof(float);
    for (const int64_t extent : column.shape()) source.row_bytes *= static_cast<size_t>(extent);
    const v1::StoredColumn& stored = spec.data().columns(static_cast<int>(source.stored));
    source.image = stored.type() == v1::ELEMENT_TYPE_UINT8;
    source.stored_bytes =
        source.image ? StoredShape(spec, stored).elements() : data::RowBytes(stored);
    sources.push_back(source);
  }
  return sources;
}

Status ShardLoader::ReadPixels(const Source& source, const BatchId& id, uint64_t sample,
                               std::span<std::byte> pixels) const {
  const data::Split split = SplitOf(spec_, id);
  const graph::Geometry& geometry = id.use() == graph::Use::kTraining ? training_ : evaluation_;
  if (geometry.empty()) return dataset_->Read(source.stored, split, sample, pixels);
  const image::Size size = dataset_->image_size(source.stored, split, sample);
  return dataset_->ReadImage(source.stored, split, sample, geometry.Place(id.step, sample, size),
                             {reinterpret_cast<uint8_t*>(pixels.data()), pixels.size()});
}

Status ShardLoader::LoadRow(const Source& source, size_t column, size_t row, LoadScratch* scratch,
                            ShardBatch* batch) const {
  const BatchId& id = batch->id;
  const uint64_t sample = batch->samples[row];
  if (source.image && augmenter_ == nullptr) {
    const auto pixels = std::as_writable_bytes(batch->pixels.span());
    return ReadPixels(source, id, sample,
                      pixels.subspan(row * source.stored_bytes, source.stored_bytes));
  }
  const std::span<std::byte> out =
      batch->columns[column].rows.span().subspan(row * source.row_bytes, source.row_bytes);
  if (!source.image) return dataset_->Read(source.stored, SplitOf(spec_, id), sample, out);
  scratch->stored.resize(source.stored_bytes);
  RING_RETURN_IF_ERROR(ReadPixels(source, id, sample, scratch->stored));
  augmenter_->Apply(
      id.use(), id.step, sample,
      {reinterpret_cast<const uint8_t*>(scratch->stored.data()), scratch->stored.size()},
      &scratch->images, {reinterpret_cast<float*>(out.data()), out.size() / sizeof(float)});
  return absl::OkStatus();
}

void ShardLoader::Finish(ShardBatch* batch) const {
  const BatchId& id = batch->id;
  if (!mixer_ || id.use() != graph::Use::kTraining || batch->samples.size() < 2) return;
  const graph::Mix mix = mixer_->Draw(id.step, id.shard);
  batch->share = mix.share;
  for (size_t column = 0; column < sources_.size(); ++column) {
    if (!sources_[column].image) continue;
    const std::span<std::byte> rows = batch->columns[column].rows.span();
    mixer_->Apply(mix, {reinterpret_cast<float*>(rows.data()), rows.size() / sizeof(float)});
  }
}

StatusOr<std::shared_ptr<ShardBatch>> ShardLoader::Open(const BatchId& id) const {
  if (id.shard >= spec_.shards()) {
    return InvalidArgument("shard {} of a job with {} shards", id.shard, spec_.shards());
  }
  if (samples_.count(id.set) == 0) return InvalidArgument("the job has no such sample set");
  const bool training = id.set == job::SampleSet::kTrain;
  const Slice slice = SliceOf(spec_, id, samples_.count(id.set));
  const size_t rows = slice.places.size();
  const job::Permutation permutation(spec_.seed(), id.step / spec_.steps_per_epoch(),
                                     samples_.count(job::SampleSet::kTrain));
  auto batch = std::make_shared<ShardBatch>();
  batch->id = id;
  batch->batch_samples = slice.batch_samples;
  batch->samples.reserve(rows);
  for (size_t row = 0; row < rows; ++row) {
    const uint64_t place = slice.places.begin + row;
    batch->samples.push_back(samples_.At(id.set, training ? permutation.At(place) : place));
  }
  for (const Source& source : sources_) {
    const bool as_pixels = source.image && augmenter_ == nullptr;
    if (as_pixels) batch->pixels = AlignedArray<uint8_t>(rows * source.stored_bytes);
    batch->columns.push_back(
        {source.name, AlignedArray<std::byte>(as_pixels ? 0 : rows * source.row_bytes)});
  }
  return batch;
}

Status ShardLoader::LoadRows(size_t begin, size_t end, LoadScratch* scratch,
                             ShardBatch* batch) const {
  for (size_t row = begin; row < end; ++row) {
    for (size_t column = 0; column < sources_.size(); ++column) {
      RING_RETURN_IF_ERROR(WithFailure(v1::FAILURE_CODE_DATASET,
                                       LoadRow(sources_[column], column, row, scratch, batch)));
    }
  }
  return absl::OkStatus();
}

StatusOr<std::shared_ptr<ShardBatch>> ShardLoader::Load(const BatchId& id) const {
  RING_ASSIGN_OR_RETURN(std::shared_ptr<ShardBatch> batch, Open(id));
  LoadScratch scratch;
  RING_RETURN_IF_ERROR(LoadRows(0, batch->samples.size(), &scratch, batch.get()));
  Finish(batch.get());
  return batch;
}

uint64_t ShardLoader::Bytes(const BatchId& id) const {
  if (id.shard >= spec_.shards() || samples_.count(id.set) == 0) return 0;
  uint64_t row = sizeof(uint64_t);  // its index
  for (const Source& source : sources_) {
    row += source.image && augmenter_ == nullptr ? source.stored_bytes : source.row_bytes;
  }
  return SliceOf(spec_, id, samples_.count(id.set)).places.size() * row;
}

uint64_t ShardLoader::evaluation_batches(job::SampleSet set) const {
  return (samples_.count(set) + spec_.batch() - 1) / spec_.batch();
}

}  // namespace ringmaster::worker
