// What everyone may read: the newest view of each job, and the workers. Written by the control
// loop, read by RPCs, so that reading never delays a decision. Thread-safe. Holds no history of
// views: a slow reader sees the newest one.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/mutex.h"
#include "coordinator/shell/seams.h"
#include "ringmaster/v1/jobs.pb.h"

namespace ringmaster::coordinator {

// What lists and watches leave out, and Get has: the layers of a model, and which files go with a
// script. (What stands in those files nobody is shown: Job::Publish.)
void DropLongParts(v1::JobStatus* status);

class StatusBoard : public Board {
 public:
  using View = std::shared_ptr<const JobView>;

  // Told that a job has a new view, or that the board closed. Must not block; called on the
  // writer's thread, with no lock of the board held.
  class Listener {
   public:
    virtual ~Listener() = default;
    virtual void OnChange() = 0;
  };

  void Publish(JobView view) override;
  // Its listeners are told, and find none.
  void Forget(const std::string& job_id) override;
  void PublishWorkers(v1::ListWorkersResponse workers) override;
  void NoteStoreTrouble(const std::string& trouble) override;
  // `told` hears whether there is such trouble: at once, and from the writer's thread when that
  // changes. Before that thread starts.
  void WatchStore(std::function<void(bool trouble)> told);
  // Log lines of the job came in; so many are lost. Its listeners are told, its view says so.
  void NoteLogLines(const std::string& job_id, uint64_t lost);
  // Ends every watch.
  void Close();

  // Null when there is no such job.
  [[nodiscard]] View Find(const std::string& job_id) const;
  // Newest first, as many as fit into `max_bytes`.
  [[nodiscard]] v1::ListResponse List(size_t max_bytes) const;
  // Every one by name, the devices of the first ones, as many as fit into `max_bytes`.
  [[nodiscard]] v1::ListWorkersResponse Workers(size_t max_bytes) const;
  [[nodiscard]] bool HasAnyOf(const std::set<std::string>& workers) const;
  [[nodiscard]] std::string StoreTrouble() const;
  [[nodiscard]] bool closed() const;

  // Listens until the listener is gone, to nothing where there is no such job. False when too many
  // listen already.
  [[nodiscard]] bool Listen(const std::string& job_id, std::weak_ptr<Listener> listener);

 private:
  struct Entry {
    View view;
    uint64_t log_lines_lost = 0;
    std::vector<std::weak_ptr<Listener>> listeners;
  };
  static void Tell(const std::vector<std::weak_ptr<Listener>>& listeners);

  std::function<void(bool)> on_store_;  // constant while the writer's thread runs

  mutable Mutex mu_;
  std::map<std::string, Entry> jobs_ ABSL_GUARDED_BY(mu_);
  v1::ListWorkersResponse workers_ ABSL_GUARDED_BY(mu_);
  std::string store_trouble_ ABSL_GUARDED_BY(mu_);
  bool closed_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace ringmaster::coordinator
