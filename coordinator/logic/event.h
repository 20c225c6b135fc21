// Everything that can happen to the coordinator. Plain values; the adapters in service/ make them,
// Logic::Step takes them one at a time.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "common/ids.h"
#include "common/status.h"
#include "coordinator/logic/record.h"
#include "ringmaster/v1/bench.pb.h"
#include "ringmaster/v1/fleet.pb.h"
#include "ringmaster/v1/jobs.pb.h"

namespace ringmaster::coordinator {

// One session stream of one worker process; never reused.
enum class SessionId : uint64_t {};

// When an event is handled. `steady` decides, `unix_ms` is only shown.
struct Now {
  std::chrono::milliseconds steady{0};
  int64_t unix_ms = 0;
  // How long this event has waited since it came; of a Tick the oldest one that still waits.
  std::chrono::milliseconds waited{0};
  // When it came, or of a Tick until when everything that came was handled, by the clock of silence
  // (SilenceClock). Logic sets it.
  std::chrono::milliseconds heard{0};
};

struct SessionOpened {
  SessionId session;
};
struct WorkerSaid {
  SessionId session;
  v1::WorkerMessage message;
};
struct SessionClosed {
  SessionId session;
  std::string reason;
};

// The requests; each is answered by exactly one Reply before the next event.
struct SubmitAsked {
  // Whose checkpoints the job may begin with or go on from.
  enum class Sources : uint8_t { kEverybodys, kOwn };
  v1::SubmitRequest submit;
  std::string submitted_by;
  Sources sources = Sources::kEverybodys;
};
struct CancelAsked {
  JobId job;
};
struct RemoveAsked {
  JobId job;
  std::string removed_by;
};
struct GraphAsked {
  JobId job;
};
// Whether this worker may fetch checkpoints of a job: of the one that it serves, and of those that
// one goes on from or begins with.
struct FetchAsked {
  std::string worker;
  JobId job;
};
// A worker is to leave its job at a step boundary and take no other one, or to take jobs again.
struct DrainAsked {
  std::string worker;
  bool resume = false;
};

// One Bench call; never reused.
enum class BenchId : uint64_t {};

// To measure the ring of workers without a job; EndBench answers, at once or later.
struct BenchAsked {
  BenchId bench;
  v1::AllReduceRequest request;
};
// The call is over; nobody waits for its end.
struct BenchDropped {
  BenchId bench;
};

// One UploadCheckpoint call; never reused.
enum class UploadId : uint64_t {};

// The worker of this session, whose ticket it showed, wants to upload a checkpoint: answered by
// AdmitUpload or EndUpload.
struct UploadAsked {
  UploadId upload;
  SessionId session;
  v1::CheckpointBegin begin;
};
// Its files are on disk, apart from all others, and equal to the manifest. PlaceUpload or EndUpload
// follows, at once or later.
struct UploadVerified {
  UploadId upload;
  std::string manifest_sha256;  // hex
  std::string digest;           // hex, as the manifest says
  std::string result_digest;    // likewise
};
// Answers PlaceUpload.
struct UploadPlaced {
  UploadId upload;
  std::string path;
  Status status;
};
// The call is over; nobody waits for its end.
struct UploadClosed {
  UploadId upload;
};

// What became of a write that the logic waits for.
struct JobInserted {
  JobRecord record;
  Status status;
};
struct JobSaved {
  JobRecord record;  // as it is stored now
};
struct CheckpointInserted {
  UploadId upload{};  // none: nobody brought it, the folder had it
  CheckpointRecord record;
  std::string digest;
  Status status;
};
// Answers FindCheckpoint: the newest of its checkpoints that verified, and what was wrong with
// those that were newer.
struct CheckpointFound {
  std::string job_id;  // for which it was searched
  std::optional<CheckpointRecord> found;
  std::string digest;                // hex, in its manifest
  std::vector<std::string> skipped;  // one sentence each, newest first
};
// Answers ReadBack: all of them are whole, or `why` says which one is not, or why nobody could
// look.
struct CheckpointsRead {
  std::string job_id;
  std::string why;
};
// What became of a RemoveCheckpoint.
struct CheckpointRemoved {
  CheckpointRecord record;
  Status status;
};
// What became of a RemoveJobs.
struct JobsRemoved {
  std::vector<RemovedJob> jobs;
  Status status;
};
struct TermRaised {
  uint64_t term = 0;
};

// Time passed; at least ten a second.
struct Tick {};

using Event = std::variant<SessionOpened, WorkerSaid, SessionClosed, SubmitAsked, CancelAsked,
                           RemoveAsked, GraphAsked, FetchAsked, DrainAsked, BenchAsked,
                           BenchDropped, UploadAsked, UploadVerified, UploadPlaced, UploadClosed,
                           CheckpointFound, JobInserted, JobSaved, CheckpointInserted,
                           CheckpointsRead, CheckpointRemoved, JobsRemoved, TermRaised, Tick>;

}  // namespace ringmaster::coordinator
