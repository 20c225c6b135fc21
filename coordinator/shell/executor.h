// Between the logic and the world: takes events, calls Step, carries out the actions in order,
// behind the commits that action.h says, and tries again what could not be stored. It knows no
// thread, no gRPC and no real clock: the seams have those. Owned by ControlLoop, or by the
// simulator's coordinator; on one thread. It decides nothing, but for one rule: what cannot be
// stored is neither shown nor acknowledged.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/status.h"
#include "coordinator/logic/logic.h"
#include "coordinator/shell/group_commit.h"
#include "coordinator/shell/seams.h"
#include "coordinator/shell/store_trouble.h"

namespace ringmaster::coordinator {

class Executor {
 public:
  // The seams outlive it.
  Executor(const Options& options, const Seams& seams);

  // Takes over what the store holds: first call, once.
  void Restore(const Restored& restored);

  // When an event came, and whether the next one is handled at once.
  struct Arrival {
    Clock::Time came{0};
    Logic::Next next = Logic::Next::kMayWait;
  };
  void Handle(const Event& event, const Arrival& arrival);
  // For the events that ask: `done` runs once, here or behind commits; not at all where those never
  // end.
  void Ask(const Event& event, const Arrival& arrival, std::function<void(const Reply&)> done);
  // At least ten a second: handles a Tick, behind what is tried again. `oldest` is when the oldest
  // event came that still waits, or now.
  void OnTick(Clock::Time oldest);
  // The disk could not look: that does not mean that there is none. The next tick asks again.
  void PutOff(FindCheckpoint search) { put_off_.push_back(std::move(search)); }
  // The commit that Committer::Begin began has ended, its writes so.
  void Written(const std::vector<Status>& statuses) { commits_.Ended(statuses); }

  // Nothing waits for a commit.
  [[nodiscard]] bool idle() const { return commits_.idle(); }
  // For who waits until that is so: begins the next commit, unless one is under way. False: not
  // now.
  [[nodiscard]] bool BeginCommit() { return commits_.Begin(); }

 private:
  // Of the writes of one event: whether one failed.
  struct Outcome {
    bool failed = false;
  };
  // Who asked, when the event is a question.
  struct Asked {
    std::function<void(const Reply&)> done;
    bool answered = false;  // or will be
  };

  // What follows from a write that has ended.
  void Follow(const Event& event, const std::shared_ptr<Asked>& asked);
  void CarryOut(Actions actions);
  template <typename A>
  void CarryOutOne(A& action);
  // Writes.
  void Do(const InsertJob& action);
  void Do(const InsertCheckpoint& action);
  void Do(const RaiseTerm& action);
  void Do(const RemoveCheckpoint& action);
  void Do(const RemoveJobs& action);
  void Do(const SaveJob& action);
  void Do(const SaveMetrics& action);
  void Do(const SaveDrain& action);
  // The others.
  void Do(const Send& action) { seams_.streams->Send(action); }
  void Do(const Admit& action) { seams_.streams->Admit(action); }
  void Do(const CloseSession& action) { seams_.streams->Close(action); }
  void Do(const AdmitUpload& action) { seams_.streams->Admit(action); }
  void Do(const PlaceUpload& action) { seams_.disk->Place(action.upload); }
  void Do(const EndUpload& action);
  void Do(const EndBench& action) { seams_.streams->End(action); }
  void Do(const FindCheckpoint& action) { seams_.disk->Find(action); }
  void Do(const ReadBack& action) { seams_.disk->Read(action); }
  void Do(const RemoveFiles& action) { seams_.disk->Remove(action.path); }
  void Do(const ForgetJob& action);
  void Do(const PublishJob& action);
  void Do(const PublishWorkers& action) { seams_.board->PublishWorkers(action.workers); }
  void Do(const Reply& action);
  void Do(const Note& action);
  void SaveUnsaved();
  void OnSaved(const SaveJob& save, const Status& status);
  void OnMetricsSaved(const SaveMetrics& saved, const Status& status);
  // Of an event that came then.
  [[nodiscard]] Now ReadClocks(std::optional<Clock::Time> came = std::nullopt) const;
  [[nodiscard]] Status Judge(const Status& status, const std::string& what);
  [[nodiscard]] Refusal IfStored(const Refusal& refusal) const;

  const Seams seams_;
  Logic logic_;
  // Of the event being handled.
  std::shared_ptr<Outcome> outcome_;
  std::shared_ptr<Asked> asked_;  // null: it is no question
  // Changes that could not be stored yet, and the views that wait for them, by job.
  std::map<std::string, SaveJob> unsaved_;
  std::map<std::string, JobView> withheld_;
  std::map<std::string, MetricBatch> unsaved_metrics_;
  std::multiset<std::string> saving_, saving_metrics_;  // jobs, a time for each write on its way
  std::vector<FindCheckpoint> put_off_;                 // searches that the disk could not take
  std::set<std::string> removing_;                      // jobs, while their removal is on its way
  bool saving_unsaved_ = false;
  StoreTrouble trouble_;
  GroupCommit commits_;
};

}  // namespace ringmaster::coordinator
