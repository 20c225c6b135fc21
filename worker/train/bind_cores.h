// A job's weights, the input stage and the cores with their programs bound, and what all of them
// take of a device's memory. Step thread.
#pragma once

#include <vector>

#include "worker/backend/backend.h"
#include "worker/train/training_job.h"

namespace ringmaster::worker {

// Who makes the images: the cores where they can, else the loader.
enum class Augments : uint8_t { kCores, kLoader };

// Of the state that updates the job's weights where they are, if the backend makes one.
[[nodiscard]] DeviceStateOptions StateOptionsOf(const TrainingJob& job);

// Fills in weights, stage, cores and what is planned of them; the programs and the layout are
// there. RESOURCE_EXHAUSTED with the plan as text when they do not fit a core's memory: never for
// the stage, without which the job runs as well.
[[nodiscard]] Status BindCores(Backend* backend, const std::vector<CoreOptions>& cores,
                               Augments augments, TrainingJob* job);

}  // namespace ringmaster::worker
