#include "tests/sim/sim_coordinator.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <iterator>
#include <memory>
#include <utility>
#include <variant>

#include "common/planted_bug.h"
#include "tests/sim/cluster.h"
#include "tests/sim/describe.h"

namespace ringmaster::sim {
namespace {

using namespace coordinator;  // its events and actions

constexpr Time kTick = milliseconds(50);
constexpr Time kSteady = seconds(1000);  // the steady clock when the world begins

Status Gone() { return Error(absl::StatusCode::kUnavailable, "the coordinator is gone"); }

}  // namespace

SimCoordinator::SimCoordinator(Cluster* cluster, uint64_t reign)
    : cluster_(cluster),
      life_(std::make_shared<Life>()),
      executor_(cluster->plan.options, {this, this, this, this, this, this}) {
  life_->name = fmt::format("coordinator#{}", reign);
}

SimCoordinator::~SimCoordinator() = default;

Clock::Moment SimCoordinator::Read() const {
  const auto steady = cluster_->world.now() + kSteady;
  const int64_t shown = std::chrono::duration_cast<milliseconds>(steady).count();
  return {steady, 1'700'000'000'000 + shown + cluster_->wall_offset_ms};
}

void SimCoordinator::Start() {
  cluster_->world.Log(fmt::format("start {} in term {}", life_->name, cluster_->store.term()));
  cluster_->oracle.OnReign();
  Restored restored;
  restored.term = cluster_->store.term();
  restored.jobs = *cluster_->store.LoadJobs();
  restored.checkpoints = *cluster_->store.LoadCheckpoints();
  restored.drains = *cluster_->store.LoadDrains();
  std::set<std::string> jobs, paths;
  for (const JobRecord& job : restored.jobs) jobs.insert(job.id());
  for (const CheckpointRecord& checkpoint : restored.checkpoints) {
    paths.insert(checkpoint.ref.path());
  }
  for (const auto& [path, folder] : cluster_->store.folders) {
    const std::string job = path.substr(0, path.find('/'));
    if (!jobs.contains(job)) {
      restored.taken_ids.push_back(job);
    } else if (!paths.contains(path) && !folder.damaged) {
      StrayCheckpoint& stray = restored.strays.emplace_back();
      stray.job_id = job;
      stray.ref.set_path(path);
      stray.ref.set_step(folder.step);
      stray.ref.set_sha256(ManifestSha256(folder.step, folder.state));
      stray.result_digest = folder.result_digest;
      stray.class_maps = folder.class_maps;
      cluster_->oracle.OnStray(job, folder.step);
    }
  }
  cluster_->network.Bind(kCoordinatorHost, life_);
  executor_.Restore(restored);
  cluster_->world.After(kTick, life_, [this] { Tick(); });
}

// ---- the loop -----------------------------------------------------------------------------------

void SimCoordinator::Post(std::function<void(const Executor::Arrival&)> run) {
  waiting_.push_back({cluster_->world.due() + kSteady, std::move(run)});
  RunNext();
}

void SimCoordinator::RunNext() {
  while (!busy_ && life_->alive && (tick_due_ || !waiting_.empty())) {
    busy_ = true;
    counted_work = 0;
    if (std::exchange(tick_due_, false)) {
      executor_.OnTick(waiting_.empty() ? Read().steady : waiting_.front().came);
    } else {
      const Task task = std::move(waiting_.front());
      waiting_.pop_front();
      task.run({task.came, waiting_.empty() ? Logic::Next::kMayWait : Logic::Next::kComes});
    }
    cluster_->oracle.OnDecided(counted_work);
    busy_ = false;
    const Time cost = cluster_->LoopTime();
    if (cost == Time(0)) continue;
    busy_ = true;
    cluster_->world.After(cost, life_, [this] {
      busy_ = false;
      RunNext();
    });
  }
}

void SimCoordinator::Tick() {
  tick_due_ = true;
  RunNext();
  cluster_->world.After(kTick, life_, [this] { Tick(); });
}

void SimCoordinator::Handle(const Event& event) {
  Post([this, event](const Executor::Arrival& arrival) { executor_.Handle(event, arrival); });
}

void SimCoordinator::Ask(const Event& event, std::function<void(const Reply&)> done) {
  Post([this, event, done = std::move(done)](const Executor::Arrival& arrival) {
    executor_.Ask(event, arrival, [this, event, done](const Reply& reply) {
      CheckAnswer(event, reply);
      done(reply);
    });
  });
}

void SimCoordinator::CheckAnswer(const Event& event, const Reply& reply) {
  if (reply.refusal.word == "INTERNAL") cluster_->world.Violate("a question was not answered");
  if (!reply.refusal.status.ok()) return;
  const auto& jobs = cluster_->store.jobs();
  bool stored = true;
  if (std::holds_alternative<SubmitAsked>(event)) stored = jobs.contains(reply.job_id);
  if (const auto* asked = std::get_if<CancelAsked>(&event)) {
    const auto job = jobs.find(asked->job.value());
    stored =
        job != jobs.end() && (job->second.cancel_requested || IsFinal(job->second.status.state()));
  }
  if (!stored) cluster_->world.Violate("rule 11: an answer runs ahead of what is stored");
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
  WorkerSaid said{session->second, message};
  if (lie_.armed && message.progress().digests_size() > 1) TellLie(said.message.mutable_progress());
  Handle(said);
}

void SimCoordinator::TellLie(v1::Progress* progress) {
  const v1::Start* start = cluster_->oracle.NewestStart(progress->job_id());
  // Not of the state that it holds, of which it says the truth when it acknowledges a fence; of a
  // step that the others speak of, too, whatever the stride of their reports.
  const auto behind = std::prev(progress->mutable_digests()->end());
  v1::StepDigest& digest = *std::max_element(
      progress->mutable_digests()->begin(), behind, [](const auto& one, const auto& other) {
        return std::countr_zero(one.step()) < std::countr_zero(other.step());
      });
  const bool current = start != nullptr && start->ring_size() >= 3 &&
                       start->generation().counter() == progress->generation().counter() &&
                       start->generation().term() == progress->generation().term();
  if (!current || digest.step() <= start->start_step()) return;
  lie_ = {false, true, false, *start, digest.step()};
  digest.set_digest("none of it");
  cluster_->world.Log(fmt::format("LIE of step {}", digest.step()));
  cluster_->world.After(seconds(2), life_, [this] { CheckLie(); });
}

bool SimCoordinator::NobodyKnowsWhoLied(const v1::JobStatus& failed) const {
  // Who followed may have got the state of a later step.
  const auto lives = [this](const v1::RingMember& member) {
    return !member.follows() &&
           std::ranges::any_of(cluster_->workers, [&member](const auto& entry) {
             return entry.second->incarnation() == member.incarnation() &&
                    entry.second->life()->alive;
           });
  };
  return lie_.told && failed.job_id() == lie_.start.job_id() &&
         failed.failure().word() == "STATE_DIFFERS" &&
         std::ranges::count_if(lie_.start.ring(), lives) < 3;
}

// The others say what they hold within a heartbeat or two, unless the ring ends before.
void SimCoordinator::CheckLie() {
  const v1::Start* newest = cluster_->oracle.NewestStart(lie_.start.job_id());
  const bool same = newest != nullptr &&
                    newest->generation().counter() == lie_.start.generation().counter() &&
                    newest->generation().term() == lie_.start.generation().term();
  if (!same || lie_.seen) return;
  cluster_->world.Violate(
      fmt::format("rule 12: nobody saw that digests of step {} differ", lie_.step));
}

void SimCoordinator::SessionClosed(uint64_t connection, const std::string& reason) {
  const auto session = by_connection_.extract(connection);
  if (!session) return;
  sessions_.erase(session.mapped());
  Handle(coordinator::SessionClosed{session.mapped(), reason});
}

void SimCoordinator::Send(const coordinator::Send& action) {
  const auto session = sessions_.find(action.session);
  if (session == sessions_.end()) return;
  v1::CoordinatorMessage message = action.message;
  if (message.has_start()) {
    // By each reign another one, as OpenStreams makes them.
    const v1::Generation& generation = message.start().generation();
    message.mutable_start()->set_ticket(fmt::format("{} {} {}.{}", life_->name,
                                                    message.start().job_id(), generation.term(),
                                                    generation.counter()));
  }
  if (message.has_attached()) {
    admitted_.insert(action.session);
  } else if (!admitted_.contains(action.session)) {
    cluster_->world.Violate("rule 11: a message overtakes what was sent before it");
  }
  const std::string& name = cluster_->NameAt(session->second->host(0));
  cluster_->world.Log(fmt::format("{} <- {}", name, Describe(message)));
  cluster_->oracle.OnSent(name, message);
  if (message.has_start()) cluster_->oracle.OnStart(message.start());
  const int to = session->second->host(0);
  lie_.seen = lie_.seen || message.fence().verify_state();
  if (message.has_fence()) cluster_->faults.At(Point::kFenceSent, to);
  if (message.has_start()) cluster_->faults.At(Point::kStartSent, to);
  if (message.has_release()) cluster_->faults.At(Point::kRelease, to);
  session->second->Send(
      1, [cluster = cluster_, host = session->second->host(0), id = session->second->id(),
          message] { cluster->WorkerAt(host).Hear(id, message); });
}

void SimCoordinator::Admit(const coordinator::Admit& action) {
  v1::CoordinatorMessage message;
  *message.mutable_attached() = action.attached;
  Send({action.session, message});
}

void SimCoordinator::Close(const CloseSession& action) {
  const auto session = sessions_.extract(action.session);
  if (!session) return;
  const ConnectionPtr connection = session.mapped();
  cluster_->world.Log(fmt::format("{} <- end of session: {}", cluster_->NameAt(connection->host(0)),
                                  Message(action.refusal.status)));
  connection->Finish(1, "ended by the coordinator");
  cluster_->world.After(milliseconds(2), life_,
                        [this, id = connection->id()] { SessionClosed(id, "the stream is done"); });
}

// ---- the store and what is shown ----------------------------------------------------------------

// The product's thread of the store. Interleaving 7: the process dies after a commit, before
// anybody was answered.
bool SimCoordinator::Begin(std::vector<const StoreWrite*> writes) {
  cluster_->world.After(cluster_->CommitTime(), life_, [this, writes = std::move(writes)] {
    std::vector<Status> statuses = cluster_->store.WriteAll(writes);
    if (!life_->alive) return;
    for (const StoreWrite* write : writes) {
      if (const auto* inserted = std::get_if<InsertCheckpoint>(write)) {
        const CheckpointRecord& record = inserted->record;
        stored_at_[{record.job_id, record.ref.step()}] = cluster_->world.now();
      }
    }
    const Time heard = microseconds(cluster_->world.random().Between(0, 200));
    cluster_->world.After(heard, life_, [this, statuses = std::move(statuses)] {
      Post([this, statuses](const Executor::Arrival&) { executor_.Written(statuses); });
    });
  });
  return true;
}

void SimCoordinator::Publish(JobView view) { cluster_->oracle.OnPublished(view); }

void SimCoordinator::PublishWorkers(v1::ListWorkersResponse workers) {
  cluster_->oracle.OnWorkers(workers);
}

void SimCoordinator::NoteStoreTrouble(const std::string&) {}

void SimCoordinator::Write(Severity, const std::string& line) { cluster_->world.Log("# " + line); }

// ---- checkpoints --------------------------------------------------------------------------------

std::string SimCoordinator::Damage(const CheckpointRecord& checkpoint) const {
  const auto folder = cluster_->store.folders.find(checkpoint.ref.path());
  const uint64_t step = checkpoint.ref.step();
  if (folder == cluster_->store.folders.end()) return fmt::format("step {} is not there", step);
  if (folder->second.damaged && !RING_PLANTED(kRestoresUnverified)) {
    return fmt::format("step {} is damaged", step);
  }
  return "";
}

// What is there and was not just stored, older than what is looked at, is looked at.
void SimCoordinator::CheckSearch(const FindCheckpoint& action) {
  if (cluster_->store.ever_failed() || action.candidates.empty()) return;
  const StatusOr<std::vector<CheckpointRecord>> rows = cluster_->store.LoadCheckpoints();
  for (const CheckpointRecord& row : *rows) {
    const uint64_t step = row.ref.step();
    const auto since = stored_at_.find({row.job_id, step});
    const bool old =
        since == stored_at_.end() || cluster_->world.now() - since->second > seconds(6);
    if (row.job_id != action.job_id || !old) continue;
    const bool looked_at = std::any_of(
        action.candidates.begin(), action.candidates.end(), [&](const CheckpointRecord& candidate) {
          return candidate.job_id == row.job_id && candidate.ref.step() == step;
        });
    if (looked_at) continue;
    cluster_->world.Violate(
        fmt::format("rule 11: the checkpoint of step {} of {} is there, and is "
                    "not searched",
                    step, row.job_id));
  }
}

void SimCoordinator::Find(const FindCheckpoint& action) {
  CheckSearch(action);
  // The disk has too much to do.
  if (cluster_->world.random().OneIn(8)) {
    return cluster_->world.After(Time(0), life_, [this, action] { executor_.PutOff(action); });
  }
  const Time cost = milliseconds(cluster_->world.random().Between(1, 40));
  cluster_->world.After(cost, life_, [this, action] {
    CheckpointFound found{action.job_id, {}, "", {}};
    for (const CheckpointRecord& candidate : action.candidates) {
      if (const std::string damage = Damage(candidate); !damage.empty()) {
        found.skipped.push_back(damage);
        continue;
      }
      found.found = candidate;
      found.digest = DigestHex(cluster_->store.folders.at(candidate.ref.path()).state);
      break;
    }
    Handle(found);
  });
}

void SimCoordinator::Read(const ReadBack& action) {
  cluster_->world.After(cluster_->ReadTime(), life_, [this, action] {
    std::string why;
    for (const CheckpointRecord& checkpoint : action.checkpoints) {
      if (why.empty()) why = Damage(checkpoint);
      if (why.empty()) read_back_[action.job_id].insert(checkpoint.ref.step());
    }
    Handle(CheckpointsRead{action.job_id, why});
  });
}

// The job went back behind it, and on by another map.
bool SimCoordinator::OfGivenUpMap(const std::string& job, uint64_t step) const {
  const auto found = cluster_->store.jobs().find(job);
  if (found == cluster_->store.jobs().end() || !found->second.resolved) return false;
  const auto& maps = found->second.resolved->result().class_maps();
  return maps.size() > 1 && step > maps.rbegin()->step();
}

void SimCoordinator::Remove(const std::string& path) {
  const auto folder = cluster_->store.folders.find(path);
  if (folder == cluster_->store.folders.end()) return;
  const std::string job = path.substr(0, path.find('/'));
  const std::set<uint64_t>& read = read_back_[job];
  if (cluster_->store.Has(job, folder->second.step)) {
    cluster_->world.Violate("rule 11: the files of a checkpoint go while the store has it");
  } else if (!lie_.told && !OfGivenUpMap(job, folder->second.step) &&
             std::distance(read.upper_bound(folder->second.step), read.end()) < 2) {
    cluster_->world.Violate("rule 11: a checkpoint goes, and no two newer ones were read back");
  }
  cluster_->world.After(milliseconds(1), life_,
                        [this, path] { cluster_->store.folders.erase(path); });
}

void SimCoordinator::AcceptUpload(const ConnectionPtr& connection, const v1::CheckpointBegin& begin,
                                  const SimStore::Folder& files, const OnTaken& answer) {
  const UploadId id{connection->id()};
  uploads_[id] = {connection, begin, files, answer};
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

void SimCoordinator::Admit(const AdmitUpload& action) {
  cluster_->world.After(cluster_->TransferTime(), life_,
                        [this, id = action.upload] { UploadCame(id); });
}

void SimCoordinator::UploadCame(UploadId id) {
  const auto upload = uploads_.find(id);
  if (upload == uploads_.end() || !upload->second.connection->open(1)) return;
  const SimStore::Folder& files = upload->second.files;
  Handle(UploadVerified{id, ManifestSha256(files.step, files.state), DigestHex(files.state),
                        files.result_digest});
}

// As the product's disk thread does it: later, and also when the call has ended by then.
void SimCoordinator::Place(UploadId id) {
  const auto found = uploads_.find(id);
  if (found == uploads_.end()) {
    const Status gone = Gone();
    return cluster_->world.After(Time(0), life_, [this, id, gone] {
      Handle(UploadPlaced{id, "", gone});
    });
  }
  cluster_->world.After(milliseconds(1), life_, [this, id, upload = found->second] {
    const std::string path = SimStore::PathOf(upload.begin.job_id(), upload.begin.step());
    if (cluster_->store.full()) return Handle(UploadPlaced{id, "", Gone()});
    cluster_->store.folders[path] = upload.files;
    cluster_->oracle.OnCheckpoint(upload.begin.job_id(), upload.files.step, upload.files.state);
    Handle(UploadPlaced{id, path, absl::OkStatus()});
  });
}

void SimCoordinator::End(const EndUpload& action) {
  const auto upload = uploads_.extract(action.upload);
  if (upload.empty()) return;
  const auto& [connection, begin, files, answer] = upload.mapped();
  const Status status = action.refusal.status;
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
