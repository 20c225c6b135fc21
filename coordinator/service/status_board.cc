#include "coordinator/service/status_board.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

namespace ringmaster::coordinator {
namespace {

constexpr size_t kMaxListeners = 1'000;  // of one job

}  // namespace

void DropLongParts(v1::JobStatus* status) {
  if (status->spec().model().layers_size() > 0) {
    status->mutable_spec()->mutable_model()->clear_layers();
  }
  if (status->spec().script().files_size() > 0) {
    status->mutable_spec()->mutable_script()->clear_files();
  }
}

void StatusBoard::Tell(const std::vector<std::weak_ptr<Listener>>& listeners) {
  for (const auto& weak : listeners) {
    if (const auto listener = weak.lock()) listener->OnChange();
  }
}

void StatusBoard::Publish(JobView view) {
  const std::string id = view.status.job_id();
  const auto shared = std::make_shared<JobView>(std::move(view));
  std::vector<std::weak_ptr<Listener>> listeners;
  {
    MutexLock lock(mu_);
    Entry& entry = jobs_[id];
    shared->status.set_log_lines_lost(entry.log_lines_lost);
    entry.view = shared;
    std::erase_if(entry.listeners, [](const auto& weak) { return weak.expired(); });
    listeners = entry.listeners;
  }
  Tell(listeners);
}

void StatusBoard::Forget(const std::string& job_id) {
  std::vector<std::weak_ptr<Listener>> listeners;
  {
    MutexLock lock(mu_);
    if (auto entry = jobs_.extract(job_id)) listeners = std::move(entry.mapped().listeners);
  }
  Tell(listeners);
}

void StatusBoard::NoteLogLines(const std::string& job_id, uint64_t lost) {
  std::vector<std::weak_ptr<Listener>> listeners;
  {
    MutexLock lock(mu_);
    const auto found = jobs_.find(job_id);
    if (found == jobs_.end()) return;
    Entry& entry = found->second;
    if (entry.view && entry.log_lines_lost != lost) {
      const auto shared = std::make_shared<JobView>(*entry.view);
      shared->status.set_log_lines_lost(lost);
      entry.view = shared;
    }
    entry.log_lines_lost = lost;
    listeners = entry.listeners;
  }
  Tell(listeners);
}

void StatusBoard::PublishWorkers(v1::ListWorkersResponse workers) {
  MutexLock lock(mu_);
  workers_ = std::move(workers);
}

void StatusBoard::Close() {
  std::vector<std::weak_ptr<Listener>> listeners;
  {
    MutexLock lock(mu_);
    closed_ = true;
    for (const auto& [id, entry] : jobs_) {
      listeners.insert(listeners.end(), entry.listeners.begin(), entry.listeners.end());
    }
  }
  Tell(listeners);
}

StatusBoard::View StatusBoard::Find(const std::string& job_id) const {
  MutexLock lock(mu_);
  const auto entry = jobs_.find(job_id);
  return entry == jobs_.end() ? nullptr : entry->second.view;
}

v1::ListResponse StatusBoard::List(size_t max_bytes) const {
  std::vector<View> views;
  {
    MutexLock lock(mu_);
    views.reserve(jobs_.size());
    for (const auto& [id, entry] : jobs_) views.push_back(entry.view);
  }
  // Ids grow with their length first: j10000 is newer than j9999.
  std::sort(views.begin(), views.end(), [](const View& a, const View& b) {
    const std::string& left = a->status.job_id();
    const std::string& right = b->status.job_id();
    return std::pair(left.size(), left) > std::pair(right.size(), right);
  });
  // Where not all have room the newest and those that have not ended come first.
  std::vector<size_t> order(views.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_partition(order.begin(), order.end(), [&](size_t i) {
    return i == 0 || views[i]->status.finished_unix_ms() == 0;
  });
  std::map<size_t, v1::JobStatus> listed;
  size_t bytes = 0;
  for (const size_t i : order) {
    v1::JobStatus status = views[i]->status;
    DropLongParts(&status);
    bytes += status.ByteSizeLong() + 8;
    if (bytes > max_bytes) break;
    listed[i] = std::move(status);
  }
  v1::ListResponse response;
  for (auto& [i, status] : listed) *response.add_jobs() = std::move(status);
  return response;
}

bool StatusBoard::HasAnyOf(const std::set<std::string>& workers) const {
  MutexLock lock(mu_);
  return std::any_of(
      workers_.workers().begin(), workers_.workers().end(),
      [&](const v1::WorkerStatus& worker) { return workers.contains(worker.name()); });
}

v1::ListWorkersResponse StatusBoard::Workers(size_t max_bytes) const {
  v1::ListWorkersResponse response;
  {
    MutexLock lock(mu_);
    response = workers_;
  }
  size_t bytes = response.ByteSizeLong();
  for (int i = response.workers_size(); i-- > 0 && bytes > max_bytes;) {
    v1::WorkerStatus& worker = *response.mutable_workers(i);
    const size_t before = worker.ByteSizeLong();
    worker.clear_devices();
    bytes -= before - worker.ByteSizeLong();
  }
  return response;
}

void StatusBoard::NoteStoreTrouble(const std::string& trouble) {
  bool news = false;
  {
    MutexLock lock(mu_);
    news = store_trouble_.empty() != trouble.empty();
    store_trouble_ = trouble;
  }
  if (news && on_store_) on_store_(!trouble.empty());
}

void StatusBoard::WatchStore(std::function<void(bool trouble)> told) {
  on_store_ = std::move(told);
  on_store_(!StoreTrouble().empty());
}

std::string StatusBoard::StoreTrouble() const {
  MutexLock lock(mu_);
  return store_trouble_;
}

bool StatusBoard::closed() const {
  MutexLock lock(mu_);
  return closed_;
}

bool StatusBoard::Listen(const std::string& job_id, std::weak_ptr<Listener> listener) {
  MutexLock lock(mu_);
  const auto found = jobs_.find(job_id);
  if (found == jobs_.end()) return true;
  Entry& entry = found->second;
  std::erase_if(entry.listeners, [](const auto& weak) { return weak.expired(); });
  if (entry.listeners.size() >= kMaxListeners) return false;
  entry.listeners.push_back(std::move(listener));
  return true;
}

}  // namespace ringmaster::coordinator
