// Which samples of a dataset are used for what: training, validation, test; and which of its
// columns the model may read. By arithmetic, like everything about samples; a function of the
// dataset and the spec, never of the seed. Pure; thread-safe (free functions, immutable values).
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "common/job/shards.h"
#include "common/status.h"
#include "ringmaster/v1/job.pb.h"

namespace ringmaster::job {

// In the order in which a step boundary and the step after it reach them.
enum class SampleSet : uint8_t { kValidation, kTest, kTrain };

class SampleUse {
 public:
  explicit SampleUse(const v1::DataUse& use);

  [[nodiscard]] uint64_t count(SampleSet set) const;
  // The place of sample `index` of a set in the stored order of its split: validation samples are
  // training samples that are set aside. index < count(set).
  [[nodiscard]] uint64_t At(SampleSet set, uint64_t index) const;

 private:
  v1::DataUse use_;
  std::optional<Permutation> mixed_;  // of the training split, when some of it is set aside
};

// The set that a job of kind predict is about, and one of those that a job of kind evaluate has.
[[nodiscard]] SampleSet HeldOutSet(const v1::DataUse& use);

// The part of n mixed training samples that is set aside.
struct Fraction {
  double split = 0;              // the last floor(split n) samples; 0: `fold` of `folds`
  uint32_t fold = 0, folds = 0;  // 1 <= fold <= folds
};
// Of a valid spec but for `fold`, which it reads: INVALID_ARGUMENT says what is allowed.
[[nodiscard]] StatusOr<Fraction> ParseValidation(const v1::Validation& validation);

// `spec` valid. FAILED_PRECONDITION: the dataset has too few samples.
[[nodiscard]] StatusOr<v1::DataUse> ResolveDataUse(const v1::JobSpec& spec,
                                                   const v1::DatasetFacts& data);

// The columns as the model reads them: those of the data, but for images, which are float32 and of
// the size that `resize` and `repeat_channels` say. FAILED_PRECONDITION: two columns are images, or
// none is and the job says what to do with images, or they are not such as it expects.
[[nodiscard]] StatusOr<std::vector<v1::StoredColumn>> ResolveColumns(const v1::JobSpec& spec,
                                                                     const v1::DatasetFacts& data);

}  // namespace ringmaster::job
