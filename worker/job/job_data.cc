#include "worker/job/job_data.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "common/data/beneath.h"
#include "common/data/data_url.h"
#include "common/text.h"
#include "common/ticket.h"
#include "worker/fetch/peer_source.h"

namespace ringmaster::worker {
namespace {

constexpr int kMostPeers = 64;

}  // namespace

JobData::JobData(JobDataOptions options)
    : options_(std::move(options)), cache_(options_.cache), fetch_(&cache_, options_.fetch) {}

void JobData::Begin(const InspectDataset& task) {
  MutexLock lock(mu_);
  held_ = {task.job, task.data.path(), task.data_ticket, Has::kNotKnown, {}};
}

void JobData::Tell(const JobId& job, Has has, data_files::Place place) {
  MutexLock lock(mu_);
  if (held_.job != job) return;  // the next one has begun
  held_.has = has;
  held_.place = std::move(place);
}

StatusOr<data_files::Place> JobData::Admit(const v1::DataAsker& asker) const {
  MutexLock lock(mu_);
  if (held_.job.value() != asker.job_id() || held_.job.empty()) {
    return Error(absl::StatusCode::kUnavailable, "this worker does not serve job {} now",
                 OneLine(asker.job_id(), kMaxNameText));
  }
  if (!SameTicket(held_.ticket, asker.ticket()) || held_.path != asker.path()) {
    return Error(absl::StatusCode::kPermissionDenied,
                 "the data of a job are given to its members alone: the ticket that came with the "
                 "request is not the one of job {} and its data",
                 held_.job.value());
  }
  if (held_.has == Has::kHas) return held_.place;
  if (held_.has == Has::kLacks) {
    return Error(absl::StatusCode::kNotFound, "it has no such dataset either");
  }
  return Error(absl::StatusCode::kUnavailable, "it still looks at its own");
}

bool JobData::IsHere(const std::string& path) const {
  const auto root = data::OpenFolder(options_.folders.data_root);
  if (!root.ok()) return true;  // Dataset::Open says what is wrong
  return data::OpenBeneath(*root, path, data::Wanted::kFolder).status().code() !=
         absl::StatusCode::kNotFound;
}

StatusOr<std::shared_ptr<const data::Dataset>> JobData::Open(const InspectDataset& task,
                                                             const std::stop_token& stop) {
  const bool url = data::IsDataUrl(task.data.path());
  if (url || !IsHere(task.data.path())) {
    Tell(task.job, Has::kLacks);
    return OpenFetched(task, stop);
  }
  // Who lacks it may list and read it while it is being inspected here.
  Tell(task.job, Has::kHas, {options_.folders.data_root, task.data.path()});
  return data::Dataset::Open(options_.folders, task.data, stop);
}

StatusOr<DatasetFetch::Sources> JobData::SourcesOf(const InspectDataset& task) const {
  DatasetFetch::Sources sources;
  PeerOptions peer;
  peer.dialer = options_.dialer;
  peer.asker.set_worker(options_.name.value());
  peer.asker.set_job_id(task.job.value());
  peer.asker.set_path(task.data.path());
  for (const v1::DataPeer& one : task.peers) {
    const StatusOr<Address> address = ParsePeerAddress(one.ring_address(), "ring_address");
    if (!address.ok() || sources.size() >= kMostPeers) continue;
    PeerOptions options = peer;
    options.called = "worker " + OneLine(one.name(), kMaxNameText);
    options.address = *address;
    options.expected = {pki::Kind::kWorker, one.name()};
    options.ticket = [ticket = task.data_ticket]() { return ticket; };
    sources.push_back(std::make_shared<PeerSource>(std::move(options)));
  }
  // So that not all who lack it ask the same one first.
  if (!sources.empty()) {
    const size_t first = std::hash<std::string>()(options_.name.value()) % sources.size();
    std::ranges::rotate(sources, sources.begin() + static_cast<ptrdiff_t>(first));
  }
  if (data::IsDataUrl(task.data.path())) {
    RING_ASSIGN_OR_RETURN(std::shared_ptr<PieceSource> url,
                          MakeUrlSource(task.data.path(), options_.urls));
    sources.push_back(std::move(url));
  } else if (!options_.coordinator.host.empty()) {
    peer.called = "the coordinator";
    peer.address = options_.coordinator;
    peer.ticket = options_.ticket;
    peer.ticket_changes = true;
    sources.push_back(std::make_shared<PeerSource>(std::move(peer)));
  }
  return sources;
}

StatusOr<std::shared_ptr<const data::Dataset>> JobData::OpenFetched(const InspectDataset& task,
                                                                    const std::stop_token& stop) {
  const std::string& path = task.data.path();
  const std::string what = data::IsDataUrl(path)
                               ? fmt::format("dataset {}", path)
                               : fmt::format("dataset {} does not exist under {} of this host",
                                             path, options_.folders.data_root);
  StatusOr<DatasetFetch::Sources> sources = SourcesOf(task);
  if (!sources.ok()) return Annotate(sources.status(), what);
  StatusOr<std::shared_ptr<const CachedData>> data = fetch_.Run(path, *sources, stop);
  if (data.status().code() == absl::StatusCode::kNotFound && !data::IsDataUrl(path)) {
    return Error(absl::StatusCode::kNotFound,
                 "{}, and {}; copy it there, start ringmaster with a --data-root that has it, or "
                 "name an https:// or s3:// address as data.path",
                 what, Message(data.status()));
  }
  if (!data.ok()) return Annotate(data.status(), what + ", and could not be fetched");
  v1::DataSource source = task.data;
  source.set_path(CachedData::kFiles);
  StatusOr<std::shared_ptr<const data::Dataset>> dataset =
      data::Dataset::Open({(*data)->folder(), options_.folders.state_dir}, source, stop);
  if (!dataset.ok()) {
    // Anything else is the job's mistake, or the source's, and would be so again.
    const bool damaged = dataset.status().code() == absl::StatusCode::kDataLoss;
    if (damaged) cache_.Discard(*std::move(data));
    return Annotate(dataset.status(), fmt::format("dataset {}, as it was fetched", path));
  }
  fetched_ = *std::move(data);
  Tell(task.job, Has::kHas, {fetched_->folder(), CachedData::kFiles, fetched_});
  return dataset;
}

void JobData::Drop(const JobId& job, bool differs) {
  {
    MutexLock lock(mu_);
    if (held_.job == job) held_ = Held();
  }
  if (fetched_ && differs) return cache_.Discard(std::move(fetched_));
  fetched_.reset();
}

}  // namespace ringmaster::worker
