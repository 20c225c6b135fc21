// A worker that serves a job, and whether it hangs. Values, owned by Run, loop thread only.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "common/ids.h"
#include "common/job/class_map.h"
#include "coordinator/logic/event.h"
#include "coordinator/logic/run/failure.h"
#include "ringmaster/v1/fleet.pb.h"

namespace ringmaster::coordinator {

// Whether a member's computation hangs although its process lives: its progress counter stands
// still, in a phase that waits for nobody, for much longer than it ever did in that phase. Owned
// by Member, loop thread only. Waiting for data accuses nobody: in phases that wait for other
// workers nothing is measured.
class ProgressWatch {
 public:
  static constexpr std::chrono::milliseconds kLeast{5'000};
  static constexpr int kFactor = 5;
  static constexpr int kEnough = 8;  // gaps that must be known before they count

  // A heartbeat came.
  void Observe(const std::string& phase, uint64_t progress, Now now);
  // What is known of another generation stays, but its last gap has no end.
  void Restart() { since_.reset(); }
  void Excuse(std::chrono::milliseconds late);

  // How long the member has stood still, when that is too long; `otherwise` is the limit while
  // the phase's gaps are not known.
  [[nodiscard]] std::optional<std::chrono::milliseconds> Frozen(std::chrono::milliseconds otherwise,
                                                                Now now) const;
  const std::string& phase() const { return phase_; }

 private:
  struct Gaps {
    std::chrono::milliseconds longest{0};
    int count = 0;
  };
  std::map<std::string, Gaps> gaps_;  // by phase
  std::string phase_;
  uint64_t progress_ = 0;
  std::optional<std::chrono::milliseconds> since_;  // the newest change
};

// A worker that serves a job: attached, and on its way into the ring, in it, or out of it. A
// value, owned by Run.

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
  std::string class_name;  // of its numerics class
  SessionId session{};
  Role role = Role::kInspecting;
  std::chrono::milliseconds since{0};       // in that role
  std::chrono::milliseconds last_heard{0};  // of Now::heard
  std::optional<v1::DatasetFacts> facts;
  v1::InitSourceFacts init;  // of a job that begins with other weights
  v1::ScriptFacts script;    // of a job of a script, whose `facts` are empty
  std::optional<v1::Prepared> prepared;

  GenerationId fence;  // the newest that it was sent
  bool owes = false;   // the acknowledgement of it
  Holding holding;
  // By which its state came about: as it said when it attached, or of the newest Start of a ring
  // that it is in. Null: it has S(0).
  std::shared_ptr<const job::ClassMaps> class_maps;
  uint64_t applied = 0;  // as far as is known
  GenerationId ran;      // the newest that it was part of, as far as is known
  bool leaving = false;
  std::string leaves_why;     // as it, or who drained it, said; empty: nobody did
  bool data_differs = false;  // its dataset is not the job's
  bool lost_told = false;     // that it is out of the ring, since its last acknowledgement
  bool adds = false;          // it had shards in a ring of the job, as far as is known

  // Of the current generation.
  bool joined = false;
  bool follows = false;  // in a ring without the state, until it says Joined
  std::optional<v1::JobFinished> finished;
  bool stopped = false;
  v1::Progress progress;               // the newest
  double shard_seconds = 0;            // that it took for one of its last shards; 0: not known
  uint64_t work = 0;                   // Heartbeat.progress
  uint64_t beat = 0;                   // Heartbeat.applied, of this generation
  std::string phase;                   // Heartbeat.phase, shortened
  std::optional<v1::DataFetch> fetch;  // Heartbeat.data_fetch, at most one a second
  std::chrono::milliseconds fetch_heard{0};
  std::optional<std::chrono::milliseconds> idle_since;  // it said so ever since
  ProgressWatch watch;

