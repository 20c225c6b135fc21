// One measurement of the ring of workers without a job: who is told to measure what, and what comes
// of it. Owned by Logic, loop thread only; it reads no clock and knows no session but its members'.
//
//   kLinks ──every link──► kSums ──every member──► kOver
//      └───────── a fault ────┴──────► kEnding ──►──┘
//
// Each ring is a stage with a generation of its own: first one of two members for each link, one
// after the other, then all of them. A fault ends the stage: those who still measure are told so,
// and their answers waited for, so that nobody is free before it is idle. Where the links alone are
// asked for (`ringctl check`), a member's fault is what is found out, and the next link follows.
#pragma once

#include <chrono>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "coordinator/logic/action.h"
#include "coordinator/logic/event.h"
#include "coordinator/logic/options.h"
#include "coordinator/logic/record.h"
#include "ringmaster/v1/bench.pb.h"

namespace ringmaster::coordinator {

class Bench {
 public:
  struct Member {
    SessionId session{};
    v1::BenchMember self;

    const std::string& name() const { return self.name(); }
  };
  enum class Phase { kLinks, kSums, kEnding, kOver };

  // `request` is complete and checked; `members`, at least two, are in ring order. `options` and
  // `generations` outlive it.
  Bench(BenchId id, v1::AllReduceRequest request, std::vector<Member> members,
        const Options& options, GenerationSource& generations);

  void Begin(Now now, Actions& actions);
  // What a member says; of another stage it is ignored.
  void OnMeasured(const std::string& name, const v1::RingMeasured& said, Now now, Actions& actions);
  void OnLost(const std::string& name, const std::string& why, Now now, Actions& actions);
  // Somebody outside ends it.
  void Stop(const Refusal& why, Now now, Actions& actions);
  void OnTick(Now now, Actions& actions);
  // The coordinator itself was late by `late`.
  void Excuse(std::chrono::milliseconds late) { deadline_ += late; }

  [[nodiscard]] BenchId id() const { return id_; }
  [[nodiscard]] Phase phase() const { return phase_; }
  [[nodiscard]] const std::vector<Member>& members() const { return members_; }
  // Of members that did not answer EndMeasuring in time: to be closed, which ends it.
  [[nodiscard]] std::vector<SessionId> FindOverdue(Now now) const;
  // Once it is over.
  [[nodiscard]] const Refusal& refusal() const { return fault_; }
  [[nodiscard]] v1::AllReduceReport TakeReport() { return std::move(report_); }

 private:
  // The more certain one is told: a neighbour's end is the end of somebody else.
  enum class Certainty { kNone, kByNeighbour, kItsOwn, kSeenHere };

  void BeginStage(Now now, Actions& actions);
  void EndStage(Now now, Actions& actions);
  void Fail(Certainty certainty, Refusal fault, Now now, Actions& actions);
  // From `members_[from]` to `members_[to]`.
  struct Link {
    size_t from, to;
  };
  [[nodiscard]] static std::vector<Link> LinksOf(const v1::AllReduceRequest& request, size_t count);
  void KeepLink();
  // Of links alone: what those of this stage, there and back, fail at. The way back has no stage of
  // its own then.
  void KeepBroken();
  // Tells those who still measure to end.
  void EndOthers(const std::string& reason, Now now, Actions& actions);
  // What is wrong with what a member measured; empty when nothing is.
  [[nodiscard]] std::string Judge(const std::string& name, const v1::RingMeasured& said) const;
  // Its place in the ring of this stage.
  [[nodiscard]] size_t PlaceOf(const std::string& name) const;
  [[nodiscard]] std::string NamesOfAsked() const;

  const BenchId id_;
  const v1::AllReduceRequest request_;
  const std::vector<Member> members_;
  const std::vector<Link> links_;
  const Options& options_;
  GenerationSource& generations_;

  Phase phase_ = Phase::kLinks;
  GenerationId generation_;                           // of the stage
  std::vector<Member> stage_;                         // its members, in ring order
  size_t link_ = 0;                                   // in kLinks: of links_
  bool broken_ = false;                               // in kLinks: a member said an error
  std::map<std::string, SessionId> asked_;            // who has not answered yet
  std::map<std::string, v1::RingMeasured> measured_;  // in this stage
  std::chrono::milliseconds deadline_{0};             // of the stage
  Certainty certainty_ = Certainty::kNone;
  Refusal fault_;
  v1::AllReduceReport report_;
};

// The rows of a report of `request`, from what every member, in ring order, measured: a round's
// time is that of its slowest member. Pure.
void FillRows(const v1::AllReduceRequest& request, const std::vector<v1::RingMeasured>& measured,
              v1::AllReduceReport* report);

}  // namespace ringmaster::coordinator
