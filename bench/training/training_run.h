// One job trained on one worker without a cluster, and measured: the real trainer, reader and
// kernels, on sample data. Main thread.
#pragma once

#include <memory>
#include <string>

#include "bench/training/train_options.h"
#include "bench/training/train_report.h"
#include "common/data/dataset.h"
#include "tests/support/temporary_folder.h"
#include "worker/backend/backend.h"

namespace ringmaster::bench {

// Images in CIFAR-10's format, in the folder of the options or in one that goes with this object.
class SampleImages {
 public:
  // Enough of them for the largest batch of the cases.
  [[nodiscard]] static StatusOr<std::unique_ptr<SampleImages>> Open(const TrainOptions& options);

  [[nodiscard]] const std::shared_ptr<const data::Dataset>& dataset() const { return dataset_; }
  // Of whole batches: no step is smaller than the others.
  [[nodiscard]] uint64_t whole_batches(uint32_t batch) const;

 private:
  SampleImages() = default;
  const TemporaryFolder temporary_;
  std::shared_ptr<const data::Dataset> dataset_;
};

// Adds to the kernel table of the options the rows that the training programs of the case lack, and
// says on stderr which.
[[nodiscard]] Status TuneTraining(const TrainOptions& options, const TrainCase& one,
                                  const SampleImages& images, Backend* backend);

[[nodiscard]] StatusOr<TrainMeasurement> MeasureTraining(const TrainOptions& options,
                                                         const TrainCase& one,
                                                         const SampleImages& images,
                                                         Backend* backend);

}  // namespace ringmaster::bench
