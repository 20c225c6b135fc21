// What a coordinator says of its workers and of what jobs took on them, in files that `ringworker
// plan` reads and that go with this object. Thread-compatible.
#pragma once

#include <string>
#include <vector>

#include "common/status.h"
#include "ringmaster/v1/jobs.pb.h"

namespace ringmaster::cli {

class ClusterFiles {
 public:
  ClusterFiles() = default;
  ClusterFiles(const ClusterFiles&) = delete;
  ClusterFiles& operator=(const ClusterFiles&) = delete;
  ~ClusterFiles();
  // For --profile: the classes of the workers that are attached. Its path. FAILED_PRECONDITION,
  // UNAVAILABLE: it cannot be written.
  [[nodiscard]] StatusOr<std::string> WriteClasses(const v1::ListWorkersResponse& workers);
  // For --speeds: those that may get jobs, and what the newest jobs took for shards on them.
  [[nodiscard]] StatusOr<std::string> WriteSpeeds(const v1::ListWorkersResponse& workers,
                                                  const v1::ListResponse& jobs);

 private:
  StatusOr<std::string> Write(const std::string& text);

  std::vector<std::string> paths_;
};

// As WriteSpeeds writes it.
[[nodiscard]] std::string SpeedsOf(const v1::ListWorkersResponse& workers,
                                   const v1::ListResponse& jobs);

}  // namespace ringmaster::cli
