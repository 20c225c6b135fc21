// The programs of a job: one for each mode and number of samples that a shard can have. Immutable
// after Build, thread-safe; owned by the trainer, outlives every executable bound from it.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <set>

#include "common/graph/program.h"
#include "common/status.h"
#include "ringmaster/v1/job.pb.h"

namespace ringmaster::worker {

struct ShardShape {
  graph::Mode mode = graph::Mode::kTraining;
  uint64_t samples = 0;  // >= 1
  auto operator<=>(const ShardShape&) const = default;
};

// Whether the job takes steps that train; else it evaluates or predicts, and nothing else.
[[nodiscard]] bool Trains(const v1::ResultSpec& spec);
[[nodiscard]] bool Predicts(const v1::ResultSpec& spec);

// At most two for each batch size: floor and ceiling of n / V, for the full batch and the smaller
// last one, of training and of evaluation.
[[nodiscard]] std::set<ShardShape> ShardShapes(const v1::ResultSpec& spec);

class ProgramSet {
 public:
  // Errors are the graph's, in words for the user.
  [[nodiscard]] static StatusOr<ProgramSet> Build(const v1::ResultSpec& spec,
                                                  const v1::MemoryOptions& memory);

  [[nodiscard]] const std::map<ShardShape, graph::Program>& programs() const { return programs_; }
  // Of the shard with most samples; nullptr where there is none of that mode.
  [[nodiscard]] const graph::Program* largest(graph::Mode mode) const;
  // Any of them, of training where the job trains: parameters and their order are the same in all.
  [[nodiscard]] const graph::Program& any() const;

 private:
  std::map<ShardShape, graph::Program> programs_;
};

}  // namespace ringmaster::worker
