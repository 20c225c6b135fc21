// What a job makes of stored images: presets and defaults of its two augmentation lists, what
// evaluation does where the job does not say it, and the shape that results. Pure; thread-safe
// (free functions).
#pragma once

#include "common/graph/augment/geometry.h"
#include "common/status.h"
#include "ringmaster/v1/job.pb.h"

namespace ringmaster::job {

// Replaces presets by their entries and sets what is left out; and where evaluate.augment is not
// there, makes it of augment: without what is random, random crops of a size being those of the
// middle. For a spec of which every key is right by itself; it checks nothing.
void ResolveAugment(v1::JobSpec* spec);

// What several keys of an entry say together. `complete`: after ResolveAugment. INVALID_ARGUMENT
// names the list and the place.
[[nodiscard]] Status CheckAugment(const v1::JobSpec& written, const v1::JobSpec& complete);

// The sizes of the images of a column that is stored as uint8.
[[nodiscard]] graph::SizeRange SizesOf(const v1::DatasetFacts& data, const v1::StoredColumn& image);

// Makes an image column what the model gets: float32, and of the size and channels that come of
// both lists, data.resize and data.repeat_channels. `complete` as above. FAILED_PRECONDITION: the
// images are not such as the job expects.
[[nodiscard]] Status MakeImageColumn(const v1::JobSpec& complete, const v1::DatasetFacts& data,
                                     v1::StoredColumn* column);

// Whether what `augment` mixes can be learnt: an image column that the model reads, and losses of
// classes alone. INVALID_ARGUMENT names the entry.
[[nodiscard]] Status CheckMixing(const v1::JobSpec& complete, const v1::DatasetFacts& data,
                                 const v1::Graph& graph);

}  // namespace ringmaster::job
