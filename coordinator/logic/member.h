// A worker that serves a job: attached, and on its way into the ring, in it, or out of it. A value,
// owned by Run.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/ids.h"
#include "coordinator/logic/event.h"
#include "coordinator/logic/failure.h"
#include "coordinator/logic/progress_watch.h"
#include "ringmaster/v1/fleet.pb.h"

namespace ringmaster::coordinator {

// How far a worker is: it looks at the dataset, it builds the job, it can be fenced.
enum class Role { kInspecting, kPreparing, kReady };

// What a worker said last that it has.
struct Holding {
  GenerationId started;  // that it ran last, when it attached
  uint64_t applied = 0;
  std::string digest;
  std::vector<uint32_t> folded;  // shards of step `applied`
  bool evaluated = false;
};

struct Member {
  v1::Attach attach;
  SessionId session{};
  Role role = Role::kInspecting;
  std::chrono::milliseconds since{0};  // in that role
  std::chrono::milliseconds last_heard{0};
  std::optional<v1::DatasetFacts> facts;
  std::optional<v1::Prepared> prepared;

  GenerationId fence;  // the newest that it was sent
  bool owes = false;   // the acknowledgement of it
  Holding holding;
  uint64_t applied = 0;  // as far as is known
  bool leaving = false;
  bool lost_told = false;  // that it is out of the ring, since its last acknowledgement

  // Of the current generation.
  bool joined = false;
  std::optional<v1::JobFinished> finished;
  bool stopped = false;
  v1::Progress progress;                                // the newest
  uint64_t work = 0;                                    // Heartbeat.progress
  std::string phase;                                    // Heartbeat.phase, shortened
  std::optional<std::chrono::milliseconds> idle_since;  // it said so ever since
  ProgressWatch watch;

  const std::string& name() const { return attach.name(); }
  const std::string& incarnation() const { return attach.incarnation(); }
  // `worker w2 on host node-b`
  std::string called() const { return Called(attach.name(), attach.host()); }
  std::chrono::milliseconds silent_for(Now now) const { return now.steady - last_heard; }
};

// It broke the protocol; `what` goes on after its name, as in "sent a digest of 3 bytes".
[[nodiscard]] inline Fault Violation(const Member& member, const std::string& what) {
  return {Cause::kProtocolViolation, member.called() + " " + what, member.name()};
}

}  // namespace ringmaster::coordinator
