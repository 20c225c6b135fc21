// Everything that the logic can decide. Plain values; coordinator/shell/executor.h carries them out
// in order.
//
// What waits for which commit: writes (kIsWrite) go to the store in the order in which they were
// decided, those of many events in one transaction. Every other action but a Note waits until each
// write that was decided before it, for whichever event, has ended. So nothing that is sent, shown
// or answered runs ahead of what is stored; two of them that wait keep their order; and events are
// handled while the disk writes. Of two views of one job, or of the workers, that wait with nothing
// but writes and other views between, the older one is left out. A write that fails keeps nothing
// back but what it says below.
#pragma once

#include <string>
#include <type_traits>
#include <variant>
#include <vector>

#include "common/ids.h"
#include "common/status.h"
#include "coordinator/logic/event.h"
#include "coordinator/logic/history.h"
#include "coordinator/logic/record.h"
#include "coordinator/logic/refusal.h"
#include "ringmaster/v1/bench.pb.h"
#include "ringmaster/v1/fleet.pb.h"
#include "ringmaster/v1/jobs.pb.h"

namespace ringmaster::coordinator {

struct Send {
  SessionId session;
  v1::CoordinatorMessage message;
};
// The session is this worker's from now on: sends it Attached, with a ticket of its own.
struct Admit {
  SessionId session;
  std::string worker;
  v1::Attached attached;
};
struct CloseSession {
  SessionId session;
  Refusal refusal;
};

// Answered by the event of the same name, with the status of the write, when that has ended; other
// events may come before. An answer to who asked for a job, or brought a checkpoint, comes from
// that event. RaiseTerm is answered when the term was raised. A checkpoint of a step that is known
// replaces what is said about it.
struct InsertJob {
  JobRecord record;
};
struct InsertCheckpoint {
  UploadId upload{};  // that brought it; none: the folder had it
  CheckpointRecord record;
  std::string digest;
};
struct RaiseTerm {
  uint64_t term = 0;
};
// Takes it out of the store; CheckpointRemoved says how that ended. Its files stay: RemoveFiles.
struct RemoveCheckpoint {
  CheckpointRecord record;
};

// Takes these out of the store, all or none, with their checkpoints and metrics: what stays is what
// RemovedJob has. JobsRemoved says how that ended, and the answer to who asked comes from that
// event. No other write of these jobs is decided behind it.
struct RemoveJobs {
  std::vector<RemovedJob> jobs;
};
// A job that the store has removed is shown no more, and its checkpoints and log lines go. What
// stays of those, because the disk fails or the process ends, goes at the next start.
struct ForgetJob {
  std::string job_id;
};

// The pieces of an upload may come, at most so many bytes of all files together.
struct AdmitUpload {
  UploadId upload;
  uint64_t max_bytes = 0;
};
// Its files go to their place; UploadPlaced follows, as an event of its own.
struct PlaceUpload {
  UploadId upload;
};
// Its answer: with status OK the checkpoint is durable, else its files are removed. OK becomes
// UNAVAILABLE when a write of the same event failed.
struct EndUpload {
  UploadId upload;
  Refusal refusal;
};

// The answer to a Bench call: with status OK the report.
struct EndBench {
  BenchId bench;
  Refusal refusal;
  v1::AllReduceReport report;
};

// Reads and verifies these checkpoints, in this order, until one is whole; CheckpointFound follows,
// as an event of its own.
struct FindCheckpoint {
  std::string job_id;
  std::vector<CheckpointRecord> candidates;  // newest first
};

// Reads all of these back; CheckpointsRead follows, as an event of its own.
struct ReadBack {
  std::string job_id;
  std::vector<CheckpointRecord> checkpoints;  // newest first
};
// The files of a checkpoint that is in no store any more.
struct RemoveFiles {
  std::string path;
};

// A change of state. If it cannot be written it is not published, an OK reply to the same event
// becomes UNAVAILABLE, and it is tried again. One that asks is answered by JobSaved, when it or a
// newer one of that job is stored.
struct SaveJob {
  JobRecord record;
  bool asks = false;
};

// Of a job's metrics. It is tried again until it is written; nothing waits for that.
struct SaveMetrics {
  std::string job_id;
  MetricBatch batch;
};

// An OK reply to the same event becomes UNAVAILABLE when it cannot be written.
struct SaveDrain {
  DrainRecord record;
};

// What everyone may read about a job, and about the fleet.
struct JobView {
  v1::JobStatus status;
  JobEvents events;
  std::vector<v1::CheckpointRef> checkpoints;  // oldest first
  std::vector<std::string> advice;             // of a job that waits: what would make it start
};
struct PublishJob {
  JobView view;
};
struct PublishWorkers {
  v1::ListWorkersResponse workers;
};

// The answer to the request being handled.
struct Reply {
  Refusal refusal;  // status OK when it was done
  std::string job_id;
  bool existed = false;
  v1::Graph graph = {};  // that was asked for
};

// A decision with its reason, for the log.
struct Note {
  std::string subject;  // job=j0001 or worker=a
  std::string text;
};

using Action = std::variant<Send, Admit, CloseSession, InsertJob, InsertCheckpoint, RaiseTerm,
                            AdmitUpload, PlaceUpload, EndUpload, EndBench, FindCheckpoint, ReadBack,
                            RemoveFiles, SaveJob, SaveMetrics, RemoveCheckpoint, RemoveJobs,
                            ForgetJob, SaveDrain, PublishJob, PublishWorkers, Reply, Note>;
using Actions = std::vector<Action>;

template <typename A>
inline constexpr bool kIsWrite =
    std::is_same_v<A, InsertJob> || std::is_same_v<A, InsertCheckpoint> ||
    std::is_same_v<A, RaiseTerm> || std::is_same_v<A, SaveJob> || std::is_same_v<A, SaveMetrics> ||
    std::is_same_v<A, SaveDrain> || std::is_same_v<A, RemoveCheckpoint> ||
    std::is_same_v<A, RemoveJobs>;

}  // namespace ringmaster::coordinator
