#include "tests/coordinator/logic/scenario.h"

#include <fmt/format.h>

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <sstream>
#include <stdexcept>
#include <vector>

#include "common/job/resolve.h"
#include "common/sha256.h"
#include "coordinator/logic/explain.h"
#include "coordinator/logic/logic.h"
#include "coordinator/logic/run/agreement.h"
#include "tests/coordinator/logic/scenario_bench.h"
#include "tests/coordinator/logic/scenario_command.h"
#include "tests/coordinator/logic/scenario_given.h"
#include "tests/coordinator/logic/scenario_page.h"
#include "tests/coordinator/logic/scenario_store.h"
#include "tests/coordinator/logic/scenario_uploads.h"
#include "tests/coordinator/logic/told.h"
#include "tests/support/action_queue.h"
#include "tests/support/cluster_messages.h"

namespace ringmaster::coordinator {
namespace {

using std::chrono::milliseconds;

class Player {
 public:
  explicit Player(const Telling& telling) : telling_(telling), page_(telling.everything) {
    SetLimits({});
    page_.Clear();
  }

  ~Player() { CountPhases(*logic_, telling_.taken); }

  // One line of a story.
  void Play(const std::string& line) {
    if (line.rfind("given ", 0) != 0) {
      page_.Begin(line);
      if (!line.empty() && line[0] != '#') PlayCommand(ParseCommand(line));
      return;
    }
    if (!telling_.everything) page_.Begin(line);
    page_.set_quiet(true);
    std::set<std::string> attached;
    for (const auto& [name, session] : sessions_) attached.insert(name);
    for (const std::string& each : Expand(line.substr(6), attached)) {
      if (telling_.everything) page_.Begin(each);
      PlayCommand(ParseCommand(each));
    }
    page_.set_quiet(false);
    const Command given = ParseCommand(line.substr(6));
    if (given.verb == "running") ExpectRunning(given.subject);
  }

  [[nodiscard]] std::string Text() { return page_.Text(); }

 private:
  using Verb = std::function<void(const Command&)>;

  void PlayCommand(const Command& command) {
    const auto verb = verbs_.find(command.verb);
    if (verb == verbs_.end()) throw std::runtime_error("unknown command: " + command.verb);
    PlayEach(verb->second, command);
    for (; !later_.empty(); later_.pop_front()) Step(later_.front());
    for (const Event& read : uploads_.TakeRead()) Step(read);
    for (; !later_.empty(); later_.pop_front()) Step(later_.front());
  }

  // `attach a,b,c`: the same of several.
  static void PlayEach(const Verb& verb, const Command& command) {
    if (command.subject.empty()) return verb(command);
    Command each = command;
    for (const std::string& name : NamesIn(command.subject)) {
      each.subject = name;
      verb(each);
    }
  }

  void ExpectRunning(const std::string& job) {
    const std::string state = StateName(views_[job].status.state());
    if (state != "RUNNING") throw std::runtime_error(job + " is not RUNNING, but " + state);
  }

  // A coordinator on what the store holds.
  void Boot() {
    store_.Open();
    if (logic_) CountPhases(*logic_, telling_.taken);
    logic_ = std::make_unique<Logic>(options_);
    sessions_.clear();
    workers_line_.clear();
    now_.steady += milliseconds(1000);
    CarryOut(logic_->Restore(store_.content(), now_));
  }

  // `limits max_jobs=2 lease=1000`: of the coordinator, before anything else.
  void SetLimits(const Command& command) {
    for (const auto& [name, value] : command.options) SetLimit(&options_, name, std::stoll(value));
    if (const std::string& name = telling_.stretched; !name.empty()) {
      SetLimit(&options_, name, 2 * GetLimit(&options_, name));
    }
    store_.Reset();
    page_.set_quiet(true);
    Boot();
    page_.set_quiet(false);
  }

  // What happens, from outside.
  void Step(const Event& event) {
    store_.Begin();
    Follow(event);
  }
  void Follow(const Event& event) { CarryOut(logic_->Step(event, now_)); }  // from a write

  void Say(const Command& command, const std::function<void(v1::WorkerMessage&)>& fill) {
    WorkerSaid said{sessions_.at(command.subject), {}};
    fill(said.message);
    Step(said);
  }

  void Tick() {
    store_.Begin();
    CarryOut(store_.Again());
    Step(coordinator::Tick{});
  }

  void Line(const std::string& text) { page_.Line(text); }

  // ---- events -----------------------------------------------------------------------------------

