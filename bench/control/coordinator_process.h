// A `ringmaster` of its own in a folder of its own, and what it costs. Main thread.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "common/status.h"
#include "ringmaster/v1/jobs.grpc.pb.h"

namespace ringmaster::bench {

// At one moment.
struct CoordinatorFigures {
  double seconds = 0;      // of a steady clock
  double cpu_seconds = 0;  // of the process, since it began
  uint64_t resident = 0, peak = 0;
  std::vector<uint64_t> loop_waits;  // v1::CoordinatorFigures.loop_waits
};

// Between two moments.
struct CoordinatorCost {
  double cores = 0;
  uint64_t events = 0;
  double events_per_second = 0;
  double wait_p50_ms = 0, wait_p99_ms = 0, wait_most_ms = 0;  // no less than, within 19%
};
[[nodiscard]] CoordinatorCost CostBetween(const CoordinatorFigures& from,
                                          const CoordinatorFigures& to);

class CoordinatorProcess {
 public:
  // `program` is a path; the folder is kept between starts, and removed at the end.
  explicit CoordinatorProcess(std::string program);
  ~CoordinatorProcess();
  CoordinatorProcess(const CoordinatorProcess&) = delete;
  CoordinatorProcess& operator=(const CoordinatorProcess&) = delete;

  // Returns when it listens; at the port that it had before, if it had one.
  [[nodiscard]] Status Start();
  // SIGKILL.
  void Kill();

  [[nodiscard]] StatusOr<CoordinatorFigures> Read();
  [[nodiscard]] const std::string& address() const { return address_; }
  [[nodiscard]] v1::Jobs::Stub& jobs() { return *jobs_; }
  // A connection of its own.
  [[nodiscard]] std::unique_ptr<v1::Jobs::Stub> NewJobs() const;

 private:
  const std::string program_;
  std::string folder_;
  std::string address_;
  pid_t pid_ = 0;
  std::unique_ptr<v1::Jobs::Stub> jobs_;
};

}  // namespace ringmaster::bench
