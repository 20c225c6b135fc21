// A store that holds nothing and takes everything; tests derive from it what they need.
// Thread-safe.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "coordinator/store/store.h"

namespace ringmaster::testing {

class EmptyStore : public coordinator::Store {
 public:
  uint64_t term() const override { return 1; }
  StatusOr<std::vector<coordinator::JobRecord>> LoadJobs() override {
    return std::vector<coordinator::JobRecord>();
  }
  StatusOr<std::vector<coordinator::RemovedJob>> LoadRemoved() override {
    return std::vector<coordinator::RemovedJob>();
  }
  StatusOr<std::vector<coordinator::CheckpointRecord>> LoadCheckpoints() override {
    return std::vector<coordinator::CheckpointRecord>();
  }
  StatusOr<std::vector<coordinator::DrainRecord>> LoadDrains() override {
    return std::vector<coordinator::DrainRecord>();
  }
  Status RaiseTerm(uint64_t) override { return Ended(); }
  Status TryWrite() override { return Ended(); }
  Status InsertJob(const coordinator::JobRecord&) override { return Ended(); }
  Status SaveJob(const coordinator::JobRecord&) override { return Ended(); }
  Status InsertCheckpoint(const coordinator::CheckpointRecord&) override { return Ended(); }
  Status RemoveCheckpoint(const coordinator::CheckpointRecord&) override { return Ended(); }
  Status RemoveJobs(const std::vector<coordinator::RemovedJob>&) override { return Ended(); }
  Status SaveMetrics(const std::string&, const coordinator::MetricBatch&) override {
    return Ended();
  }
  StatusOr<MetricPage> LoadMetrics(const std::string&, v1::MetricSeries, std::optional<uint64_t>,
                                   size_t) override {
    return MetricPage();
  }
  Status SaveDrain(const coordinator::DrainRecord&) override { return Ended(); }

 protected:
  // How every write ends.
  virtual Status Ended() { return absl::OkStatus(); }
};

}  // namespace ringmaster::testing