  void Open(const Command& command) {
    const SessionId session = sessions_[command.subject] = SessionId{++last_session_};
    names_[session] = command.subject;
    Step(SessionOpened{session});
  }

  void Attach(const Command& command) {
    Open(command);
    Say(command, [&](v1::WorkerMessage& message) {
      *message.mutable_attach() = ParseAttach(command, class_maps_);
      cores_[command.subject] = message.attach().cores();
    });
  }

  void Upload(const Command& command) {
    const auto session = sessions_.find(command.subject);
    const std::string job = command.Text("job", "j0001");
    Step(uploads_.Begin(command, session == sessions_.end() ? SessionId{} : session->second,
                        job_results_.contains(job) ? job_results_.at(job) : ""));
  }

  void Checkpoint(const Command& command) {
    Command by = command;
    by.subject = command.Text("by", command.subject);
    PlayEach([this](const Command& c) { Snapshot(c); }, by);
    Upload(command);
  }

  void Snapshot(const Command& command) {
    Say(command, [&](v1::WorkerMessage& message) {
      *message.mutable_snapshot_taken() = PlayedUploads::Snapshot(command);
    });
  }

  // Time goes by in ticks; the workers of alive=a,b send heartbeats, for job=j0001 if that is said.
  // phases=hidden: what grows meanwhile is not told. Their progress is progress=7, of grows=a more.
  void Wait(const Command& command) {
    const auto end = now_.steady + milliseconds(std::stoull(command.subject));
    const auto named = [&](const char* key) {
      const std::vector<std::string> names = NamesIn(command.Text(key, ""));
      return std::set<std::string>(names.begin(), names.end());
    };
    const std::set<std::string> alive = named("alive"), grows = named("grows");
    uint64_t progress = command.Number("progress", 0);
    shows_phases_ = !command.options.contains("phases");
    while (now_.steady < end) {
      now_.steady += milliseconds(100);
      for (const auto& [name, session] : sessions_) {
        if (!alive.contains(name)) continue;
        WorkerSaid said{session, {}};
        said.message.mutable_heartbeat()->set_job_id(command.Text("job", ""));
        said.message.mutable_heartbeat()->set_phase(command.Text("phase", ""));
        said.message.mutable_heartbeat()->set_progress(
            grows.contains(name) ? ++progress : command.Number("progress", 0));
        Step(said);
      }
      Tick();
    }
    shows_phases_ = true;
  }

  // `disk waits`, `disk fails`, `disk works`: files of uploads go to their place with the next
  // `disk works`, or cannot go there, or do.
  void SetDisk(const Command& command) {
    disk_ = command.subject;
    if (disk_ == "works") std::swap(later_, held_);
  }

  // The coordinator itself stands still.
  void Stall(const Command& command) {
    now_.steady += milliseconds(std::stoull(command.subject));
    Tick();
  }

  void Inspected(const Command& command) {
    Say(command, [&](v1::WorkerMessage& message) {
      *message.mutable_inspected() = ParseInspected(command, scripts_);
    });
  }

  void Prepared(const Command& command) {
    Say(command, [&](v1::WorkerMessage& message) {
      *message.mutable_prepared() = ParsePrepared(command, cores_[command.subject]);
    });
  }

  void Fenced(const Command& command) {
    Say(command,
        [&](v1::WorkerMessage& message) { *message.mutable_fence_ack() = ParseFenced(command); });
  }

  void Joined(const Command& command) {
    Say(command,
        [&](v1::WorkerMessage& message) { *message.mutable_joined() = ParseJoined(command); });
  }

  // `saved a`: it wrote its state; error="...": it could not.
  void Saved(const Command& command) {
    Say(command,
        [&](v1::WorkerMessage& message) { *message.mutable_state_saved() = ParseSaved(command); });
  }

  void Progress(const Command& command) {
    Say(command,
        [&](v1::WorkerMessage& message) { *message.mutable_progress() = ParseProgress(command); });
  }

  // `enters a phase=bind seconds=3.1`
  void Enters(const Command& command) {
    Say(command, [&](v1::WorkerMessage& message) {
      v1::PhaseEntered& said = *message.mutable_phase_entered();
      said.set_job_id(command.Text("job", "j0001"));
      said.set_phase(command.Text("phase", ""));
      said.set_seconds(command.Real("seconds", 0));
    });
  }

  void Finished(const Command& command) {
    Say(command, [&](v1::WorkerMessage& message) {
      *message.mutable_job_finished() = ParseFinished(command);
    });
  }

