// The part of Logic that takes in checkpoints: who may write one, and whose word must confirm it.
// Which stay: logic_retention.cc.
//
// An upload is received, waits until it is confirmed, and is placed; what is refused on the way was
// never where anybody looks. It is confirmed when its manifest is the one that its writer and
// another holder of the snapshot reported, each over its own session. The writer's word alone will
// do only when nobody else who is there has that snapshot, or will have it: a ring of one; a step
// from before this generation whose other holder was lost; the last holder of a state that leaves;
// a checkpoint by time, which the first member alone takes. Nothing of this outlives the
// coordinator: workers tell their snapshots again when they attach, and upload again.
#include <algorithm>
#include <cctype>
#include <cmath>
#include <utility>
#include <vector>

#include "common/job/metrics.h"
#include "common/job/resolve.h"
#include "common/planted_bug.h"
#include "common/sha256.h"
#include "coordinator/logic/logic.h"

namespace ringmaster::coordinator {
namespace {

CheckpointRecord RecordOf(const v1::CheckpointBegin& begin, const std::string& manifest_sha256) {
  CheckpointRecord record;
  record.job_id = begin.job_id();
  record.ref.set_step(begin.step());
  record.ref.set_sha256(manifest_sha256);
  record.best = begin.best();
  // A metric that is no number says nothing, and is nothing that a store keeps.
  if (begin.has_metric() && std::isfinite(begin.metric())) record.ref.set_metric(begin.metric());
  return record;
}

// The same checkpoint, first written because it was due, then because it is the best.
bool SaysMore(const CheckpointRecord& again, const CheckpointRecord& known) {
  return (again.best && !known.best) || (again.ref.has_metric() && !known.ref.has_metric());
}

// Only the first member knows when it is time.
bool OnlyByTime(const v1::ResolvedJob& job, const v1::CheckpointBegin& begin) {
  const v1::CheckpointOptions& options = job.checkpoint();
  const uint64_t step = begin.step();
  const bool by_step = options.every_steps() > 0 && step % options.every_steps() == 0;
  const bool by_metric = begin.best() && job.result().watches_size() > 0;
  return options.every_seconds() > 0 && !by_step && !by_metric &&
         step != job.result().total_steps();
}

// A hash in hex or a test's name for one: it stands in sentences.
bool IsHash(const std::string& text) {
  return text.size() <= 64 && std::all_of(text.begin(), text.end(),
                                          [](unsigned char c) { return std::isalnum(c) != 0; });
}

Refusal Denied(const std::string& word, const std::string& message) {
  return {Error(absl::StatusCode::kPermissionDenied, "{}", message), word};
}

Refusal Again(absl::StatusCode code, const std::string& word, const std::string& message) {
  return {Error(code, "{}; try again", message), word};
}

std::string Describe(const CheckpointRecord& record) {
  std::string text = fmt::format("step {}", record.ref.step());
  if (record.ref.has_metric()) text += fmt::format(", metric {:.4f}", record.ref.metric());
  if (record.best) text += ", the best so far";
  return text;
}

}  // namespace

// ---- snapshots ----------------------------------------------------------------------------------

void Logic::HearSnapshot(Job& job, const Member& from, const v1::Snapshot& said,
                         const google::protobuf::RepeatedField<uint64_t>& held) {
  if (from.role != Role::kReady) return;
  const std::string& manifest = said.manifest_sha256();
  const bool known_step = job.record.resolved && said.step() > 0 &&
                          said.step() <= job.record.resolved->result().total_steps();
  if (!known_step || !IsHash(manifest)) {
    return Fail(job, Violation(from, fmt::format("reported a snapshot of step {} that cannot be",
                                                 said.step())));
  }
  if (held.size() > SnapshotReports::kMostHeld) {
    return Fail(job, Violation(from, fmt::format("says that it holds {} copies of its state",
                                                 held.size())));
  }
  if (job.run->LedElsewhere(from, said.step())) return;  // it will begin anew
  job.snapshots.Add(from, said, held);
  if (manifest.empty()) return;
  for (const SnapshotReport& other : job.snapshots.At(said.step())) {
    if (other.manifest_sha256.empty() || other.manifest_sha256 == manifest) continue;
    // Nobody can tell which of the two is right, and neither may be trained on from.
    const bool listed = FindStep(job.checkpoints, said.step()) != nullptr;
    const std::string reason = fmt::format(
        "the snapshots of step {} differ: {} reported manifest {}, {} reported manifest {}; {}",
        said.step(), other.called, other.manifest_sha256, from.called(), manifest,
        listed ? "two had agreed before, and their checkpoint is listed" : "neither is kept");
    job.Tell({event_type::kCheckpointDiffers, Severity::kError, reason});
    return Fail(job, {Cause::kCheckpointDiffers, reason, "", said.step()});
  }
}

// ---- who may write ------------------------------------------------------------------------------

Refusal Logic::CheckWriter(const Job& job, const Worker& worker,
                           const v1::CheckpointBegin& begin) const {
  const std::string& id = job.record.id();
  const GenerationId current = job.run->generation();
  const GenerationId its = FromProto(begin.generation());
  // Who was told to save the state it holds ran the newest generation, or an older one, or one that
  // an older store has forgotten: nobody has more.
  const bool saves = job.run->Saves(worker.name());
  // One to come is known to a worker whose coordinator got an older store: the ring is formed anew
  // in a moment.
  if (its > current && !saves) {
    return Again(absl::StatusCode::kUnavailable, "UNKNOWN_GENERATION",
                 fmt::format("generation {} of job {} is newer than its current one, {}",
                             its.ToString(), id, current.ToString()));
  }
  if (its < current && !saves) {
    return Again(absl::StatusCode::kAborted, "OLD_GENERATION",
                 fmt::format("generation {} of job {} is over: {} writes its checkpoints",
                             its.ToString(), id, current.ToString()));
  }
  const Member* member = job.run->Find(worker.name());
  const bool older_copy = member != nullptr && begin.step() <= job.run->start_step() &&
                          job.snapshots.Of(*member, begin.step()) != nullptr;
  if (job.run->RankOf(worker.name()) != size_t{0} && !saves && !older_copy) {
    return Denied("NOT_THE_WRITER",
                  fmt::format("worker {} is not the one that writes the checkpoint of step {} of "
                              "job {} in generation {}: the ring's first is",
                              worker.name(), begin.step(), id, current.ToString()));
  }
  const uint64_t total = job.record.resolved->result().total_steps();
  if (begin.step() == 0 || begin.step() > total) {
    return {
        InvalidArgument("checkpoint step {} of job {}; expected 1 to {}", begin.step(), id, total),
        "INVALID_CHECKPOINT"};
  }
  return {};
}

Refusal Logic::CheckUpload(const UploadAsked& event) {
  const v1::CheckpointBegin& begin = event.begin;
  const Worker* worker = fleet_.Find(event.session);
  if (worker == nullptr) {
    return Again(absl::StatusCode::kUnavailable, "NOT_ATTACHED",
                 "the session whose ticket it is has ended");
  }
  Job* job = Find(begin.job_id());
  if (job == nullptr) return NoSuchJob(begin.job_id());
  if (JobOf(*worker) != job || !job->record.resolved) {
    return {FailedPrecondition("worker {} does not serve job {}", worker->name(), job->record.id()),
            "NOT_IN_RING"};
  }
  if (Refusal refusal = CheckWriter(*job, *worker, begin); !refusal.status.ok()) return refusal;
  const auto under_way = std::find_if(uploads_.begin(), uploads_.end(), [&](const auto& entry) {
    return entry.second.begin.job_id() == begin.job_id();
  });
  if (under_way == uploads_.end()) return {};
  const Upload& other = under_way->second;
  if (other.session != event.session || other.stage == Upload::Stage::kPlacing) {
    return Again(absl::StatusCode::kResourceExhausted, "UPLOAD_UNDER_WAY",
                 fmt::format("worker {} uploads the checkpoint of step {} of job {} already",
                             other.worker, other.begin.step(), begin.job_id()));
  }
  End(under_way->first,
      Again(absl::StatusCode::kAborted, "UPLOAD_SUPERSEDED", "the worker began another upload"));
  return {};
}

void Logic::On(const UploadAsked& event) {
  const auto refuse = [&](Refusal refusal) {
    actions_.push_back(EndUpload{event.upload, std::move(refusal)});
  };
  if (Refusal refusal = CheckUpload(event); !refusal.status.ok()) return refuse(refusal);
  const Job& job = *Find(event.begin.job_id());
  const uint64_t bytes = job::StateBytes(job.record.resolved->result());
  Upload& upload = uploads_[event.upload];
  upload.session = event.session;
  upload.worker = fleet_.Find(event.session)->name();
  upload.begin = event.begin;
  upload.since = now_.steady;
  upload.limit = options_.upload_limit + std::chrono::milliseconds(bytes / 5'000);
  // Half as much again as the state has: names, shapes and hashes are the rest.
  actions_.push_back(AdmitUpload{event.upload, bytes + bytes / 2 + (uint64_t{1} << 20)});
}

// ---- whether it is what it should be ------------------------------------------------------------

Refusal Logic::CheckVerified(const UploadVerified& event, const Job& job) const {
  const std::string expected = Hex(job::ResultDigest(job.record.resolved->result()));
  if (event.result_digest != expected) {
    return {FailedPrecondition("the manifest belongs to another job: result_digest {}, expected {}",
                               event.result_digest, expected),
            "INVALID_CHECKPOINT"};
  }
  const v1::CheckpointBegin& begin = uploads_.at(event.upload).begin;
  const CheckpointRecord* known = FindStep(job.checkpoints, begin.step());
  if (known == nullptr || known->ref.sha256() == event.manifest_sha256) return {};
  return {Error(absl::StatusCode::kAlreadyExists,
                "job {} has a checkpoint of step {} with manifest {}, not {}", known->job_id,
                known->ref.step(), known->ref.sha256(), event.manifest_sha256),
          "CHECKPOINT_DIFFERS"};
}

void Logic::On(const UploadVerified& event) {
  const auto found = uploads_.find(event.upload);
  if (found == uploads_.end()) return;  // it was ended meanwhile
  Upload& upload = found->second;
  const Job& job = *Find(upload.begin.job_id());
  if (Refusal refusal = CheckVerified(event, job); !refusal.status.ok()) {
    return End(event.upload, std::move(refusal));
  }
  upload.manifest_sha256 = event.manifest_sha256;
  upload.digest = event.digest;
  // One that was confirmed before is put in its place at once: what lies there may be damaged.
  if (FindStep(job.checkpoints, upload.begin.step()) == nullptr) {
    upload.stage = Upload::Stage::kWaiting;
    return;
  }
  upload.stage = Upload::Stage::kPlacing;
  actions_.push_back(PlaceUpload{event.upload});
}

std::string Logic::WaitsFor(const Job& job, const Upload& upload, Refusal* refusal) const {
  const Run& run = *job.run;
  const uint64_t step = upload.begin.step();
  const Member* writer = run.Find(upload.worker);
  if (writer == nullptr) return "its writer to serve the job again";
  const SnapshotReport* own = job.snapshots.Of(*writer, step);
  if (own == nullptr || own->manifest_sha256.empty()) {
    return fmt::format("{} to report the manifest of its snapshot", writer->called());
  }
  if (own->manifest_sha256 != upload.manifest_sha256) {
    *refusal = {
        FailedPrecondition("the checkpoint of step {} has manifest {}, but {} reported {} "
                           "over its session",
                           step, upload.manifest_sha256, writer->called(), own->manifest_sha256),
        "CHECKPOINT_DIFFERS"};
    return "";
  }
  if (std::string behind = run.FindBehind(upload.worker, step, job.snapshots.At(step));
      !behind.empty())
    return behind;
  // Reports that differ have ended the job.
  std::string hashing;
  for (const SnapshotReport& report : job.snapshots.At(step)) {
    if (&report == own) continue;
    if (!report.manifest_sha256.empty()) return "";
    const Member* other = run.Find(report.worker);
    const bool there = other != nullptr && other->incarnation() == report.incarnation;
    if (there) hashing = report.called;
  }
  if (!hashing.empty()) return hashing + " to hash its snapshot";
  const Run::OtherHolder other = run.FindOtherHolder(upload.worker, step);
  if (!other.unknown.empty()) return "other holders: " + other.unknown;
  if (other.worker.empty() || OnlyByTime(*job.record.resolved, upload.begin)) return "";
  const Member* holder = run.Find(other.worker);
  if (holder != nullptr && job.snapshots.Passed(*holder, step)) {
    *refusal = {FailedPrecondition(
                    "{} has no snapshot of step {} any more, and this coordinator never heard "
                    "what its manifest was: a newer checkpoint takes its place",
                    holder->called(), step),
                "SNAPSHOT_PASSED"};
    return "";
  }
  return fmt::format("worker {} to report its snapshot", other.worker);
}

void Logic::SettleUploads() {
  std::vector<UploadId> waiting;
  for (const auto& [id, upload] : uploads_) {
    if (upload.stage == Upload::Stage::kWaiting) waiting.push_back(id);
  }
  for (const UploadId id : waiting) {
    const auto found = uploads_.find(id);
    if (found == uploads_.end()) continue;
    Upload& upload = found->second;
    const Job& job = *Find(upload.begin.job_id());
    Refusal refusal;
    const std::string waits_for = WaitsFor(job, upload, &refusal);
    if (!refusal.status.ok()) {
      End(id, std::move(refusal));
    } else if (waits_for.empty()) {
      upload.stage = Upload::Stage::kPlacing;
      actions_.push_back(PlaceUpload{id});
    } else if (upload.waits_for != waits_for) {
      upload.waits_for = waits_for;
      actions_.push_back(Note{
          "job=" + job.record.id(),
          fmt::format("the checkpoint of step {} waits for {}", upload.begin.step(), waits_for)});
    }
  }
}

// ---- its end ------------------------------------------------------------------------------------

void Logic::On(const UploadPlaced& event) {
  const auto found = uploads_.find(event.upload);
  if (found == uploads_.end()) return;
  const Upload& upload = found->second;
  if (!event.status.ok()) {
    const bool disk = event.status.code() == absl::StatusCode::kUnavailable;
    return End(event.upload, {event.status, disk ? "STORE_UNAVAILABLE" : "CHECKPOINT_DIFFERS"});
  }
  CheckpointRecord record = RecordOf(upload.begin, upload.manifest_sha256);
  record.ref.set_path(event.path);
  Job* job = Find(record.job_id);
  const CheckpointRecord* known =
      job == nullptr ? nullptr : FindStep(job->checkpoints, record.ref.step());
  if (known != nullptr) {  // first written because it was due, then because it is the best
    record.best = record.best || known->best;
    if (!record.ref.has_metric() && known->ref.has_metric()) {
      record.ref.set_metric(known->ref.metric());
    }
  }
  // What the job may go back to has its history.
  if (job != nullptr && job->run) job->KeepMetrics(Job::Which::kAll);
  actions_.push_back(InsertCheckpoint{event.upload, std::move(record), upload.digest});
}

void Logic::On(const UploadClosed& event) {
  const auto found = uploads_.find(event.upload);
  if (found == uploads_.end() || found->second.stage == Upload::Stage::kPlacing) return;
  uploads_.erase(found);
}

// By value: it may be of the upload that goes.
// NOLINTNEXTLINE(performance-unnecessary-value-param)
void Logic::End(UploadId upload, Refusal refusal) {
  uploads_.erase(upload);
  actions_.push_back(EndUpload{upload, std::move(refusal)});
}

void Logic::EndUploadsOf(SessionId session, const std::string& why) {
  for (auto entry = uploads_.begin(); entry != uploads_.end();) {
    const auto& [id, upload] = *entry++;
    if (upload.session != session || upload.stage == Upload::Stage::kPlacing) continue;
    End(id, Again(absl::StatusCode::kUnavailable, "NOT_ATTACHED", why));
  }
}

void Logic::EndUploadsOf(const Job& job) {
  for (auto entry = uploads_.begin(); entry != uploads_.end();) {
    const auto& [id, upload] = *entry++;
    if (upload.begin.job_id() != job.record.id() || upload.stage == Upload::Stage::kPlacing) {
      continue;
    }
    End(id, {FailedPrecondition("job {} has ended", job.record.id()), "NOT_IN_RING"});
  }
}

void Logic::EndOverdueUploads() {
  for (auto entry = uploads_.begin(); entry != uploads_.end();) {
    const auto& [id, upload] = *entry++;
    const bool late = now_.steady - upload.since >= upload.limit;
    if (!late || upload.stage == Upload::Stage::kPlacing) continue;
    const std::string what = upload.stage == Upload::Stage::kReceiving
                                 ? std::string("its files did not come")
                                 : "it waited for " + upload.waits_for;
    End(id, Again(absl::StatusCode::kDeadlineExceeded, "UPLOAD_DEADLINE",
                  fmt::format("the checkpoint of step {} was not confirmed within {} ms: {}",
                              upload.begin.step(), upload.limit.count(), what)));
  }
}

void Logic::On(const CheckpointInserted& event) {
  if (event.upload == UploadId{})
    return;  // if it could not be stored, the next reign finds it again
  if (!event.status.ok() && !RING_PLANTED(kKeepsUnstored)) {
    return End(event.upload, {event.status, "STORE_UNAVAILABLE"});
  }
  Job* job = Find(event.record.job_id);
  if (job == nullptr) return End(event.upload, NoSuchJob(event.record.job_id));
  const CheckpointRecord* known = FindStep(job->checkpoints, event.record.ref.step());
  const bool news = known == nullptr || SaysMore(event.record, *known);
  Keep(event.record, job->checkpoints);
  job->retirement.Forget(event.record.ref.step());
  job->distrusted.erase(event.record.ref.step());
  if (news) {
    job->Tell({event_type::kCheckpointSaved, Severity::kInfo, Describe(event.record)});
  }
  DropOldCheckpoints(*job);
  job->DescribeCheckpoints();
  job->Save();  // before the answer: what is acknowledged is durable
  End(event.upload, {});
  if (!job->run) return;
  job->run->OnCheckpoint(event.record.ref, event.digest, actions_);
  Advance(*job, {});
}

void Logic::On(const CheckpointFound& event) {
  Job* job = Find(event.job_id);
  if (job == nullptr || !job->run) return;  // it ended meanwhile
  Advance(*job, job->run->OnCheckpointFound(event, now_));
}

}  // namespace ringmaster::coordinator
