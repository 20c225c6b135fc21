#include "coordinator/store/store.h"

namespace ringmaster::coordinator {
namespace {

struct Writer {
  Status operator()(const InsertJob& write) const { return store.InsertJob(write.record); }
  Status operator()(const InsertCheckpoint& write) const {
    return store.InsertCheckpoint(write.record);
  }
  Status operator()(const RaiseTerm& write) const { return store.RaiseTerm(write.term); }
  Status operator()(const SaveJob& write) const { return store.SaveJob(write.record); }
  Status operator()(const SaveMetrics& write) const {
    return store.SaveMetrics(write.job_id, write.batch);
  }
  Status operator()(const SaveDrain& write) const { return store.SaveDrain(write.record); }
  Status operator()(const RemoveCheckpoint& write) const {
    return store.RemoveCheckpoint(write.record);
  }
  Status operator()(const RemoveJobs& write) const { return store.RemoveJobs(write.jobs); }
  Status operator()(const WriteNothing&) const { return store.TryWrite(); }
  Store& store;
};

}  // namespace

Status Store::Write(const StoreWrite& write) { return std::visit(Writer{*this}, write); }

std::vector<Status> Store::WriteAll(const std::vector<const StoreWrite*>& writes) {
  std::vector<Status> statuses;
  statuses.reserve(writes.size());
  for (const StoreWrite* const write : writes) statuses.push_back(Write(*write));
  return statuses;
}

}  // namespace ringmaster::coordinator
