// Store in one SQLite file, and AccessStore beside it. Thread-compatible, as Store says; owned by
// the daemon. Never on a network filesystem: WAL does not work there.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "coordinator/store/sqlite_access.h"
#include "coordinator/store/sqlite_database.h"
#include "coordinator/store/store.h"

namespace ringmaster::coordinator {

class SqliteStore : public Store {
 public:
  // Opens or creates the file, checks it, and begins a new reign: the term is one higher, durably,
  // when this returns. FAILED_PRECONDITION: written by another release; DATA_LOSS: damaged.
  [[nodiscard]] static StatusOr<std::unique_ptr<SqliteStore>> Open(const std::string& path);

  // In the same file; lives as long as this one.
  [[nodiscard]] AccessStore& access() { return access_; }

  uint64_t term() const override { return term_; }
  StatusOr<std::vector<JobRecord>> LoadJobs() override;
  StatusOr<std::vector<RemovedJob>> LoadRemoved() override;
  StatusOr<std::vector<CheckpointRecord>> LoadCheckpoints() override;
  StatusOr<std::vector<DrainRecord>> LoadDrains() override;
  Status RaiseTerm(uint64_t term) override;
  Status TryWrite() override;
  Status InsertJob(const JobRecord& job) override;
  Status SaveJob(const JobRecord& job) override;
  Status InsertCheckpoint(const CheckpointRecord& checkpoint) override;
  Status RemoveCheckpoint(const CheckpointRecord& checkpoint) override;
  Status RemoveJobs(const std::vector<RemovedJob>& jobs) override;
  Status SaveMetrics(const std::string& job_id, const MetricBatch& batch) override;
  StatusOr<MetricPage> LoadMetrics(const std::string& job_id, v1::MetricSeries series,
                                   std::optional<uint64_t> after, size_t max_bytes) override;
  Status SaveDrain(const DrainRecord& drain) override;
  // One transaction, synced once; when it fails each of them is tried alone.
  std::vector<Status> WriteAll(const std::vector<const StoreWrite*>& writes) override;

 private:
  SqliteStore(std::string path, std::unique_ptr<SqliteDatabase> database)
      : path_(std::move(path)), database_(std::move(database)), access_(*database_, path_) {}
  Status CreateTables();
  Status AddPoints(const std::string& job_id, v1::MetricSeries series, const MetricPoints& points);
  Status CheckContent();
  Status BeginReign();

  const std::string path_;
  const std::unique_ptr<SqliteDatabase> database_;
  SqliteAccess access_;
  uint64_t term_ = 0;
};

}  // namespace ringmaster::coordinator
