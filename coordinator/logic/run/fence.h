// The change of a ring that is under way: the fence that was sent, whom it waits for, what each
// member owes, and which of its links are bad. Owned by Run, loop thread only. It decides who is
// waited for, who is silent, and who has to go for a bad link; it sends nothing, and who may be in
// the next ring for other reasons is Run's to say.
//
// A fence is under way exactly while the run's phase is kFencing (Run::Become).
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "common/ids.h"
#include "coordinator/logic/event.h"
#include "coordinator/logic/options.h"
#include "coordinator/logic/run/member.h"
#include "coordinator/logic/run/ring.h"
#include "ringmaster/v1/fleet.pb.h"

namespace ringmaster::coordinator {

// A member is lost: the step in hand is dropped. Nobody is: it is finished first.
enum class FenceWhen { kNow, kAtBoundary };

class Fence {
 public:
  explicit Fence(const Options& options) : options_(options) {}

  // ---- it begins, and ends ----------------------------------------------------------------------
  // A fence of `generation` to everybody who is ready and `may` be in it: they come back. Those who
  // owed nothing and are heard are waited for. One that replaces another waits for the same ones,
  // and keeps what was noticed first, and when.
  using Test = std::function<bool(const Member&)>;
  std::vector<const Member*> Begin(const GenerationId& generation, FenceWhen when,
                                   const std::string& reason, Membership& members, const Test& may,
                                   Now now);
  // The ring is formed, or is not to be: what is known of links stays.
  void End();
  // One more, who came meanwhile, gets the same; `waits`: for its acknowledgement, too.
  void Include(Member& member, bool waits);
  // A fence of its own for a member beside it, or while there is none.
  static void Owe(Member& member, const GenerationId& generation);
  // The answer to its newest fence.
  static void Acknowledge(Member& member, const v1::FenceAck& said);

  // ---- what it waits for ------------------------------------------------------------------------
  // Out of the ring, if it stays so. Of one that a neighbour accuses less is waited for: two of its
  // connections say the same.
  [[nodiscard]] bool Silent(const Member& member, Now now) const;
  // Everyone who was asked has acknowledged, or is out: gone, silent, or too late.
  [[nodiscard]] bool Over(const Membership& members, Now now) const;
  // A step that is to be finished does not end.
  [[nodiscard]] bool Overdue(Now now) const { return at_boundary() && now.steady >= deadline_; }
  // Asked, and still here: they owe it.
  [[nodiscard]] std::vector<std::string> Unanswered(const Membership& members) const;
  // Those who `may` be in the next ring, of this fence: the ring's members in its order, then
  // others, who holds more first.
  [[nodiscard]] std::vector<std::string> Answered(const Membership& members, const Test& may) const;

  // ---- links ------------------------------------------------------------------------------------
  // A member says that its neighbour is silent: it caused the fence that begins next.
  void Accuse(const std::string& accuser, const std::string& accused) {
    accusation_ = Accusation{accuser, accused};
  }
  void DropAccusation() { accusation_.reset(); }
  // It is out: if it comes back its links are tried again.
  void Forget(const std::string& worker) { suspicions_.Forget(worker); }
  struct BadLink {
    std::string out, why;  // who has to go for it
  };
  // Once a fence, of the accusation that caused it: when both ends of the link have answered and
  // nobody else was lost, the link is bad. It is not used, or, where that cannot be, or is so
  // again, one of them goes.
  [[nodiscard]] std::optional<BadLink> JudgeAccusation(const std::vector<std::string>& answered,
                                                       const Membership& members, Now now);
  // `names` so that no bad link is used; else who has to go first for one that was bad before.
  struct Seating {
    std::vector<std::string> ring;
    std::string out;  // empty: it is a ring
  };
  [[nodiscard]] Seating Seat(const std::vector<std::string>& names, const Membership& members,
                             Now now) const;

  // ---- while it is under way --------------------------------------------------------------------
  [[nodiscard]] bool under_way() const { return under_way_; }
  [[nodiscard]] bool at_boundary() const { return under_way_ && when_ == FenceWhen::kAtBoundary; }
  [[nodiscard]] const GenerationId& generation() const { return generation_; }
  [[nodiscard]] FenceWhen when() const { return when_; }
  [[nodiscard]] const std::string& reason() const { return reason_; }  // what was noticed first
  [[nodiscard]] int64_t unix_ms() const { return unix_ms_; }           // begun
  [[nodiscard]] std::chrono::milliseconds lasted(Now now) const { return now.steady - begun_; }
  void Excuse(std::chrono::milliseconds late) { deadline_ += late; }

 private:
  const Options& options_;
  bool under_way_ = false;
  GenerationId generation_;
  FenceWhen when_ = FenceWhen::kNow;
  std::string reason_;
  std::set<std::string> asked_;  // whose acknowledgement is waited for
  std::chrono::milliseconds begun_{0};
  std::chrono::milliseconds deadline_{0};  // who has not acknowledged then is out
  int64_t unix_ms_ = 0;
  std::optional<Accusation> accusation_;  // that caused it
  Suspicions suspicions_;
};

}  // namespace ringmaster::coordinator
