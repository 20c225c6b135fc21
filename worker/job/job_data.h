// The dataset of the job that this worker holds: from beneath --data-root, or, where that has none,
// fetched into the cache and used from there. And what of it other workers may read. Begin from the
// loop thread; Open and Drop from the job thread, which waits in Open for as long as a fetch lasts;
// Admit and progress from any thread. Thread-safe as far as that. It outlives the service that asks
// it.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>

#include "common/data/dataset.h"
#include "common/data_files/data_files_service.h"
#include "common/ids.h"
#include "common/mutex.h"
#include "common/net/address.h"
#include "common/rpc/channel.h"
#include "common/status.h"
#include "ringmaster/v1/data.pb.h"
#include "worker/fetch/data_cache.h"
#include "worker/fetch/dataset_fetch.h"
#include "worker/fetch/url_source.h"
#include "worker/logic/action.h"

namespace ringmaster::worker {

struct JobDataOptions {
  WorkerId name;
  data::DatasetFolders folders;
  Address coordinator;  // without a host: it is not asked
  Dialer dialer;
  // Of the newest session. Any thread.
  std::function<std::string()> ticket = []() { return std::string(); };
  DataCache::Options cache;
  DatasetFetch::Options fetch;
  UrlOptions urls;
};

class JobData {
 public:
  explicit JobData(JobDataOptions options);

  // A job begins here: who shows its ticket may soon read its data.
  void Begin(const InspectDataset& task);
  // The dataset, from where it is. Where no folder of that name is beneath --data-root, or the path
  // is an address, it is fetched first; `stop` ends that with CANCELLED, and keeps what came.
  // NOT_FOUND: nobody has it, and who was asked; errors as Dataset::Open and DatasetFetch::Run.
  [[nodiscard]] StatusOr<std::shared_ptr<const data::Dataset>> Open(const InspectDataset& task,
                                                                    const std::stop_token& stop);
  // The job is over, and nobody reads the dataset any more. One that was fetched for it and
  // `differs` from the other members' is thrown away.
  void Drop(const JobId& job, bool differs);

  // What this asker may read: the dataset of the job that is held, when it shows its ticket.
  // UNAVAILABLE: it is not known yet; NOT_FOUND: this worker lacks it, too.
  [[nodiscard]] StatusOr<data_files::Place> Admit(const v1::DataAsker& asker) const;
  // Of the fetch that is under way.
  [[nodiscard]] std::optional<v1::DataFetch> progress() const { return fetch_.progress(); }

 private:
  enum class Has : uint8_t { kNotKnown, kHas, kLacks };
  struct Held {
    JobId job;
    std::string path, ticket;
    Has has = Has::kNotKnown;
    data_files::Place place;
  };
  void Tell(const JobId& job, Has has, data_files::Place place = {});
  // Whether a folder of that name is beneath --data-root.
  [[nodiscard]] bool IsHere(const std::string& path) const;
  [[nodiscard]] StatusOr<DatasetFetch::Sources> SourcesOf(const InspectDataset& task) const;
  [[nodiscard]] StatusOr<std::shared_ptr<const data::Dataset>> OpenFetched(
      const InspectDataset& task, const std::stop_token& stop);

  const JobDataOptions options_;
  DataCache cache_;
  DatasetFetch fetch_;
  std::shared_ptr<const CachedData> fetched_;  // job thread only

  mutable Mutex mu_;
  Held held_ ABSL_GUARDED_BY(mu_);  // without a job: none
};

}  // namespace ringmaster::worker