  const std::string& name() const { return attach.name(); }
  const std::string& incarnation() const { return attach.incarnation(); }
  // `worker w2 on host node-b`
  std::string called() const { return Called(attach.name(), attach.host()); }
  std::chrono::milliseconds silent_for(Now now) const { return now.heard - last_heard; }
};

// As far as it is shown: of an absurd one finite numbers and a short name.
[[nodiscard]] v1::DataFetch Shown(const v1::DataFetch& said);
// `fetching data: 120.0 MiB of 200.0 MiB, 95.0 MiB/s from worker a at 10.0.0.1:7701`
[[nodiscard]] std::string DescribeFetch(const v1::DataFetch& fetch);

// It broke the protocol; `what` goes on after its name, as in "sent a digest of 3 bytes".
[[nodiscard]] inline Fault Violation(const Member& member, const std::string& what) {
  return {Cause::kProtocolViolation, member.called() + " " + what, member.name()};
}

// When a worker that was evicted from a job, or could not take part in it, may join it again: after
// 1 s, doubled each time up to 5 min; one that was too slow after 5 min, up to an hour. Owned by
// Run, loop thread only. A new process of the same name has a clean record.
class Readmission {
 public:
  static constexpr std::chrono::milliseconds kFirst{1'000};
  static constexpr std::chrono::milliseconds kMost{300'000};

  static constexpr std::chrono::milliseconds kMostOfSlow{3'600'000};

  // Bars it from now on; for how long comes back.
  std::chrono::milliseconds Bar(const std::string& worker, const std::string& incarnation, Now now);
  std::chrono::milliseconds BarSlow(const std::string& worker, const std::string& incarnation,
                                    Now now);
  // It may join again from now on; the next bar is longer all the same.
  void Lift(const std::string& worker, Now now);
  // Who was only too slow may join again from now on.
  void LiftSlow(Now now);
  [[nodiscard]] bool Barred(const std::string& worker, const std::string& incarnation,
                            Now now) const;
  // Whether a bar ended since the last call.
  [[nodiscard]] bool TakeEnded(Now now);
  void Excuse(std::chrono::milliseconds late);

 private:
  struct Record {
    std::string incarnation;
    std::chrono::milliseconds until{0}, lasts{0};
    bool told = false;
    bool slow = false;
  };
  std::chrono::milliseconds Bar(const std::string& worker, const std::string& incarnation, Now now,
                                std::chrono::milliseconds first, std::chrono::milliseconds most);

  std::map<std::string, Record> records_;
};

// The members of a job, in the order in which they came, and the places of its ring, both found by
// name at once however many there are. It decides nothing.

// A worker's place in the current ring. After a restart its process is not known until it is back.
struct Place {
  std::string name, incarnation, host;
  std::vector<uint32_t> shards;
};

class Membership {
 public:
  using Iterator = std::vector<Member>::iterator;
  using ConstIterator = std::vector<Member>::const_iterator;

  [[nodiscard]] const std::vector<Member>& all() const { return members_; }
  Iterator begin() { return members_.begin(); }
  Iterator end() { return members_.end(); }
  [[nodiscard]] ConstIterator begin() const { return members_.begin(); }
  [[nodiscard]] ConstIterator end() const { return members_.end(); }
  [[nodiscard]] size_t size() const { return members_.size(); }
  [[nodiscard]] const Member& front() const { return members_.front(); }

  // `member` has another name than all others. Both move the others.
  Member& Add(Member member);
  void Remove(const std::string& name);
  [[nodiscard]] const Member* Find(const std::string& name) const;  // null: there is none
  [[nodiscard]] Member* Find(const std::string& name);

  [[nodiscard]] const std::vector<Place>& ring() const { return ring_; }
  // Names differ. The one before comes back.
  std::vector<Place> SetRing(std::vector<Place> ring);
  // The place of that name, if there is one, is that process's.
  void Recognize(const std::string& name, const std::string& incarnation);
  // Who has this place, of the ring or not; null: that process is not here.
  [[nodiscard]] const Member* At(const Place& place) const;
  [[nodiscard]] Member* At(const Place& place);
  // Of a member; nothing: it has no place, or there is no such member.
  [[nodiscard]] std::optional<size_t> RankOf(const std::string& name) const;

  // Of these members, by what each holds: the newest state's step; whether all that hold S(step)
  // evaluated what is due on it; whether `name` alone holds the newest one.
  using Names = std::vector<std::string>;
  [[nodiscard]] uint64_t HighestApplied(const Names& names) const;
  [[nodiscard]] bool Evaluated(const Names& names, uint64_t step) const;
  [[nodiscard]] bool HoldsAlone(const std::string& name, const Names& names) const;

 private:
  std::vector<Member> members_;
  std::unordered_map<std::string, size_t> numbers_;  // of members
  std::vector<Place> ring_;
  std::unordered_map<std::string, size_t> ranks_;  // of places
};

}  // namespace ringmaster::coordinator
