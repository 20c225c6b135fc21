// What a seed stands for: the cluster, its jobs and the faults, drawn before anything happens, so
// that the same seed is the same simulation. Values.
#pragma once

#include <string>
#include <vector>

#include "coordinator/logic/options.h"
#include "ringmaster/v1/job.pb.h"
#include "tests/sim/world.h"

namespace ringmaster::sim {

enum class FaultKind {
  kKillWorker,       // its process; its host answers with resets
  kLoseHost,         // and nobody is told
  kPauseWorker,      // SIGSTOP, and on after a while
  kHangWorker,       // its computation stands still, its threads do not
  kTerminateWorker,  // SIGTERM
  kDrainWorker,
  kAddWorker,
  kAddOddWorker,  // computes other bits
  kRestartFast,   // killed and there again before anybody noticed
  kCutLink,       // both directions between two workers
  kCutOneWay,
  kBreakLink,       // the connections between two workers, once
  kCutCoordinator,  // one worker from the coordinator, which still rings
  kBreakSession,
  kClog,  // one direction of somebody's, for a while
  kKillCoordinator,
  kPauseCoordinator,
  kDieAtWrite,  // the coordinator dies just before or after its next write
  kFillDisk,
  kRestoreOlderStore,
  kDamageCheckpoint,
  kJumpClock,
  kCancelJob,
  kSubmitAgain,  // with the same key
  kKillAll,      // every worker of the ring within one heartbeat
  kKillPair,     // coordinator and a worker together
  kStorm,        // three quick breaks in one second
  kSlowLoop,     // the coordinator's loop needs long for each event, for a while
  kFailCommits,  // of its store, which may hold what they wrote all the same
  kLieOfDigest,  // one of a worker's reports comes with a digest that is not its state's
  kDamageTerm,   // the file in which a worker keeps the highest term
  kCount,
};

// Where in the protocol a fault happens, beside moments of time.
enum class Point {
  kTime,
  kApplied,  // a worker applied a step
  kFenceSent,
  kFenceAcked,
  kStartSent,  // to one member: the others have not got theirs
  kJoined,
  kFetch,  // a worker begins to fetch a state
  kFinished,
  kUpload,  // an upload begins
  kRelease,
  kCount,
};

struct Fault {
  FaultKind kind{};
  Point point = Point::kTime;
  uint64_t nth = 1;     // occurrence of the point
  Time at{0};           // of kTime; else the delay after the point
  uint64_t target = 0;  // which worker, by modulus; a point's own worker when `own`
  bool own = false;
  Time lasts{0};
};

struct PlannedJob {
  std::string key;
  v1::JobSpec spec;
  Time at{0};
};

struct Plan {
  uint64_t seed = 0;
  coordinator::Options options;
  uint32_t workers = 3;
  std::vector<uint32_t> cores;
  uint32_t classes = 1;  // numerics classes of workers: host i is of class i modulo that
  Time shard_time{0};
  // Of the coordinator's disk: commits, now and then one of seconds, and reading checkpoints back.
  Time commit_most{3'000};
  bool stalls = false;
  Time read_most{40'000};
  bool only_load = false;  // nothing but load happens: nobody is lost
  std::vector<PlannedJob> jobs;
  std::vector<Fault> faults;
  // Whether workers of that host follow; of half of all clusters all do, or two of three. Nothing
  // is drawn for it, so that the other seeds mean what they meant.
  [[nodiscard]] bool FollowsAt(int host) const {
    return seed % 2 == 1 && (seed % 4 == 1 || host % 3 != 0);
  }
  Time heal{0};   // no fault after this
  Time limit{0};  // everything must be done
};

[[nodiscard]] Plan MakePlan(uint64_t seed);
// The coordinator's disk is full for so long when the first job has one more step to do; every
// other fault comes as planned.
void FillDiskAtTheEnd(Time lasts, Plan* plan);
[[nodiscard]] const char* NameOf(FaultKind kind);
[[nodiscard]] const char* NameOf(Point point);

}  // namespace ringmaster::sim
