// What outlives the coordinator: its term, jobs with the history of their metrics, checkpoints and
// drains. A call that returned OK is on disk. Nothing per step is written. Thread-compatible: on
// the store's thread (service/control_loop.h) once that has started; owned by the daemon. Errors
// are UNAVAILABLE: the caller does not acknowledge, and may try again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "common/status.h"
#include "coordinator/logic/action.h"
#include "coordinator/logic/history.h"
#include "coordinator/logic/record.h"

namespace ringmaster::coordinator {

// TryWrite, below.
struct WriteNothing {};
// One of the writes below.
using StoreWrite = std::variant<InsertJob, InsertCheckpoint, RaiseTerm, SaveJob, SaveMetrics,
                                SaveDrain, RemoveCheckpoint, RemoveJobs, WriteNothing>;

class Store {
 public:
  virtual ~Store() = default;

  // Of this reign: one more than that of every reign before.
  [[nodiscard]] virtual uint64_t term() const = 0;
  // By number.
  [[nodiscard]] virtual StatusOr<std::vector<JobRecord>> LoadJobs() = 0;
  // Those that were removed, by number.
  [[nodiscard]] virtual StatusOr<std::vector<RemovedJob>> LoadRemoved() = 0;
  // By job and step.
  [[nodiscard]] virtual StatusOr<std::vector<CheckpointRecord>> LoadCheckpoints() = 0;
  // By worker.
  [[nodiscard]] virtual StatusOr<std::vector<DrainRecord>> LoadDrains() = 0;

  // The term only ever grows: one that is not higher than term() is FAILED_PRECONDITION, and
  // nothing is written.
  [[nodiscard]] virtual Status RaiseTerm(uint64_t term) = 0;
  // Writes to the disk what changes nothing: whether the store can be written.
  [[nodiscard]] virtual Status TryWrite() = 0;
  // A new job; its number and id, and its idempotency key, are new, or those of one whose insertion
  // failed, which it replaces.
  [[nodiscard]] virtual Status InsertJob(const JobRecord& job) = 0;
  [[nodiscard]] virtual Status SaveJob(const JobRecord& job) = 0;
  // One of the same job and step is replaced.
  [[nodiscard]] virtual Status InsertCheckpoint(const CheckpointRecord& checkpoint) = 0;
  [[nodiscard]] virtual Status RemoveCheckpoint(const CheckpointRecord& checkpoint) = 0;
  // All of them or none: as RemoveJobs says. Once more is no error.
  [[nodiscard]] virtual Status RemoveJobs(const std::vector<RemovedJob>& jobs) = 0;
  // All of the batch or nothing: as MetricBatch says.
  [[nodiscard]] virtual Status SaveMetrics(const std::string& job_id, const MetricBatch& batch) = 0;
  // A page by step: from the first point after `after`, or of all, on. It ends after `max_bytes` of
  // points, but has one when there is one.
  struct MetricPage {
    std::vector<v1::MetricPoint> points;
    bool more = false;
  };
  [[nodiscard]] virtual StatusOr<MetricPage> LoadMetrics(const std::string& job_id,
                                                         v1::MetricSeries series,
                                                         std::optional<uint64_t> after,
                                                         size_t max_bytes) = 0;
  // In place of what was stored of that worker.
  [[nodiscard]] virtual Status SaveDrain(const DrainRecord& drain) = 0;

  [[nodiscard]] Status Write(const StoreWrite& write);
  // In their order, together where the store can: how each ended.
  [[nodiscard]] virtual std::vector<Status> WriteAll(const std::vector<const StoreWrite*>& writes);
};

}  // namespace ringmaster::coordinator
