#include "tests/sim/sim_coordinator.h"

#include <fmt/format.h>

#include <utility>
#include <variant>

#include "common/planted_bug.h"
#include "tests/sim/cluster.h"
#include "tests/sim/describe.h"

namespace ringmaster::sim {
namespace {

using namespace coordinator;  // its events and actions

constexpr Time kTick = milliseconds(50);

Status Gone() { return Error(absl::StatusCode::kUnavailable, "the coordinator is gone"); }

}  // namespace

SimCoordinator::SimCoordinator(Cluster* cluster, uint64_t reign)
    : cluster_(cluster), life_(std::make_shared<Life>()), logic_(cluster->plan.options) {
  life_->name = fmt::format("coordinator#{}", reign);
}

SimCoordinator::~SimCoordinator() = default;

coordinator::Now SimCoordinator::ReadClocks() const {
  using std::chrono::duration_cast;
  const auto steady = duration_cast<milliseconds>(cluster_->world.now()) + seconds(1000);
  return {steady, 1'700'000'000'000 + steady.count() + cluster_->wall_offset_ms};
}

void SimCoordinator::Start() {
  cluster_->world.Log(fmt::format("start {} in term {}", life_->name, cluster_->store.term()));
  cluster_->oracle.OnReign();
  Restored restored;
  restored.term = cluster_->store.term();
  restored.jobs = *cluster_->store.LoadJobs();
  restored.checkpoints = *cluster_->store.LoadCheckpoints();
  restored.drains = *cluster_->store.LoadDrains();
  std::map<std::string, SimStore::Folder> known;
  for (const CheckpointRecord& checkpoint : restored.checkpoints) {
    if (const auto at = cluster_->store.folders.find(checkpoint.ref.path());
        at != cluster_->store.folders.end()) {
      known.insert(*at);
    }
  }
  cluster_->store.folders = std::move(known);  // what no row knows is swept away
  cluster_->network.Bind(kCoordinatorHost, life_);
  CarryOut(logic_.Restore(restored, ReadClocks()));
  cluster_->world.After(kTick, life_, [this] { Tick(); });
}

void SimCoordinator::Tick() {
  for (auto entry = unsaved_.begin(); entry != unsaved_.end();) {
    if (!cluster_->store.SaveJob(entry->second).ok() || !life_->alive) break;
    if (auto view = withheld_.extract(entry->first)) {
      cluster_->oracle.OnPublished(view.mapped());
    }
    entry = unsaved_.erase(entry);
  }
  for (auto entry = unsaved_metrics_.begin(); entry != unsaved_metrics_.end();) {
    if (!cluster_->store.SaveMetrics(entry->first, entry->second).ok() || !life_->alive) break;
    entry = unsaved_metrics_.erase(entry);
  }
  if (!life_->alive) return;
  Handle(coordinator::Tick{});
  cluster_->world.After(kTick, life_, [this] { Tick(); });
}

void SimCoordinator::Handle(const Event& event) {
  write_failed_ = false;
  CarryOut(logic_.Step(event, ReadClocks()));
}

std::optional<Reply> SimCoordinator::Ask(const Event& event) {
  reply_ = {{Internal("bug: the event was not answered"), "INTERNAL"}, "", false};
  Handle(event);
  if (!life_->alive) return std::nullopt;
  if (reply_.refusal.word == "INTERNAL") cluster_->world.Violate("a question was not answered");
  return reply_;
}

void SimCoordinator::CarryOut(Actions actions) {
  queue_.CarryOut(std::move(actions), [this](const Action& action) {
    if (!life_->alive) return;  // it died at a write
    std::visit([this](const auto& a) { Do(a); }, action);
  });
}

// ---- sessions -----------------------------------------------------------------------------------

void SimCoordinator::AcceptSession(const ConnectionPtr& connection) {
  const SessionId session{connection->id()};
  sessions_[session] = connection;
  by_connection_[connection->id()] = session;
  connection->SetOnEnd(
      1, [this, id = connection->id()](const std::string& reason) { SessionClosed(id, reason); });
  Handle(SessionOpened{session});
}

void SimCoordinator::Hear(uint64_t connection, const v1::WorkerMessage& message) {
  const auto session = by_connection_.find(connection);
  if (session == by_connection_.end()) return;
  Handle(WorkerSaid{session->second, message});
}

void SimCoordinator::SessionClosed(uint64_t connection, const std::string& reason) {
  const auto session = by_connection_.extract(connection);
  if (!session) return;
  sessions_.erase(session.mapped());
  Handle(coordinator::SessionClosed{session.mapped(), reason});
}

void SimCoordinator::Do(const Send& action) {
  const auto session = sessions_.find(action.session);
  if (session == sessions_.end()) return;
  const v1::CoordinatorMessage& message = action.message;
  const std::string& name = cluster_->NameAt(session->second->host(0));
  cluster_->world.Log(fmt::format("{} <- {}", name, Describe(message)));
  cluster_->oracle.OnSent(name, message);
  if (message.has_start()) cluster_->oracle.OnStart(message.start());
  const int to = session->second->host(0);
  if (message.has_fence()) cluster_->faults.At(Point::kFenceSent, to);
  if (message.has_start()) cluster_->faults.At(Point::kStartSent, to);
  if (message.has_release()) cluster_->faults.At(Point::kRelease, to);
  session->second->Send(
      1, [cluster = cluster_, host = session->second->host(0), id = session->second->id(),
          message] { cluster->WorkerAt(host).Hear(id, message); });
}

void SimCoordinator::Do(const Admit& action) {
  v1::CoordinatorMessage message;
  *message.mutable_attached() = action.attached;
  Do(coordinator::Send{action.session, message});
}

void SimCoordinator::Do(const CloseSession& action) {
  const auto session = sessions_.extract(action.session);
  if (!session) return;
  const ConnectionPtr connection = session.mapped();
  cluster_->world.Log(fmt::format("{} <- end of session: {}", cluster_->NameAt(connection->host(0)),
                                  Message(action.refusal.status)));
  connection->Finish(1, "ended by the coordinator");
  cluster_->world.After(milliseconds(2), life_,
                        [this, id = connection->id()] { SessionClosed(id, "the stream is done"); });
}

// ---- the store ----------------------------------------------------------------------------------

Status SimCoordinator::Write(const Status& status) {
  if (status.ok()) return status;
  write_failed_ = true;
  return Error(absl::StatusCode::kUnavailable, "the coordinator cannot write its store: {}",
               Message(status));
}

void SimCoordinator::Do(const InsertJob& action) {
  const Status status = Write(cluster_->store.InsertJob(action.record));
  // Interleaving 7: it dies after the commit, before the reply.
  if (!life_->alive) return;
  CarryOut(logic_.Step(JobInserted{action.record, status}, ReadClocks()));
}

void SimCoordinator::Do(const InsertCheckpoint& action) {
  const Status status = Write(cluster_->store.InsertCheckpoint(action.record));
  if (!life_->alive) return;
  CarryOut(logic_.Step(CheckpointInserted{action.upload, action.record, action.digest, status},
                       ReadClocks()));
}

void SimCoordinator::Do(const RaiseTerm& action) {
  if (!Write(cluster_->store.RaiseTerm(action.term)).ok() || !life_->alive) return;
  CarryOut(logic_.Step(TermRaised{action.term}, ReadClocks()));
}

void SimCoordinator::Do(const FindCheckpoint& action) {
  const Time cost = milliseconds(cluster_->world.random().Between(1, 40));
  cluster_->world.After(cost, life_, [this, action] {
    CheckpointFound found{action.job_id, {}, "", {}};
    for (const CheckpointRecord& candidate : action.candidates) {
      const auto folder = cluster_->store.folders.find(candidate.ref.path());
      const bool whole = folder != cluster_->store.folders.end() &&
                         (!folder->second.damaged || RING_PLANTED(kRestoresUnverified));
      if (!whole) {
        found.skipped.push_back(fmt::format("step {} is damaged", candidate.ref.step()));
        continue;
      }
      found.found = candidate;
      found.digest = DigestHex(folder->second.state);
      break;
    }
    Handle(found);
  });
}

void SimCoordinator::Do(const SaveJob& action) {
  const std::string& id = action.record.id();
  if (Write(cluster_->store.SaveJob(action.record)).ok()) {
    unsaved_.erase(id);
    withheld_.erase(id);
  } else {
    unsaved_[id] = action.record;
  }
}

void SimCoordinator::Do(const SaveMetrics& action) {
  coordinator::MetricBatch& batch = unsaved_metrics_[action.job_id];
  batch.Append(action.batch);
  const bool failed = write_failed_;
  if (Write(cluster_->store.SaveMetrics(action.job_id, batch)).ok()) {
    unsaved_metrics_.erase(action.job_id);
  }
  write_failed_ = failed;
}

void SimCoordinator::Do(const SaveDrain& action) {
  (void)Write(cluster_->store.SaveDrain(action.record));
}

void SimCoordinator::Do(const RemoveCheckpoint& action) {
  if (!Write(cluster_->store.RemoveCheckpoint(action.record)).ok()) return;
  cluster_->store.folders.erase(action.record.ref.path());
}

void SimCoordinator::Do(const PublishJob& action) {
  const std::string& id = action.view.status.job_id();
  if (unsaved_.contains(id)) {
    withheld_[id] = action.view;
  } else {
    cluster_->oracle.OnPublished(action.view);
  }
}

void SimCoordinator::Do(const PublishWorkers& action) {
  cluster_->oracle.OnWorkers(action.workers);
}

void SimCoordinator::Do(const Reply& action) {
  reply_ = action;
  reply_.refusal.status = IfStored(action.refusal.status);
}

Status SimCoordinator::IfStored(const Status& status) const {
  if (!write_failed_ || !status.ok() || RING_PLANTED(kAcknowledgesUnstored)) return status;
  return Error(absl::StatusCode::kUnavailable, "the store cannot be written");
}

void SimCoordinator::Do(const Note& action) {
  cluster_->world.Log(fmt::format("# {} {}", action.subject, action.text));
}

// ---- checkpoints --------------------------------------------------------------------------------

void SimCoordinator::AcceptUpload(const ConnectionPtr& connection, const v1::CheckpointBegin& begin,
                                  StateHash state, const OnTaken& answer) {
  const UploadId id{connection->id()};
  uploads_[id] = {connection, begin, state, answer};
  connection->SetOnEnd(1, [this, id](const std::string&) {
    uploads_.erase(id);
    Handle(UploadClosed{id});
  });
  SessionId session{};
  for (const auto& [open, stream] : sessions_) {
    if (stream->host(0) == connection->host(0)) session = open;
  }
  Handle(UploadAsked{id, session, begin});
}

void SimCoordinator::Do(const AdmitUpload& action) {
  cluster_->world.After(cluster_->TransferTime(), life_,
                        [this, id = action.upload] { UploadCame(id); });
}

void SimCoordinator::UploadCame(UploadId id) {
  const auto upload = uploads_.find(id);
  if (upload == uploads_.end() || !upload->second.connection->open(1)) return;
  const auto& [connection, begin, state, answer] = upload->second;
  Handle(UploadVerified{id, ManifestSha256(begin.step(), state), DigestHex(state),
                        cluster_->oracle.ResultDigestOf(begin.job_id())});
}

// As the product's disk thread does it: later, and also when the call has ended by then.
void SimCoordinator::Do(const PlaceUpload& action) {
  const auto found = uploads_.find(action.upload);
  if (found == uploads_.end()) {
    const Status gone = Gone();
    return cluster_->world.After(Time(0), life_, [this, id = action.upload, gone] {
      Handle(UploadPlaced{id, "", gone});
    });
  }
  cluster_->world.After(milliseconds(1), life_, [this, id = action.upload, upload = found->second] {
    const std::string path = SimStore::PathOf(upload.begin.job_id(), upload.begin.step());
    if (cluster_->store.full()) return Handle(UploadPlaced{id, "", Gone()});
    cluster_->store.folders[path] = {upload.begin.step(), upload.state, false};
    cluster_->oracle.OnCheckpoint(upload.begin.job_id(), upload.begin.step(), upload.state);
    Handle(UploadPlaced{id, path, absl::OkStatus()});
  });
}

void SimCoordinator::Do(const EndUpload& action) {
  const auto upload = uploads_.extract(action.upload);
  if (upload.empty()) return;
  const auto& [connection, begin, state, answer] = upload.mapped();
  const Status status = IfStored(action.refusal.status);
  cluster_->world.Log(fmt::format("upload of {} step {} by w{}: {}", begin.job_id(), begin.step(),
                                  connection->host(0), status.ok() ? "kept" : Message(status)));
  connection->Send(1, [answer = answer, status] { answer(status); });
  connection->Finish(1, "done");
}

void SimCoordinator::AcceptDownload(const ConnectionPtr& connection,
                                    const v1::CheckpointSource& source,
                                    const OnDownloaded& answer) {
  std::string error = fmt::format("there is no checkpoint of step {}", source.step());
  SimStore::Folder found;
  for (const auto& [path, folder] : cluster_->store.folders) {
    if (path != SimStore::PathOf(source.job_id(), source.step())) continue;
    found = folder;
    const bool damaged = folder.damaged && !RING_PLANTED(kRestoresUnverified);
    const bool whole =
        !damaged && ManifestSha256(folder.step, folder.state) == source.manifest_sha256();
    if (folder.damaged) found.state ^= 1;
    error = whole ? "" : "the manifest is not the one that was asked for";
  }
  cluster_->world.After(cluster_->TransferTime(), life_, [connection, answer, error, found] {
    if (!connection->open(1)) return;
    connection->Send(1, [answer, error, found] { answer(error, found.step, found.state); });
    connection->Finish(1, "done");
  });
}

}  // namespace ringmaster::sim
