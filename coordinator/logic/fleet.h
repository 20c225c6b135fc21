// Who is attached: names, incarnations, leases, and who is to take no jobs. Owned by Logic, loop
// thread only. Knows no job but the id of the one that a worker serves.
#pragma once

#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/ids.h"
#include "common/planted_bug.h"
#include "coordinator/logic/action.h"
#include "coordinator/logic/event.h"
#include "coordinator/logic/options.h"
#include "coordinator/logic/record.h"
#include "ringmaster/v1/fleet.pb.h"
#include "ringmaster/v1/jobs.pb.h"

namespace ringmaster::coordinator {

struct Worker {
  SessionId session{};
  v1::Attach attach;
  std::string class_name;                    // of its numerics class (common/job/class_map.h)
  v1::Heartbeat heartbeat;                   // the newest
  v1::DeviceReport devices;                  // the newest, as far as it is shown
  std::chrono::milliseconds clock_ahead{0};  // of the coordinator's, as the host of `devices` says
  std::chrono::milliseconds last_heard{0};   // of Now::heard
  JobId job;                                 // that it serves; empty = free
  bool releasing = false;  // its job is over here, and it has not said yet that it is free
  std::chrono::milliseconds released_at{0};
  bool measuring = false;  // is in a Bench
  bool joining = false;    // serves a job, but is not in its ring yet
  bool draining = false;   // takes no job any more
  bool leaving = false;    // its session ends as soon as it is free

  const std::string& name() const { return attach.name(); }
  bool idle() const { return job.empty() && !releasing && !measuring; }
  bool free() const { return idle() && !draining; }
};

// Whether it has an interpreter of scripts of this name; empty: of a job that needs none.
[[nodiscard]] bool HasInterpreter(const v1::Attach& attach, const std::string& name);

class Fleet {
 public:
  explicit Fleet(const Options& options) : options_(options) {}

  void Open(SessionId session, Now now);
  // Forgets the session. The worker that it was, if it had attached.
  std::optional<Worker> Close(SessionId session);

  // Whether `attach` may become a worker; the refusal says why not. A living worker with this name
  // and another incarnation refuses it; with the same incarnation it is the same process, whose
  // older session is returned in `superseded` and must be closed first.
  [[nodiscard]] Refusal Check(const v1::Attach& attach, std::optional<SessionId>* superseded) const;
  Worker& Add(SessionId session, const v1::Attach& attach, Now now);

  // What it says of its devices and its host, until it says it again or its session ends. Of an
  // absurd report that is the first devices, with names cut short.
  static void KeepDevices(Worker& worker, const v1::DeviceReport& report, Now now);

  // Null when the session has not attached, or is unknown.
  Worker* Find(SessionId session);
  bool IsOpen(SessionId session) const { return waiting_.contains(session) || Attached(session); }
  Worker* Find(const std::string& name);

  // What was stored.
  void RestoreDrains(const std::vector<DrainRecord>& drains);
  // Lets a worker take no jobs, or take them again; it holds for this process of it, also after its
  // session broke.
  void SetDraining(Worker& worker, bool draining);
  // Ends the drain of a worker that is not attached, or whose process ends; false: there is none.
  [[nodiscard]] bool ForgetDrain(const std::string& worker) { return drained_.erase(worker) > 0; }

  // Every worker, by name.
  std::map<std::string, Worker>& workers() { return workers_; }
  const std::map<std::string, Worker>& workers() const { return workers_; }

  // Sessions to close now, each with why: no Attach in time, no heartbeat within the lease, no end
  // of a released job.
  struct Overdue {
    SessionId session;
    std::string reason;
  };
  [[nodiscard]] std::vector<Overdue> FindOverdue(Now now) const;

  // The coordinator itself was late by `late`: no session is accused for that time. (By which clock
  // workers are silent: SilenceClock.)
  void Excuse(std::chrono::milliseconds late);

  [[nodiscard]] v1::ListWorkersResponse View() const;

 private:
  bool Attached(SessionId session) const { return names_.contains(session); }

  const Options& options_;
  std::map<SessionId, std::chrono::milliseconds> waiting_;  // opened then, not attached yet
  std::map<SessionId, std::string> names_;
  std::map<std::string, Worker> workers_;
  std::map<std::string, std::string> drained_;  // name -> incarnation
};

// The clock by which workers are silent: it stands still while the coordinator does not listen, so
// that no worker is accused of what the coordinator's own load or disk did. A value, owned by
// Logic, loop thread only.
class SilenceClock {
 public:
  using Time = std::chrono::milliseconds;
  // Between two events, where there are at least ten a second.
  static constexpr Time kGap{200};
  // From the arrival of an event until it is handled.
  static constexpr Time kBehind{100};

  // What it shows at `steady`, when everything has been handled that came `waited` before and
  // earlier. Times grow; the first one is where it begins.
  [[nodiscard]] Time At(Time steady, Time waited) {
    if (RING_PLANTED(kDelayIsSilence)) waited = Time(0);
    const Time gap = began_ ? steady - seen_ : Time(0);
    began_ = true;
    seen_ = steady;
    if (gap > kGap || waited > kBehind) {
      stood_ += gap;
      untold_ += gap;
    }
    return steady - stood_ - (waited > kBehind ? Time(0) : waited);
  }

  // For how long it stood still since the last call that did not return 0: 0 while that is less
  // than `least`.
  [[nodiscard]] Time TakeStood(Time least) {
    return untold_ < least ? Time(0) : std::exchange(untold_, Time(0));
  }

 private:
  bool began_ = false;
  Time seen_{0}, stood_{0}, untold_{0};
};

}  // namespace ringmaster::coordinator