  void Failed(const Command& command) {
    Say(command, [&](v1::WorkerMessage& message) {
      v1::JobFailed& said = *message.mutable_job_failed();
      said.set_job_id(command.Text("job", "j0001"));
      *said.mutable_generation() = ParseGeneration(command.Text("generation", "1.1"));
      said.set_step(command.Number("step", 0));
      said.set_reason(command.Text("reason", ""));
      said.set_code(ParseCode(command));
    });
  }

  void Suspects(const Command& command) {
    Say(command, [&](v1::WorkerMessage& message) {
      *message.mutable_suspicion() = ParseSuspicion(command);
    });
  }

  void Heartbeat(const Command& command) {
    Say(command, [&](v1::WorkerMessage& message) {
      *message.mutable_heartbeat() = ParseHeartbeat(command);
    });
  }

  void Measured(const Command& command) {
    const v1::MeasureRing& told = measure_[sessions_.at(command.subject)];
    Say(command, [&](v1::WorkerMessage& message) {
      *message.mutable_ring_measured() = ParseMeasured(command, command.subject, told);
    });
  }

  // `start j0001 on=a,b generation=1.1`: both answer everything up to Start.
  void StartJob(const Command& command) {
    const std::vector<std::string> workers = NamesIn(command.Text("on", "a"));
    for (const auto& phase : {&Player::Inspected, &Player::Prepared, &Player::Fenced}) {
      for (const std::string& name : workers) {
        Command each = command;
        each.subject = name;
        each.options["job"] = command.subject;
        (this->*phase)(each);
      }
    }
  }

  // ---- what a client may ask --------------------------------------------------------------------

  void Why(const Command& command) {
    const v1::WhyResponse why = Explain(views_.at(command.subject));
    Line(fmt::format("why {}: {}", StateName(why.state()), why.reason()));
    if (why.has_failure()) {
      const v1::Failure& f = why.failure();
      Line(fmt::format("why failure: {} worker={} host={} step={} phase={}", f.word(), f.worker(),
                       f.host(), f.step(), f.phase()));
    }
    for (const std::string& advice : why.advice()) Line("why advice: " + advice);
  }

  void Events(const Command& command) {
    for (const v1::Event& event : views_.at(command.subject).events.all()) {
      if (event.number() <= command.Number("after", 0)) continue;
      Line(fmt::format("event {} {} {} {}: {}", event.number(), event.type(), event.severity(),
                       event.subject(), event.message()));
    }
  }

  // What the other lines do not show.
  void ShowStatus(const Command& command) {
    for (const std::string& line : Told(views_.at(command.subject))) Line(line);
  }

  // ---- actions ----------------------------------------------------------------------------------

  void CarryOut(Actions actions) {
    queue_.CarryOut(std::move(actions), [this](const Action& action) {
      std::visit([this](const auto& a) { Do(a); }, action);
    });
  }

  void Do(const coordinator::Send& action) {
    const v1::CoordinatorMessage& told = action.message;
    if (told.has_prepare()) {
      const v1::Prepare& prepare = told.prepare();
      job_results_[prepare.job_id()] = Hex(job::ResultDigest(prepare.job().result()));
      class_maps_[prepare.job_id()] = prepare.job().result().class_maps();
    }
    if (told.has_start()) class_maps_[told.start().job_id()] = told.start().class_maps();
    if (told.has_measure_ring()) measure_[action.session] = told.measure_ring();
    if (told.inspect().has_script()) scripts_.insert(told.inspect().job_id());
    page_.Send(names_[action.session], Told(told));
  }

  void Do(const Admit& action) {
    v1::CoordinatorMessage message;
    *message.mutable_attached() = action.attached;
    Do(coordinator::Send{action.session, message});
  }

  void Do(const AdmitUpload& action) { later_.emplace_back(uploads_.Verified(action.upload)); }

  void Do(const PlaceUpload& action) {
    Line(uploads_.Called(action.upload) + " is confirmed");
    (disk_ == "waits" ? held_ : later_).emplace_back(uploads_.Placed(action.upload, disk_));
  }

  void Do(const EndUpload& action) {
    Line(uploads_.Called(action.upload) + ": " + Print(store_.IfStored(action.refusal)));
  }

  void Do(const EndBench& action) {
    Line(fmt::format("bench {}: {}{}", static_cast<uint64_t>(action.bench), Print(action.refusal),
                     Told(action.report)));
  }

  void Do(const CloseSession& action) {
    Line(fmt::format("close {}: {}", names_[action.session], Print(action.refusal)));
  }

  void Do(const InsertJob& action) {
    const Status stored = store_.Insert(action.record);
    Line(fmt::format("insert {}{}", action.record.id(), Failing()));
    Follow(JobInserted{action.record, stored});
  }

