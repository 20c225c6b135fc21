// A job on this worker, from its first bound kernel to its last checkpoint: owns the state S(k),
// the cores and the threads that move S(k) to S(k+1). Owned by the daemon, one for each job.
//
// Prepare, Run and the destructor: one thread at a time (the job's "step thread"). pulse() and a
// run's stop token: any thread. It knows no coordinator and no session: assignments come in as
// values, progress and checkpoints go out through two interfaces.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include "common/ids.h"
#include "common/sha256.h"
#include "common/status.h"
#include "ringmaster/v1/job.pb.h"
#include "worker/backend/backend.h"
#include "worker/data/reader.h"
#include "worker/data/shard_loader.h"
#include "worker/ring/all_reduce.h"
#include "worker/ring/link.h"
#include "worker/state/checkpoint.h"
#include "worker/state/checkpoint_sink.h"
#include "worker/state/init_weights.h"
#include "worker/state/state_row.h"
#include "worker/train/follower.h"
#include "worker/train/job_plan.h"
#include "worker/train/progress.h"

namespace ringmaster::worker {

// One generation's part of the work, as seen by one member.
struct Assignment {
  GenerationId generation;
  ring::Position position;       // rank 0 writes the checkpoints
  std::vector<uint32_t> shards;  // this worker's, ascending; may be empty
  uint64_t start_step = 0;       // K: must equal applied()
  bool evaluated = false;        // what is due on S(K) was evaluated by every holder of S(K)
  int class_map = 0;  // of the job's; where the next one begins the run ends as at a boundary
};

// Who else takes part in a run. All outlive it, but for the sink, which is shared: a delivery goes
// on beside the regroup that follows.
struct RunPeers {
  ring::Link* link = nullptr;  // nullptr when the ring has one member; ended when the run ends
                               // before its time
  std::shared_ptr<CheckpointSink> sink;  // used by rank 0 only; nullptr: no checkpoints
  Observer* observer = nullptr;          // nullptr: nobody listens
  // Ends the run at a step boundary: at the one after the next step whose record this member has
  // not handed over yet, for every member of the ring, told or not. After the last step: at once.
  std::stop_token at_boundary;
};

enum class RunEnd : uint8_t {
  kFinished,  // every step applied, evaluated, checkpoint delivered
  kStopped,   // the stop token, or at a boundary a member's at_boundary
  kPeerLost,  // the link failed: `reason` is its error
  kFailed,    // the job cannot go on: `reason` names step, shard and tensor where it can
};

struct RunResult {
  RunEnd end = RunEnd::kFailed;
  uint64_t applied = 0;  // the trainer holds S(applied), whole, whatever `end` says
  Sha256Digest digest{};
  std::string reason;
  // Of kFailed. STATE_DIFFERS and NOT_FINITE after an update: it holds no state any more.
  v1::FailureCode code = v1::FAILURE_CODE_UNSPECIFIED;
  // Of kPeerLost. UNAVAILABLE: a neighbour is gone; ABORTED: a neighbour left of its own accord, so
  // another worker knows the cause; else the ring stood still or spoke nonsense.
  absl::StatusCode link_error = absl::StatusCode::kOk;
  std::string neighbour;        // that the error is about, where it is one (NeighbourOf)
  std::string manifest_sha256;  // of the last checkpoint, where this worker wrote it
  // Shards of step `applied` whose gradients are held, ascending: the next run keeps them when they
  // are all its own, else it drops them.
  std::vector<uint32_t> folded;
  bool evaluated = false;  // everything that is due on S(applied)
  PhaseTimes times;
};

struct TrainerOptions {
  size_t bucket_elements = size_t{1} << 20;
  ring::ReduceOptions reduce;
  InputOptions input;
  std::chrono::milliseconds input_limit{600'000};  // for one shard's samples
  // Of parameters and slots, from which on members end a step together (ReducerOptions), since a
  // copy from a peer would take a good part of a second.
  size_t ends_together_bytes = size_t{128} << 20;
  size_t follow_bytes = size_t{128} << 20;  // likewise, from which on a joiner follows
  size_t piece_bytes = kStatePieceBytes;    // of a state for a peer; equal on all workers
  size_t checkpoint_copies = 2;  // of states that wait for delivery; older ones are dropped
  // What the job begins with, where its spec has an init; read by Prepare alone. Without it the
  // trainer cannot run from S(0).
  std::shared_ptr<const InitWeights> init;
  // Told on the thread of Prepare when a phase of it begins: graph, plan, bind, initialize.
  std::function<void(const char* phase)> on_phase;
  // Told when a copy is taken for a checkpoint (no manifest), and when it is hashed. On the step
  // thread and a thread of the job's, as long as the trainer lives; must not block.
  std::function<void(const HeldCopy& copy)> on_snapshot = [](const HeldCopy&) {};
};

// What a job takes of memory on this worker, as it was planned: without drivers.
struct PlannedMemory {
  WorkerMemory host;       // once: the state, sums of gradients, copies, samples
  uint64_t core = 0;       // of each core: what its largest program takes
  uint64_t exchanged = 0;  // of the host, by all cores: Core::host_bytes; among its parts
  // Of each device whose memory is not the host's, beside its cores: weights, and a state and
  // input that is copied ahead there.
  uint64_t device = 0;
};

struct TrainingJob;

class Trainer {
 public:
  // Builds a program for every shard shape of the job, makes cores (one thread each) and binds
  // them, draws S(0), computes the known shard once on each core, and applies the init. `backend`
  // outlives the trainer. FAILED_PRECONDITION: the dataset is not the job's, naming the file;
  // INVALID_ARGUMENT, UNIMPLEMENTED, RESOURCE_EXHAUSTED: model, operator or memory, in words for
  // the user.
  [[nodiscard]] static StatusOr<std::unique_ptr<Trainer>> Prepare(
      const JobId& job, const v1::ResolvedJob& resolved, std::shared_ptr<const Dataset> dataset,
      Backend* backend, const std::vector<CoreOptions>& cores, const TrainerOptions& options = {});
  ~Trainer();
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;

