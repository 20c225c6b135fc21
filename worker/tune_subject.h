// What `ringworker tune` times: the programs that a job's shards are computed with, found without a
// cluster. Values; thread-safe (a free function).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/status.h"
#include "ringmaster/v1/job.pb.h"
#include "worker/train/shard_shapes.h"

namespace ringmaster::worker {

struct TuneSubjectOptions {
  std::vector<uint32_t> samples;  // of a shard; empty: those of the job
  std::string data_root;          // empty: the dataset is not looked at
};

struct TuneSubject {
  std::string title;  // job, model, policy and images, in one line
  std::string note;   // which shards are left out, and what would tell them; empty: none
  std::vector<ProgramSet> programs;
};

// `spec` valid. Without a data_root images are those that the format usually has, and a number of
// samples is known where the spec takes so many (data.take, data.take_test): of a set whose number
// is not known only the shards of full batches are programs here.
[[nodiscard]] StatusOr<TuneSubject> TuneSubjectOf(const v1::JobSpec& spec,
                                                  const TuneSubjectOptions& options);

}  // namespace ringmaster::worker