  void Do(const InsertCheckpoint& action) {
    const Status stored = store_.Insert(action.record);
    Line(fmt::format("insert checkpoint {} step {}{}", action.record.job_id,
                     action.record.ref.step(), Failing()));
    Follow(CheckpointInserted{action.upload, action.record, action.digest, stored});
  }

  void Do(SaveJob action) {
    const std::string& id = action.record.id();
    const std::string text = fmt::format("save {} {}", id, StateName(action.record.status.state()));
    if (!store_.Save(action).ok()) return Line(text + Failing());
    page_.Line("saves", text);
    if (const std::optional<JobView> view = store_.Release(id)) Do(PublishJob{*view});
    AnswerSaves();
  }

  void AnswerSaves() {
    if (const auto saved = store_.TakeAsked()) Follow(JobSaved{*saved});
  }

  void Do(const ReadBack& action) { Line(uploads_.Read(action)); }
  void Do(const RemoveFiles&) {}  // it follows from the removal in the store

  void Do(const RemoveCheckpoint& action) {
    const Status stored = store_.Remove(action.record);
    Line(fmt::format("remove checkpoint {} step {}{}", action.record.job_id,
                     action.record.ref.step(), Failing()));
    later_.emplace_back(CheckpointRemoved{action.record, stored});
  }

  void Do(const RemoveJobs& action) {
    Line("remove" + Told(action) + Failing());
    Follow(JobsRemoved{action.jobs, store_.Remove(action.jobs)});
  }
  void Do(const ForgetJob& action) { Line("forget " + action.job_id); }

  void Do(const SaveDrain& action) {
    const DrainRecord& drain = action.record;
    (void)store_.Save(drain);
    Line(fmt::format("save {} {}{}", drain.worker,
                     drain.incarnation.empty() ? "resumed" : "drained", Failing()));
  }

  // Steps alone are written down in no story.
  void Do(const SaveMetrics& action) {
    if (!action.batch.epochs.empty() || action.batch.forget_after) Line(Told(action) + Failing());
  }

  void Do(const RaiseTerm& action) {
    const Status stored = store_.Raise(action.term);
    Line(fmt::format("raise the term to {}{}", action.term, Failing()));
    if (stored.ok()) Follow(TermRaised{action.term});
  }

  // Only when state, step, checkpoints or phases changed: the reasons are in the notes.
  void Do(const PublishJob& action) {
    if (store_.Withholds(action.view)) return;
    const v1::JobStatus& status = action.view.status;
    const std::string text = Told(status, shows_phases_);
    views_[status.job_id()] = action.view;
    std::string& last = shown_[status.job_id()];
    if (last != text) Line(text);
    last = text;
  }

  void Do(const PublishWorkers& action) {
    const std::string text = "workers:" + Told(action.workers);
    if (text != workers_line_) Line(text);
    workers_line_ = text;
  }

  void Do(const Reply& action) {
    Line(fmt::format("reply {}{}{}", Print(store_.IfStored(action.refusal)),
                     action.job_id.empty() ? "" : " " + action.job_id,
                     action.existed ? " (existed)" : ""));
  }

  void Do(const FindCheckpoint& action) {
    std::string text = "find a checkpoint for " + action.job_id + " among";
    for (const CheckpointRecord& candidate : action.candidates) {
      text += fmt::format(" {}/{}", candidate.job_id, candidate.ref.step());
    }
    Line(text);
  }

  void Do(const Note& action) {
    page_.Line("notes", fmt::format("note {} {}", action.subject, action.text));
  }

  std::string Print(const Refusal& refusal) const { return Told(refusal, job_results_); }

  // Behind what was to be written.
  [[nodiscard]] const char* Failing() const { return store_.works() ? "" : " (the store fails)"; }

