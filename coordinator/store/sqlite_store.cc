#include "coordinator/store/sqlite_store.h"

#include <algorithm>

#include "coordinator/logic/record.h"
#include "ringmaster/v1/jobs.pb.h"

namespace ringmaster::coordinator {
namespace {

constexpr int64_t kSchemaVersion = 7;

Status Damaged(const std::string& path, const std::string& what) {
  return Error(absl::StatusCode::kDataLoss,
               "{}: {}; restore it from a copy, or start with another --data-dir", path, what);
}

// There is no way from one schema to another: jobs of an older one stay readable by its release.
Status OtherSchema(const std::string& path, int64_t version) {
  return FailedPrecondition(
      "{}: it has schema version {}, this release knows only {}; start with another --data-dir, or "
      "use the release that wrote it ({} one). Checkpoints in the old folder stay readable as "
      "files",
      path, version, kSchemaVersion, version < kSchemaVersion ? "an older" : "a newer");
}

Bytes ResolvedBytes(const JobRecord& job) {
  return {job.resolved ? job.resolved->SerializeAsString() : ""};
}

Bytes EventBytes(const JobRecord& job) {
  v1::ListEventsResponse events;
  events.mutable_events()->Add(job.events.all().begin(), job.events.all().end());
  return {events.SerializeAsString()};
}

StatusOr<JobRecord> ParseJob(const std::string& path, const SqlRow& row) {
  JobRecord job;
  job.number = static_cast<uint64_t>(row.Integer(0));
  job.idempotency_key = row.Text(1);
  job.spec_sha256 = row.Text(2);
  job.cancel_requested = row.Integer(3) != 0;
  v1::ListEventsResponse events;
  const std::string resolved = row.Text(5);
  if (!resolved.empty()) job.resolved.emplace();
  if (!job.status.ParseFromString(row.Text(4)) || !events.ParseFromString(row.Text(6)) ||
      (job.resolved && !job.resolved->ParseFromString(resolved))) {
    return Damaged(path, fmt::format("the row of job number {} cannot be read", job.number));
  }
  job.events = JobEvents({events.events().begin(), events.events().end()});
  return job;
}

Status ParsePoint(const std::string& path, const std::string& bytes, const std::string& job_id,
                  v1::MetricPoint* point) {
  if (point->ParseFromString(bytes)) return absl::OkStatus();
  return Damaged(path, fmt::format("a row of the metrics of {} cannot be read", job_id));
}

}  // namespace

StatusOr<std::unique_ptr<SqliteStore>> SqliteStore::Open(const std::string& path) {
  RING_ASSIGN_OR_RETURN(std::unique_ptr<SqliteDatabase> database, SqliteDatabase::Open(path));
  std::unique_ptr<SqliteStore> store(new SqliteStore(path, std::move(database)));
  RING_RETURN_IF_ERROR(store->CheckContent());
  RING_RETURN_IF_ERROR(store->CreateTables());
  RING_RETURN_IF_ERROR(store->BeginReign());
  return store;
}

Status SqliteStore::CheckContent() {
  std::string verdict;
  RING_RETURN_IF_ERROR(database_->Run("PRAGMA quick_check(1)", {}, [&](const SqlRow& row) {
    verdict = row.Text(0);
    return absl::OkStatus();
  }));
  return verdict == "ok" ? absl::OkStatus() : Damaged(path_, verdict);
}

Status SqliteStore::CreateTables() {
  int64_t version = 0;
  RING_RETURN_IF_ERROR(database_->Run("PRAGMA user_version", {}, [&](const SqlRow& row) {
    version = row.Integer(0);
    return absl::OkStatus();
  }));
  if (version == kSchemaVersion) return absl::OkStatus();
  if (version != 0) return OtherSchema(path_, version);
  std::vector<std::string> statements = {
      "BEGIN IMMEDIATE",
      "CREATE TABLE reign (term INTEGER NOT NULL)",
      "INSERT INTO reign VALUES (0)",
      "CREATE TABLE jobs (number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE,"
      " idempotency_key TEXT NOT NULL UNIQUE, spec_sha256 TEXT NOT NULL,"
      " cancel_requested INTEGER NOT NULL, status BLOB NOT NULL,"
      " resolved BLOB NOT NULL, events BLOB NOT NULL, removed INTEGER NOT NULL DEFAULT 0)",
      "CREATE TABLE checkpoints (job_id TEXT NOT NULL REFERENCES jobs(id),"
      " step INTEGER NOT NULL, path TEXT NOT NULL, sha256 TEXT NOT NULL,"
      " metric REAL, best INTEGER NOT NULL,"
      " PRIMARY KEY (job_id, step)) WITHOUT ROWID",
      "CREATE TABLE drains (worker TEXT PRIMARY KEY, incarnation TEXT NOT NULL)"
      " WITHOUT ROWID",
      "CREATE TABLE metrics (job_id TEXT NOT NULL REFERENCES jobs(id)"
      " ON DELETE CASCADE, series INTEGER NOT NULL, step INTEGER NOT NULL,"
      " point BLOB NOT NULL, PRIMARY KEY (job_id, series, step)) WITHOUT ROWID",
  };
  for (std::string& sql : SqliteAccess::Schema()) statements.push_back(std::move(sql));
  statements.push_back(fmt::format("PRAGMA user_version={}", kSchemaVersion));
  statements.emplace_back("COMMIT");
  for (const std::string& sql : statements) RING_RETURN_IF_ERROR(database_->Run(sql));
  return absl::OkStatus();
}

Status SqliteStore::BeginReign() {
  int64_t term = 0;
  RING_RETURN_IF_ERROR(database_->Run("SELECT term FROM reign", {}, [&](const SqlRow& row) {
    term = row.Integer(0);
    return absl::OkStatus();
  }));
  if (term < 0 || static_cast<uint64_t>(term) >= kMaxTerm) {
    return Damaged(path_, fmt::format("its term is {}, expected 0 to {}", term, kMaxTerm - 1));
  }
  term_ = static_cast<uint64_t>(term);
  return RaiseTerm(term_ + 1);
}

Status SqliteStore::RaiseTerm(uint64_t term) {
  if (term <= term_ || term > kMaxTerm) {
    return FailedPrecondition("{}: its term is {}, which can be raised to {} at most; got {}",
                              path_, term_, kMaxTerm, term);
  }
  // A raise that failed may be stored all the same: that one is not taken back either.
  RING_RETURN_IF_ERROR(
      database_->Run("UPDATE reign SET term = max(term, ?)", {static_cast<int64_t>(term)}));
  term_ = term;
  return absl::OkStatus();
}

// An UPDATE that leaves a row as it was writes nothing; the database's header is always written.
Status SqliteStore::TryWrite() {
  return database_->Run(fmt::format("PRAGMA user_version={}", kSchemaVersion));
}

StatusOr<std::vector<JobRecord>> SqliteStore::LoadJobs() {
  std::vector<JobRecord> jobs;
  RING_RETURN_IF_ERROR(database_->Run(
      "SELECT number, idempotency_key, spec_sha256, cancel_requested, status, resolved, events"
      " FROM jobs WHERE removed = 0 ORDER BY number",
      {}, [&](const SqlRow& row) {
        RING_ASSIGN_OR_RETURN(JobRecord job, ParseJob(path_, row));
        jobs.push_back(std::move(job));
        return absl::OkStatus();
      }));
  return jobs;
}

StatusOr<std::vector<RemovedJob>> SqliteStore::LoadRemoved() {
  std::vector<RemovedJob> removed;
  RING_RETURN_IF_ERROR(
      database_->Run("SELECT number, id, idempotency_key, spec_sha256 FROM jobs"
                     " WHERE removed <> 0 ORDER BY number",
                     {}, [&](const SqlRow& row) {
                       removed.push_back({static_cast<uint64_t>(row.Integer(0)), row.Text(1),
                                          row.Text(2), row.Text(3)});
                       return absl::OkStatus();
                     }));
  return removed;
}

StatusOr<std::vector<CheckpointRecord>> SqliteStore::LoadCheckpoints() {
  std::vector<CheckpointRecord> checkpoints;
  RING_RETURN_IF_ERROR(database_->Run(
      "SELECT job_id, step, path, sha256, metric, best FROM checkpoints ORDER BY job_id, step", {},
      [&](const SqlRow& row) {
        CheckpointRecord& checkpoint = checkpoints.emplace_back();
        checkpoint.job_id = row.Text(0);
        checkpoint.ref.set_step(static_cast<uint64_t>(row.Integer(1)));
        checkpoint.ref.set_path(row.Text(2));
        checkpoint.ref.set_sha256(row.Text(3));
        if (!row.IsNull(4)) checkpoint.ref.set_metric(row.Real(4));
        checkpoint.best = row.Integer(5) != 0;
        return absl::OkStatus();
      }));
  return checkpoints;
}

StatusOr<std::vector<DrainRecord>> SqliteStore::LoadDrains() {
  std::vector<DrainRecord> drains;
  RING_RETURN_IF_ERROR(database_->Run("SELECT worker, incarnation FROM drains ORDER BY worker", {},
                                      [&](const SqlRow& row) {
                                        drains.push_back({row.Text(0), row.Text(1)});
                                        return absl::OkStatus();
                                      }));
  return drains;
}

Status SqliteStore::InsertJob(const JobRecord& job) {
  // Nobody was told of one with this key whose insertion failed, though it was stored.
  RING_RETURN_IF_ERROR(database_->Run("DELETE FROM jobs WHERE idempotency_key = ? AND number <> ?",
                                      {job.idempotency_key, static_cast<int64_t>(job.number)}));
  return database_->Run(
      "INSERT INTO jobs (number, id, idempotency_key, spec_sha256, cancel_requested, status,"
      " resolved, events) VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
      // Nobody was told of a job whose insertion failed, and whose number is used again.
      " ON CONFLICT (number) DO UPDATE SET idempotency_key = excluded.idempotency_key,"
      " spec_sha256 = excluded.spec_sha256, cancel_requested = excluded.cancel_requested,"
      " status = excluded.status, resolved = excluded.resolved, events = excluded.events",
      {static_cast<int64_t>(job.number), job.id(), job.idempotency_key, job.spec_sha256,
       static_cast<int64_t>(job.cancel_requested), Bytes{job.status.SerializeAsString()},
       ResolvedBytes(job), EventBytes(job)});
}

Status SqliteStore::SaveJob(const JobRecord& job) {
  RING_RETURN_IF_ERROR(database_->Run(
      "UPDATE jobs SET cancel_requested = ?, status = ?, resolved = ?, events = ?"
      " WHERE number = ?",
      {static_cast<int64_t>(job.cancel_requested), Bytes{job.status.SerializeAsString()},
       ResolvedBytes(job), EventBytes(job), static_cast<int64_t>(job.number)}));
  if (database_->Changes() != 1) return Internal("{}: there is no job {}", path_, job.id());
  return absl::OkStatus();
}

Status SqliteStore::InsertCheckpoint(const CheckpointRecord& checkpoint) {
  const v1::CheckpointRef& ref = checkpoint.ref;
  return database_->Run(
      "INSERT INTO checkpoints (job_id, step, path, sha256, metric, best) VALUES (?, ?, ?, ?, ?, ?)"
      " ON CONFLICT (job_id, step) DO UPDATE SET path = excluded.path, sha256 = excluded.sha256,"
      " metric = excluded.metric, best = excluded.best",
      {checkpoint.job_id, static_cast<int64_t>(ref.step()), ref.path(), ref.sha256(),
       ref.has_metric() ? SqlValue(ref.metric()) : SqlValue(std::monostate()),
       static_cast<int64_t>(checkpoint.best)});
}

Status SqliteStore::RemoveCheckpoint(const CheckpointRecord& checkpoint) {
  return database_->Run("DELETE FROM checkpoints WHERE job_id = ? AND step = ?",
                        {checkpoint.job_id, static_cast<int64_t>(checkpoint.ref.step())});
}

Status SqliteStore::RemoveJobs(const std::vector<RemovedJob>& jobs) {
  return database_->Transact([&]() -> Status {
    for (const RemovedJob& job : jobs) {
      RING_RETURN_IF_ERROR(
          database_->Run("UPDATE jobs SET removed = 1, status = x'', resolved = x'', events = x''"
                         " WHERE number = ?",
                         {static_cast<int64_t>(job.number)}));
      if (database_->Changes() != 1) return Internal("{}: there is no job {}", path_, job.job_id);
      RING_RETURN_IF_ERROR(
          database_->Run("DELETE FROM checkpoints WHERE job_id = ?", {job.job_id}));
      RING_RETURN_IF_ERROR(database_->Run("DELETE FROM metrics WHERE job_id = ?", {job.job_id}));
    }
    return absl::OkStatus();
  });
}

Status SqliteStore::SaveMetrics(const std::string& job_id, const MetricBatch& batch) {
  return database_->Transact([&]() -> Status {
    if (batch.forget_after) {
      RING_RETURN_IF_ERROR(database_->Run("DELETE FROM metrics WHERE job_id = ? AND step > ?",
                                          {job_id, static_cast<int64_t>(*batch.forget_after)}));
    }
    RING_RETURN_IF_ERROR(AddPoints(job_id, v1::METRIC_SERIES_EPOCHS, batch.epochs));
    RING_RETURN_IF_ERROR(AddPoints(job_id, v1::METRIC_SERIES_STEPS, batch.steps));
    if (batch.steps.empty()) return absl::OkStatus();
    return database_->Run(
        "DELETE FROM metrics WHERE job_id = ?1 AND series = ?2 AND step NOT IN"
        " (SELECT min(step) FROM metrics WHERE job_id = ?1 AND series = ?2 GROUP BY step / ?3)",
        {job_id, int64_t{v1::METRIC_SERIES_STEPS}, static_cast<int64_t>(batch.stride)});
  });
}

Status SqliteStore::AddPoints(const std::string& job_id, v1::MetricSeries series,
                              const MetricPoints& points) {
  for (const auto& [step, later] : points) {
    const auto at = static_cast<int64_t>(step);
    v1::MetricPoint point;
    RING_RETURN_IF_ERROR(database_->Run(
        "SELECT point FROM metrics WHERE job_id = ? AND series = ? AND step = ?",
        {job_id, int64_t{series}, at},
        [&](const SqlRow& row) { return ParsePoint(path_, row.Text(0), job_id, &point); }));
    Merge(later, &point);
    RING_RETURN_IF_ERROR(database_->Run(
        "INSERT OR REPLACE INTO metrics (job_id, series, step, point) VALUES (?, ?, ?, ?)",
        {job_id, int64_t{series}, at, Bytes{point.SerializeAsString()}}));
  }
  return absl::OkStatus();
}

StatusOr<Store::MetricPage> SqliteStore::LoadMetrics(const std::string& job_id,
                                                     v1::MetricSeries series,
                                                     std::optional<uint64_t> after,
                                                     size_t max_bytes) {
  // No point is larger than what a report may hold, so that so many rows are a page at least.
  constexpr int64_t kMostRows = 4'096;
  MetricPage page;
  size_t bytes = 0;
  int64_t rows = 0;
  RING_RETURN_IF_ERROR(database_->Run(
      "SELECT point FROM metrics WHERE job_id = ? AND series = ? AND step > ? ORDER BY step"
      " LIMIT ?",
      {job_id, int64_t{series}, after ? static_cast<int64_t>(*after) : int64_t{-1}, kMostRows},
      [&](const SqlRow& row) -> Status {
        ++rows;
        page.more = page.more || bytes >= max_bytes;
        if (page.more) return absl::OkStatus();
        const std::string point = row.Text(0);
        bytes += point.size();
        return ParsePoint(path_, point, job_id, &page.points.emplace_back());
      }));
  page.more = page.more || rows == kMostRows;
  return page;
}

Status SqliteStore::SaveDrain(const DrainRecord& drain) {
  if (drain.incarnation.empty()) {
    return database_->Run("DELETE FROM drains WHERE worker = ?", {drain.worker});
  }
  return database_->Run("INSERT OR REPLACE INTO drains (worker, incarnation) VALUES (?, ?)",
                        {drain.worker, drain.incarnation});
}

std::vector<Status> SqliteStore::WriteAll(const std::vector<const StoreWrite*>& writes) {
  // What these leave behind in memory, or say of the disk, is not taken back with others.
  const bool apart = std::any_of(writes.begin(), writes.end(), [](const StoreWrite* write) {
    return std::holds_alternative<coordinator::RaiseTerm>(*write) ||
           std::holds_alternative<WriteNothing>(*write);
  });
  if (apart || writes.size() < 2) return Store::WriteAll(writes);
  const Status together = database_->Transact([&]() -> Status {
    for (const StoreWrite* const write : writes) RING_RETURN_IF_ERROR(Write(*write));
    return absl::OkStatus();
  });
  if (together.ok()) return {writes.size(), absl::OkStatus()};
  return Store::WriteAll(writes);
}

}  // namespace ringmaster::coordinator
