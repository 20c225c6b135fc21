// Loads the samples of one shard of one step: permutation, slice, records, and augmentation where
// the cores leave it to the host. A pure function of (ResultSpec, dataset, BatchId): the same bytes
// on every worker, whoever asks and when. A batch has room for all of its rows before any of them
// is loaded, so that several threads may load rows of one batch in any order. Thread-safe; owned by
// the job that a worker serves.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/data/dataset.h"
#include "common/graph/augment/augment.h"
#include "common/graph/augment/geometry.h"
#include "common/graph/augment/mix.h"
#include "common/job/sample_use.h"
#include "common/status.h"
#include "ringmaster/v1/job.pb.h"
#include "worker/backend/backend.h"

namespace ringmaster::worker {

using data::Dataset;
using data::DatasetFolders;

// One shard of one batch. Ordered as a job reaches them: the evaluation of S(k) comes after
// training step k - 1 and before training step k.
struct BatchId {
  uint64_t step = 0;  // training: the step k; evaluation: of S(k), so k applied steps
  job::SampleSet set = job::SampleSet::kTrain;
  uint64_t batch = 0;  // evaluation: number of the set's batch; training: 0
  uint32_t shard = 0;

  static BatchId Training(uint64_t step, uint32_t shard) {
    return {step, job::SampleSet::kTrain, 0, shard};
  }
  static BatchId Evaluation(uint64_t applied, job::SampleSet set, uint64_t batch, uint32_t shard) {
    return {applied, set, batch, shard};
  }
  // Of the step's own work: a batch of training, or of the set that the job predicts.
  static BatchId OfStep(const v1::ResultSpec& spec, uint64_t step, uint32_t shard) {
    if (spec.kind() != v1::JOB_KIND_PREDICT) return Training(step, shard);
    return Evaluation(step, job::HeldOutSet(spec.data_use()), step, shard);
  }
  [[nodiscard]] graph::Use use() const {
    return set == job::SampleSet::kTrain ? graph::Use::kTraining : graph::Use::kEvaluation;
  }
  auto operator<=>(const BatchId& other) const = default;
};

// Numbers that start at a multiple of 64 bytes, as kernels require for equal bits.
template <typename T>
class AlignedArray {
 public:
  AlignedArray() = default;
  explicit AlignedArray(size_t size);
  std::span<T> span() { return {data_.get(), size_}; }
  std::span<const T> span() const { return {data_.get(), size_}; }

 private:
  struct Free {
    void operator()(T* data) const { std::free(data); }
  };
  std::unique_ptr<T[], Free> data_;
  size_t size_ = 0;
};

// Rows of one column that the model reads: float32 or int32, as the graph has it.
struct BatchColumn {
  std::string name;
  AlignedArray<std::byte> rows;
};

struct ShardBatch {
  BatchId id;
  uint64_t batch_samples = 0;     // n: samples of the whole batch, over all shards
  std::vector<uint64_t> samples;  // dataset index of each row; empty when the shard is empty
  // rows * H * W * C of the stored images, as geometry leaves them, for cores that make the images
  // themselves; else empty.
  AlignedArray<uint8_t> pixels;
  std::vector<BatchColumn> columns;  // in the graph's order
  float share = 1;                   // of each row's own label; the rest is the next row's
  // The pixels on the device, where a reader has had them brought ahead.
  std::shared_ptr<const StagedInput> staged;

  // The rows of a column, nothing when the model reads none of this name; those of the images are
  // empty where there are pixels.
  [[nodiscard]] std::optional<std::span<const std::byte>> column(std::string_view name) const;
};

// The one that a job has: of its loader, or of its cores. nullptr where the model reads no images
// that are stored as uint8.
[[nodiscard]] std::shared_ptr<const graph::Augmenter> MakeAugmenter(const v1::ResultSpec& spec);
// Whether cores that augment may have it: what they make of pixels is the first of the columns that
// look like images.
[[nodiscard]] bool CoresMayAugment(const v1::ResultSpec& spec);
// Whether rows of training have a share of the next row's label.
[[nodiscard]] bool MixesLabels(const v1::ResultSpec& spec);

// What loading a row needs beside its place. One thread's; its bytes mean nothing between rows.
struct LoadScratch {
  graph::ImageScratch images;
  std::vector<std::byte> stored;
};

class ShardLoader {
 public:
  // `spec` resolved; the dataset's facts must equal spec.data (checked by the caller at Prepare).
  // With an `augmenter`, MakeAugmenter(spec), batches hold images; with nullptr pixels, where there
  // are any, for cores that make the images themselves.
  ShardLoader(std::shared_ptr<const Dataset> dataset, v1::ResultSpec spec,
              std::shared_ptr<const graph::Augmenter> augmenter);
  virtual ~ShardLoader() = default;

  // A batch with room for its rows, none of which is loaded. INVALID_ARGUMENT: the job has no such
  // shard or set.
  [[nodiscard]] StatusOr<std::shared_ptr<ShardBatch>> Open(const BatchId& id) const;
  // Loads rows [begin, end) of a batch of Open into their places, one after the other; the error of
  // the first that has one, and those after it are left. Each row once; several threads may load
  // others of the same batch meanwhile. Virtual for tests, which delay it.
  [[nodiscard]] virtual Status LoadRows(size_t begin, size_t end, LoadScratch* scratch,
                                        ShardBatch* batch) const;
  // What is made of all rows together: images of training may be mixed, with a share of their
  // labels. Once, when every row is there.
  void Finish(ShardBatch* batch) const;
  // All three, on the calling thread.
  [[nodiscard]] StatusOr<std::shared_ptr<ShardBatch>> Load(const BatchId& id) const;
  // Of the rows of such a batch; 0 for one that the job has not.
  [[nodiscard]] uint64_t Bytes(const BatchId& id) const;

  // Batches of an evaluated set: ceil(samples / batch); 0 when the job has no such set.
  [[nodiscard]] uint64_t evaluation_batches(job::SampleSet set) const;
  const v1::ResultSpec& spec() const { return spec_; }

 private:
  // A column of the graph and where the data have it.
  struct Source {
    std::string name;
    size_t stored = 0;        // of facts().columns
    size_t row_bytes = 0;     // as the model reads it
    size_t stored_bytes = 0;  // as it is stored; of an image as geometry leaves it
    bool image = false;       // stored as uint8
  };
  static std::vector<Source> SourcesOf(const v1::ResultSpec& spec);
  // The pixels of a sample's image, as geometry leaves them.
  Status ReadPixels(const Source& source, const BatchId& id, uint64_t sample,
                    std::span<std::byte> pixels) const;
  // One sample's row of one column, in its place in the batch.
  Status LoadRow(const Source& source, size_t column, size_t row, LoadScratch* scratch,
                 ShardBatch* batch) const;

  const std::shared_ptr<const Dataset> dataset_;
  const v1::ResultSpec spec_;
  const std::vector<Source> sources_;
  const job::SampleUse samples_;
  const graph::Geometry training_, evaluation_;
  const std::shared_ptr<const graph::Augmenter> augmenter_;  // nullptr: pixels
  const std::optional<graph::Mixer> mixer_;                  // of training
};

}  // namespace ringmaster::worker