  const std::map<std::string, Verb> verbs_ = {
      {"open", [this](const Command& c) { Open(c); }},
      {"attach", [this](const Command& c) { Attach(c); }},
      {"submit", [this](const Command& c) { Step(ParseSubmit(c)); }},
      {"cancel", [this](const Command& c) { Step(CancelAsked{JobId(c.subject)}); }},
      {"remove",
       [this](const Command& c) {
         Step(RemoveAsked{JobId(c.subject), "local"});
       }},
      {"start", [this](const Command& c) { StartJob(c); }},
      {"inspected", [this](const Command& c) { Inspected(c); }},
      {"prepared", [this](const Command& c) { Prepared(c); }},
      {"fenced", [this](const Command& c) { Fenced(c); }},
      {"joined", [this](const Command& c) { Joined(c); }},
      {"saved", [this](const Command& c) { Saved(c); }},
      {"drain",  // resume=yes: it takes jobs again
       [this](const Command& c) {
         Step(DrainAsked{c.subject, c.options.contains("resume")});
       }},
      {"found", [this](const Command& c) { Step(ParseFound(c)); }},
      {"reads", [this](const Command& c) { uploads_.LetReadsWait(c.subject == "wait"); }},
      {"damage", [this](const Command& c) { uploads_.Damage(c.Number("step", 0)); }},
      {"enters", [this](const Command& c) { Enters(c); }},
      {"why", [this](const Command& c) { Why(c); }},
      {"events", [this](const Command& c) { Events(c); }},
      {"status", [this](const Command& c) { ShowStatus(c); }},
      {"progress", [this](const Command& c) { Progress(c); }},
      {"dropped",
       [this](const Command& c) {
         Say(c, [&](v1::WorkerMessage& m) { *m.mutable_checkpoints_dropped() = ParseDropped(c); });
       }},
      {"finished", [this](const Command& c) { Finished(c); }},
      {"stopped",
       [this](const Command& c) {
         Say(c, [&](v1::WorkerMessage& m) {
           m.mutable_job_stopped()->set_job_id(c.Text("job", "j0001"));
         });
       }},
      {"failed", [this](const Command& c) { Failed(c); }},
      {"suspects", [this](const Command& c) { Suspects(c); }},
      {"heartbeat", [this](const Command& c) { Heartbeat(c); }},
      {"leaving",
       [this](const Command& c) {
         Say(c, [&](v1::WorkerMessage& m) { m.mutable_leaving()->set_reason("told to stop"); });
       }},
      {"broken",
       [this](const Command& c) {
         Step(SessionClosed{sessions_.at(c.subject), "connection lost"});
       }},
      {"bench", [this](const Command& c) { Step(ParseBench(c)); }},
      {"hangup", [this](const Command& c) { Step(BenchDropped{ParseBench(c).bench}); }},
      {"measured", [this](const Command& c) { Measured(c); }},
      {"upload", [this](const Command& c) { Upload(c); }},
      {"snapshot", [this](const Command& c) { Snapshot(c); }},
      {"checkpoint", [this](const Command& c) { Checkpoint(c); }},
      {"wait", [this](const Command& c) { Wait(c); }},
      {"stall", [this](const Command& c) { Stall(c); }},
      {"graph", [this](const Command& c) { Step(GraphAsked{JobId(c.subject)}); }},
      {"fetch",
       [this](const Command& c) {
         Step(FetchAsked{c.subject, JobId(c.Text("job", "j0001"))});
       }},
      {"disk", [this](const Command& c) { SetDisk(c); }},
      {"store",
       [this](const Command& c) {
         store_.set(c.subject);
         AnswerSaves();
       }},
      {"show", [this](const Command& c) { page_.Show(c.subject, true); }},
      {"hide", [this](const Command& c) { page_.Show(c.subject, false); }},
      {"limits", [this](const Command& c) { SetLimits(c); }},
      {"restart", [this](const Command&) { Boot(); }},
  };

  const Telling telling_;
  Options options_;
  std::unique_ptr<Logic> logic_;
  testing::ActionQueue queue_;
  PlayedStore store_;
  Now now_;
  uint64_t last_session_ = 0;
  PlayedUploads uploads_;
  std::string disk_ = "works";
  std::deque<Event> later_, held_;  // of the disk thread; while it waits
  std::map<std::string, SessionId> sessions_;
  std::map<SessionId, std::string> names_;
  std::map<SessionId, v1::MeasureRing> measure_;  // the newest that each was told
  std::map<std::string, uint64_t> cores_;
  std::map<std::string, std::string> job_results_;
  std::set<std::string> scripts_;                     // jobs that run one
  std::map<std::string, job::ClassMaps> class_maps_;  // by job
  std::map<std::string, std::string> shown_;
  std::map<std::string, JobView> views_;
  bool shows_phases_ = true;
  std::string workers_line_;
  Page page_;
};

}  // namespace

std::string PlayScenario(const std::string& text, const Telling& telling) {
  Player player(telling);
  std::string line;
  for (std::istringstream lines(text); std::getline(lines, line);) {
    if (line.rfind("  ", 0) == 0) continue;
    try {
      player.Play(line);
    } catch (const std::exception& error) {
      throw std::runtime_error("`" + line + "`: " + error.what());
    }
  }
  return player.Text();
}

}  // namespace ringmaster::coordinator
