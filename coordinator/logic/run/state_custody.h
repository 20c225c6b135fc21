// Where the newest state of a job is: with members, with workers that may come back, in a
// checkpoint; and from which of them the job goes on. Owned by Run, loop thread only. It decides
// who must save before it leaves, whether a lost holder is waited for or a checkpoint is searched
// for, and which step a ring begins with; it knows what is stored, asks nobody, and sends nothing.
//
// `committed` is always the newest step that every member has applied, as far as is known.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <optional>
#include <string>

#include "coordinator/logic/event.h"
#include "coordinator/logic/options.h"
#include "coordinator/logic/record.h"
#include "coordinator/logic/run/failure.h"
#include "coordinator/logic/run/member.h"
#include "ringmaster/v1/jobs.pb.h"

namespace ringmaster::coordinator {

class StateCustody {
 public:
  using Test = std::function<bool(const Member&)>;

  explicit StateCustody(const Options& options) : options_(options) {}

  // ---- who has it -------------------------------------------------------------------------------
  // Who has no more than one step less can compute the newest state. A checkpoint says what was
  // applied when progress was not heard of.
  [[nodiscard]] uint64_t NeededStep(uint64_t committed) const;
  // As far as is known.
  [[nodiscard]] bool Holds(const Member& member, uint64_t committed) const;
  // One of those who `may` be in the next ring says that it has it.
  [[nodiscard]] bool IsHere(const Membership& members, uint64_t committed, const Test& may) const;

  // ---- holders that are not here ----------------------------------------------------------------
  // It was lost with the newest state; the incarnation is empty when it is not known.
  void Lose(const std::string& worker, const std::string& incarnation) {
    lost_[worker] = incarnation;
  }
  // It is back with its state, or has nothing of it any more. True: it was waited for.
  bool Settle(const std::string& worker) { return lost_.erase(worker) > 0; }
  [[nodiscard]] bool Misses(const std::string& worker) const { return lost_.contains(worker); }
  // They have so long to come back; else, in Judge, from when they are missed on.
  void WaitUntil(std::chrono::milliseconds deadline) { deadline_ = deadline; }
  // A ring has it, and goes on.
  void OnRing();

  enum class Where : uint8_t {
    kHere,       // with a member, or in the checkpoint that was found
    kMayReturn,  // with one who is known, and is not here or not heard: it is waited for
    kGone,       // a checkpoint is to be searched for
  };
  [[nodiscard]] Where Judge(const Membership& members, uint64_t committed, const Test& may,
                            Now now);

  // ---- who saves it -----------------------------------------------------------------------------
  // Of those who leave the one that has the most which nobody who stays has, and no checkpoint;
  // nothing: they may go. Those who `answer` come first, `waits`: none does.
  struct Leaver {
    const Member* holder = nullptr;
    bool waits = false;
  };
  [[nodiscard]] std::optional<Leaver> FindLeaver(const Membership& members, uint64_t committed,
                                                 const Test& answers) const;
  void BeginSave(const std::string& worker);
  [[nodiscard]] const std::string& saver() const { return saver_; }
  // It is there, still leaves, and nobody who `may` be in the next ring has the state.
  [[nodiscard]] bool MustSave(const Membership& members, uint64_t committed, const Test& may) const;
  // It could not: how long until it is asked again. It has no limit, and a failure is no reason to
  // let the state go: the coordinator's disk may be full.
  struct Pause {
    std::chrono::milliseconds lasts{0};
    bool first = false;  // failure in a row
  };
  [[nodiscard]] Pause FailSave();

  // ---- checkpoints ------------------------------------------------------------------------------
  // One is stored; `digest` is hex, empty when it is not known.
  void OnKept(const v1::CheckpointRef& ref, const std::string& digest);
  // The newer ones are gone; this one is left, step 0: none.
  void ForgetKept(const v1::CheckpointRef& newest);
  [[nodiscard]] uint64_t kept_step() const { return kept_step_; }
  void set_kept_step(uint64_t step) { kept_step_ = step; }  // as the status had it
  // The one of the state that members finished with is there, or there is nothing to keep.
  [[nodiscard]] bool HasLast(uint64_t end_step) const {
    return end_step == 0 || (kept_step_ == end_step && !kept_manifest_.empty());
  }
  // It is the state that this member finished with.
  [[nodiscard]] Fault CheckLast(const Member& member) const;

  // A checkpoint is to be searched for; once.
  void Search() { search_ = true; }
  [[nodiscard]] bool searches() const { return search_; }
  [[nodiscard]] bool TakeSearch() { return std::exchange(search_, false); }
  // The answer. What did not verify says nothing about the state that can be had.
  void OnFound(const CheckpointFound& event, const std::string& job_id);
  // What was found, until somebody has it; null: nothing, or there was no search.
  [[nodiscard]] const CheckpointRecord* found() const {
    return restore_ && restore_->found ? &*restore_->found : nullptr;
  }
  [[nodiscard]] std::string found_digest() const {
    return restore_ ? restore_->digest : "";
  }  // hex
  // A search has ended, whatever it found: the job goes on from less than the newest state.
  [[nodiscard]] bool settles_for_less() const { return restore_.has_value(); }
  void DropRestore() { restore_.reset(); }
  // It could not be restored: whether another one may be searched for.
  [[nodiscard]] bool FailRestore();

  // K of a ring whose members hold at most `highest`; whether that comes from the checkpoint.
  [[nodiscard]] uint64_t StepFor(uint64_t highest) const;
  [[nodiscard]] bool Restores(uint64_t highest) const { return StepFor(highest) > highest; }

  void Excuse(std::chrono::milliseconds late) {
    if (deadline_) *deadline_ += late;
  }

 private:
  struct Restore {
    std::optional<CheckpointRecord> found;
    std::string digest;  // hex
  };

  const Options& options_;
  std::map<std::string, std::string> lost_;  // holders: incarnation
  std::optional<std::chrono::milliseconds> deadline_;
  std::string saver_;
  std::chrono::milliseconds save_pause_{0};  // after the newest failure to save; 0: none failed
  uint64_t kept_step_ = 0;                   // of the newest checkpoint
  std::string kept_manifest_;                // its SHA-256; empty when it is not known
  std::string kept_digest_;                  // hex, in it; likewise
  bool search_ = false;
  std::optional<Restore> restore_;  // until somebody has it
  int failed_restores_ = 0;
};

}  // namespace ringmaster::coordinator
