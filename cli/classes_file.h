// The classes of the workers that are attached, in a file that `ringworker plan --profile` reads
// and that goes with this object. Thread-compatible.
#pragma once

#include <string>

#include "common/status.h"
#include "ringmaster/v1/jobs.pb.h"

namespace ringmaster::cli {

class ClassesFile {
 public:
  ClassesFile() = default;
  ClassesFile(const ClassesFile&) = delete;
  ClassesFile& operator=(const ClassesFile&) = delete;
  ~ClassesFile();
  // Its path. FAILED_PRECONDITION, UNAVAILABLE: it cannot be written.
  [[nodiscard]] StatusOr<std::string> Write(const v1::ListWorkersResponse& workers);

 private:
  std::string path_;
};

}  // namespace ringmaster::cli