  // Of each core: hex SHA-256 of the quantized integers of one shard of step 0. Workers whose
  // values differ would not train the same model.
  [[nodiscard]] const std::vector<std::string>& known_shard_sha256() const { return known_.sha256; }
  // That it took a core once it was warm; 0: the job mixes no classes, and it was not measured.
  [[nodiscard]] double known_shard_seconds() const { return known_.seconds; }
  // By which class maps its steps are computed from now on. Step thread, no run is on. BeginWith:
  // before the first one; the first map may be another one than that of Prepare, and digest(0) is
  // of it.
  using ClassMaps = google::protobuf::RepeatedPtrField<v1::ClassMap>;
  void TakeClassMaps(const ClassMaps& maps);
  void BeginWith(const ClassMaps& maps);
  [[nodiscard]] PlannedMemory planned_memory() const;
  // Bytes of the largest payload that a member of its rings sends.
  [[nodiscard]] size_t largest_payload() const;
  // k and digest(k) of the state that it holds. Step thread.
  [[nodiscard]] uint64_t applied() const;
  [[nodiscard]] const Sha256Digest& digest() const;

  // Trains until the last step, or `stop`, or an error; the state is then at a step boundary and
  // another run, of a later generation, may follow. A step in hand is not applied, but what was
  // folded of it is kept (`folded`). `stop` may be requested from any thread, before or during the
  // run; it ends waits on ring, reader and writer at once, and a shard that a core is computing
  // runs to its end and counts. A checkpoint that is being delivered goes on.
  [[nodiscard]] RunResult Run(const Assignment& assignment, const RunPeers& peers,
                              const std::stop_token& stop);

  // S(step), for a peer: consistent, also while a run is on, and no copy (OpenState). Any thread;
  // the trainer outlives the last Read. UNAVAILABLE: the state is not there yet;
  // FAILED_PRECONDITION: it is past it, or cannot be followed.
  [[nodiscard]] StatusOr<std::unique_ptr<StateSource>> Open(uint64_t step,
                                                            Follows follows = Follows::kNo) const;
  // Before a run in which somebody may read the state: from then on that leaves a device that has
  // it alone. Step thread.
  Status BringToHost();
  // Makes room for a peer's state, and replaces the own one by it when it is there; `digest` is the
  // one that it must have. On an error the state is as before. MakeRoom does so ahead of the first
  // Expect, in which a system may take as long for pages as the state for its way: it lasts until
  // then, or until a run begins without. Step thread, before the first run.
  void MakeRoom();
  [[nodiscard]] std::unique_ptr<IncomingState> Expect();
  Status Adopt(IncomingState* incoming, const Sha256Digest& digest);
  // Whether it can do without a whole state of `source` before a run, and its state is large enough
  // for that to matter. Follow takes pieces in; once it took up their first numbers a run may
  // begin, which follows. Until the state is whole the trainer gives nothing of it away, and at the
  // end of the run it holds the former one again; the follower is there until the next Follow. Step
  // thread.
  [[nodiscard]] bool follows() const;
  [[nodiscard]] std::shared_ptr<Follower> Follow(const std::string& source);
  // Likewise by a checkpoint of a job with the same ResultSpec, or by the one that it continues.
  Status Restore(const Checkpoint& checkpoint);
  // A checkpoint of the state as it is, for a sink of the caller's. Step thread, no run is on.
  [[nodiscard]] StatusOr<Checkpoint> MakeCheckpoint() const;
  // DATA_LOSS: a state that is not what was written was noticed; then there is none. Step thread.
  [[nodiscard]] Status whole() const;
  // Hashes all of the state, to see whether it is still what was written: DATA_LOSS names what is
  // not. Step thread, no run is on.
  [[nodiscard]] Status Check();
  // The checkpoint of this step is durable: a copy that is kept in case its writer dies may go. Any
  // thread.
  void ForgetCopies(uint64_t step);

  // What the step thread is at. Any thread, lock-free.
  [[nodiscard]] Pulse pulse() const;

 private:
  struct KnownShard {
    std::vector<std::string> sha256;
    double seconds = 0;
  };
  Trainer(std::unique_ptr<TrainingJob> job, KnownShard known);
  [[nodiscard]] Status CheckAssignment(const Assignment& assignment, const RunPeers& peers) const;

  const std::unique_ptr<TrainingJob> job_;
  [[nodiscard]] State TakeRoom();
  [[nodiscard]] RunResult Refused(const Status& status) const;

  const KnownShard known_;
  std::optional<State> room_;
  std::shared_ptr<Follower> follower_;  // of the newest Follow; ends before the job
};

}  // namespace ringmaster::worker
