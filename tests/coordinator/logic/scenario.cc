#include "tests/coordinator/logic/scenario.h"

#include <fmt/format.h>

#include <deque>
#include <functional>
#include <map>
#include <memory>
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
#include "tests/coordinator/logic/scenario_uploads.h"
#include "tests/coordinator/logic/told.h"
#include "tests/support/action_queue.h"
#include "tests/support/cluster_messages.h"

namespace ringmaster::coordinator {
namespace {

using std::chrono::milliseconds;

class Player {
 public:
  Player() { Boot(); }

  std::string Play(const Command& command) {
    out_.clear();
    const auto verb = verbs_.find(command.verb);
    if (verb != verbs_.end() && command.subject.find(',') != std::string::npos) {
      PlayEach(verb->second, command);
    } else if (verb == verbs_.end()) {
      throw std::runtime_error("unknown command: " + command.verb);
    } else {
      verb->second(command);
    }
    for (; !later_.empty(); later_.pop_front()) Step(later_.front());
    for (const Event& read : uploads_.TakeRead()) Step(read);
    for (; !later_.empty(); later_.pop_front()) Step(later_.front());
    return out_;
  }

 private:
  using Verb = std::function<void(const Command&)>;

  // `attach a,b,c`: the same of several.
  static void PlayEach(const Verb& verb, const Command& command) {
    std::stringstream list(command.subject);
    Command each = command;
    while (std::getline(list, each.subject, ',')) verb(each);
  }

  // A coordinator on what the store holds.
  void Boot() {
    ++stored_.term;
    logic_ = std::make_unique<Logic>(options_);
    sessions_.clear();
    workers_line_.clear();
    now_.steady += milliseconds(1000);
    CarryOut(logic_->Restore(stored_, now_));
  }

  void Step(const Event& event) { CarryOut(logic_->Step(event, now_)); }

  void Say(const Command& command, const std::function<void(v1::WorkerMessage&)>& fill) {
    WorkerSaid said{sessions_.at(command.subject), {}};
    fill(said.message);
    Step(said);
  }

  void Line(const std::string& text) { out_ += "  " + text + "\n"; }

  // ---- events -----------------------------------------------------------------------------------

  void Open(const Command& command) {
    const SessionId session = sessions_[command.subject] = SessionId{++last_session_};
    names_[session] = command.subject;
    Step(SessionOpened{session});
  }

  void Attach(const Command& command) {
    Open(command);
    Say(command, [&](v1::WorkerMessage& message) {
      v1::Attach& attach = *message.mutable_attach();
      const std::string name = command.Text("name", command.subject);
      attach = testing::MakeAttach(name);
      attach.set_incarnation(testing::MakeIncarnation(command.Text("incarnation", name)));
      attach.set_cores(static_cast<uint32_t>(command.Number("cores", 1)));
      cores_[command.subject] = attach.cores();
      attach.set_protocol(static_cast<uint32_t>(command.Number("protocol", kProtocolVersion)));
      attach.set_highest_term(command.Number("term", 0));
      attach.set_job_id(command.Text("job", ""));
      if (!attach.job_id().empty()) {
        *attach.mutable_generation() = ParseGeneration(command.Text("generation", "1.1"));
        attach.set_applied(command.Number("applied", 0));
        attach.set_digest(command.Text("digest", "d" + std::to_string(attach.applied())));
        for (uint64_t core = 0; core < attach.cores(); ++core) {
          attach.add_known_shard_sha256(command.Text("known", "known"));
        }
        if (const uint64_t step = command.Number("snapshot", 0); step > 0) {
          attach.add_snapshots()->set_step(step);
          attach.mutable_snapshots(0)->set_manifest_sha256(fmt::format("m{}", step));
        }
      }
      attach.set_host(command.Text("host", "node-" + name));
      attach.set_ring_address(command.Text("ring_address", attach.ring_address()));
      attach.mutable_numerics_class()->set_instruction_set(command.Text("class", "avx2"));
    });
  }

  void Submit(const Command& command) {
    SubmitAsked asked;
    asked.submit.set_idempotency_key(command.subject);
    v1::JobSpec& spec = *asked.submit.mutable_spec();
    spec = testing::MakeSpec();
    spec.set_batch(static_cast<uint32_t>(command.Number("batch", 8)));
    spec.set_shards(static_cast<uint32_t>(command.Number("shards", 4)));
    spec.set_steps(command.Number("steps", 10));
    const auto set = [&](const char* key, auto setter) {
      if (command.options.contains(key)) setter(static_cast<uint32_t>(command.Number(key, 0)));
    };
    set("min", [&](uint32_t v) { spec.mutable_workers()->set_min(v); });
    set("max", [&](uint32_t v) { spec.mutable_workers()->set_max(v); });
    if (const std::string mix = command.Text("mix", ""); !mix.empty())
      spec.mutable_workers()->set_mix(mix == "fixed" ? v1::MIX_FIXED : v1::MIX_FALLBACK);
    set("keep", [&](uint32_t v) { spec.mutable_checkpoint()->set_keep(v); });
    set("folds", [&](uint32_t v) { spec.mutable_validation()->set_folds(v); });
    set("patience", [&](uint32_t v) { spec.mutable_stop()->set_patience(v); });
    if (spec.has_stop()) spec.mutable_stop()->set_metric("test/loss");
    if (command.options.contains("continue")) {
      spec.mutable_continue_()->set_job(command.Text("continue", ""));
      set("step", [&](uint32_t v) { spec.mutable_continue_()->set_step(v); });
    }
    asked.submit.set_resume_job(command.Text("resume", ""));
    asked.submit.set_like_job(command.Text("like", ""));
    const bool of_other = command.options.contains("resume") || command.options.contains("like");
    if (of_other) asked.submit.clear_spec();
    Step(asked);
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
  // phases=hidden: what grows meanwhile is not written down. Their progress is progress=7, that of
  // grows=a grows.
  void Wait(const Command& command) {
    const auto end = now_.steady + milliseconds(std::stoull(command.subject));
    const std::string alive = "," + command.Text("alive", "") + ",";
    const std::string grows = "," + command.Text("grows", "") + ",";
    uint64_t progress = command.Number("progress", 0);
    shows_phases_ = !command.options.contains("phases");
    while (now_.steady < end) {
      now_.steady += milliseconds(100);
      for (const auto& [name, session] : sessions_) {
        if (alive.find("," + name + ",") == std::string::npos) continue;
        WorkerSaid said{session, {}};
        said.message.mutable_heartbeat()->set_job_id(command.Text("job", ""));
        said.message.mutable_heartbeat()->set_phase(command.Text("phase", ""));
        const bool works = grows.find("," + name + ",") != std::string::npos;
        said.message.mutable_heartbeat()->set_progress(works ? ++progress
                                                             : command.Number("progress", 0));
        Step(said);
      }
      Step(Tick{});
    }
    shows_phases_ = true;
  }

  // `drain a`, `drain a resume=yes`
  void Drain(const Command& command) {
    Step(DrainAsked{command.subject, command.options.contains("resume")});
  }

  // `found j0001 step=8`, of job=j0001 and with digest=d8 and sha=m8 unless it is said; without
  // step none verified. skipped="what is wrong with the newest|with the next one"
  void Found(const Command& command) {
    CheckpointFound found;
    found.job_id = command.subject;
    if (command.options.contains("step")) {
      CheckpointRecord& record = found.found.emplace();
      record.job_id = command.Text("job", command.subject);
      record.ref.set_step(command.Number("step", 0));
      record.ref.set_sha256(command.Text("sha", "m" + command.Text("step", "")));
      found.digest = HexOf(command.Text("digest", "d" + command.Text("step", "")));
    }
    std::stringstream list(command.Text("skipped", ""));
    for (std::string text; std::getline(list, text, '|');) found.skipped.push_back(text);
    Step(found);
  }

  // The coordinator itself stands still.
  void Stall(const Command& command) {
    now_.steady += milliseconds(std::stoull(command.subject));
    Step(Tick{});
  }

  void Inspected(const Command& command) {
    Say(command, [&](v1::WorkerMessage& message) {
      *message.mutable_inspected() = ParseInspected(command);
    });
  }

  void Prepared(const Command& command) {
    Say(command, [&](v1::WorkerMessage& message) {
      v1::Prepared& said = *message.mutable_prepared();
      said.set_job_id(command.Text("job", "j0001"));
      said.set_error(command.Text("error", ""));
      said.set_digest(command.Text("digest", "d0"));
      said.set_known_shard_seconds(command.Real("seconds", 0));
      for (uint64_t core = 0; core < command.Number("cores", cores_[command.subject]); ++core) {
        said.add_known_shard_sha256(command.Text("sha", "known"));
      }
    });
  }

  void Fenced(const Command& command) {
    Say(command, [&](v1::WorkerMessage& message) {
      v1::FenceAck& said = *message.mutable_fence_ack();
      said.set_job_id(command.Text("job", "j0001"));
      *said.mutable_generation() = ParseGeneration(command.Text("generation", "1.1"));
      said.set_applied(command.Number("applied", 0));
      said.set_digest(command.Text("digest", "d" + std::to_string(said.applied())));
      std::stringstream list(command.Text("folded", ""));
      for (std::string shard; std::getline(list, shard, ',');) {
        said.add_folded(static_cast<uint32_t>(std::stoul(shard)));
      }
      said.set_evaluated(command.options.contains("evaluated"));
      testing::AddDigests(command.Text("digests", ""), &said);
    });
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
      v1::JobFinished& said = *message.mutable_job_finished();
      said.set_job_id(command.Text("job", "j0001"));
      *said.mutable_generation() = ParseGeneration(command.Text("generation", "1.1"));
      said.set_applied(command.Number("applied", 10));
      said.set_digest(command.Text("digest", "d" + std::to_string(said.applied())));
      said.set_manifest_sha256(command.Text("manifest", ""));
      testing::AddDigests(command.Text("digests", ""), &said);
    });
  }

  void Stopped(const Command& command) {
    Say(command, [&](v1::WorkerMessage& message) {
      message.mutable_job_stopped()->set_job_id(command.Text("job", "j0001"));
    });
  }

  void Failed(const Command& command) {
    Say(command, [&](v1::WorkerMessage& message) {
      v1::JobFailed& said = *message.mutable_job_failed();
      said.set_job_id(command.Text("job", "j0001"));
      *said.mutable_generation() = ParseGeneration(command.Text("generation", "1.1"));
      said.set_step(command.Number("step", 0));
      said.set_reason(command.Text("reason", ""));
      said.set_state_differs(command.options.contains("differs"));
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
    std::vector<std::string> workers;
    std::stringstream list(command.Text("on", "a"));
    for (std::string name; std::getline(list, name, ',');) workers.push_back(name);
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
    if (action.message.has_prepare()) {
      const v1::Prepare& prepare = action.message.prepare();
      job_results_[prepare.job_id()] = Hex(job::ResultDigest(prepare.job().result()));
    }
    if (action.message.has_measure_ring()) {
      measure_[action.session] = action.message.measure_ring();
    }
    Line(fmt::format("send {}: {}", names_[action.session], Told(action.message)));
  }

  void Do(const Admit& action) {
    v1::CoordinatorMessage message;
    *message.mutable_attached() = action.attached;
    Do(coordinator::Send{action.session, message});
  }

  void Do(const AdmitUpload& action) { later_.emplace_back(uploads_.Verified(action.upload)); }

  void Do(const PlaceUpload& action) {
    Line(uploads_.Called(action.upload) + " is confirmed");
    later_.emplace_back(uploads_.Placed(action.upload));
  }

  void Do(const EndUpload& action) {
    Line(uploads_.Called(action.upload) + ": " + Print(action.refusal));
  }

  void Do(const EndBench& action) {
    Line(fmt::format("bench {}: {}{}", static_cast<uint64_t>(action.bench), Print(action.refusal),
                     Told(action.report)));
  }

  void Do(const CloseSession& action) {
    Line(fmt::format("close {}: {}", names_[action.session], Print(action.refusal)));
  }

  void Do(const InsertJob& action) {
    Line(fmt::format("insert {}{}", action.record.id(), store_works_ ? "" : " (the store fails)"));
    if (store_works_) stored_.jobs.push_back(action.record);
    Step(JobInserted{action.record, StoreStatus()});
  }

  void Do(const InsertCheckpoint& action) {
    Line(fmt::format("insert checkpoint {} step {}", action.record.job_id,
                     action.record.ref.step()));
    if (store_works_) Keep(action.record, stored_.checkpoints);
    Step(CheckpointInserted{action.upload, action.record, action.digest, StoreStatus()});
  }

  void Do(const SaveJob& action) {
    Line(fmt::format("save {} {}", action.record.id(), StateName(action.record.status.state())));
    for (JobRecord& job : stored_.jobs) {
      if (job.number == action.record.number) job = action.record;
    }
  }

  void Do(const ReadBack& action) { Line(uploads_.Read(action)); }
  void Do(const RemoveFiles&) {}  // it follows from the removal in the store

  void Do(const RemoveCheckpoint& action) {
    Line(fmt::format("remove checkpoint {} step {}", action.record.job_id,
                     action.record.ref.step()));
    if (store_works_)
      std::erase_if(stored_.checkpoints, [&](const CheckpointRecord& c) {
        return c.job_id == action.record.job_id && c.ref.step() == action.record.ref.step();
      });
    later_.emplace_back(CheckpointRemoved{action.record, StoreStatus()});
  }

  void Do(const SaveDrain& action) {
    const DrainRecord& drain = action.record;
    Line(
        fmt::format("save {} {}", drain.worker, drain.incarnation.empty() ? "resumed" : "drained"));
    std::erase_if(stored_.drains, [&](const DrainRecord& d) { return d.worker == drain.worker; });
    if (!drain.incarnation.empty()) stored_.drains.push_back(drain);
  }

  // Steps alone are written down in no story.
  void Do(const SaveMetrics& action) {
    if (!action.batch.epochs.empty() || action.batch.forget_after) Line(Told(action));
  }

  void Do(const RaiseTerm& action) {
    Line(fmt::format("raise the term to {}", action.term));
    stored_.term = action.term;
    Step(TermRaised{action.term});
  }

  // Only when state, step, checkpoints or phases changed: the reasons are in the notes.
  void Do(const PublishJob& action) {
    const v1::JobStatus& status = action.view.status;
    std::string text = fmt::format("show {} {} step {}/{}", status.job_id(),
                                   StateName(status.state()), status.step(), status.total_steps());
    if (status.has_checkpoint()) text += fmt::format(", checkpoint {}", status.checkpoint().step());
    if (status.has_best_checkpoint()) {
      text += fmt::format(", best {}", status.best_checkpoint().step());
    }
    if (shows_phases_) {
      for (const v1::StartPhase& phase : status.start_phases()) text += Told(phase);
    }
    views_[status.job_id()] = action.view;
    std::string& last = shown_[status.job_id()];
    if (last != text) Line(text);
    last = text;
  }

  void Do(const PublishWorkers& action) {
    std::string text = "workers:";
    for (const v1::WorkerStatus& worker : action.workers.workers()) {
      text += fmt::format(" {}={}", worker.name(), worker.state());
    }
    if (text != workers_line_) Line(text);
    workers_line_ = text;
  }

  void Do(const Reply& action) {
    Line(fmt::format("reply {}{}{}", Print(action.refusal),
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

  void Do(const Note& action) { Line(fmt::format("note {} {}", action.subject, action.text)); }

  std::string Print(const Refusal& refusal) const {
    if (refusal.status.ok()) return "OK";
    std::string message = Message(refusal.status);
    for (const auto& [job, result] : job_results_) {  // no story is about its bits
      const size_t at = message.find(result);
      if (at != std::string::npos) message.replace(at, result.size(), "that of " + job);
    }
    return fmt::format("{} {}: {}", absl::StatusCodeToString(refusal.status.code()), refusal.word,
                       message);
  }

  Status StoreStatus() const {
    return store_works_ ? absl::OkStatus() : absl::UnavailableError("no space left on the disk");
  }

  const std::map<std::string, Verb> verbs_ = {
      {"open", [this](const Command& c) { Open(c); }},
      {"attach", [this](const Command& c) { Attach(c); }},
      {"submit", [this](const Command& c) { Submit(c); }},
      {"cancel", [this](const Command& c) { Step(CancelAsked{JobId(c.subject)}); }},
      {"start", [this](const Command& c) { StartJob(c); }},
      {"inspected", [this](const Command& c) { Inspected(c); }},
      {"prepared", [this](const Command& c) { Prepared(c); }},
      {"fenced", [this](const Command& c) { Fenced(c); }},
      {"joined", [this](const Command& c) { Joined(c); }},
      {"saved", [this](const Command& c) { Saved(c); }},
      {"drain", [this](const Command& c) { Drain(c); }},
      {"found", [this](const Command& c) { Found(c); }},
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
      {"stopped", [this](const Command& c) { Stopped(c); }},
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
      {"store", [this](const Command& c) { store_works_ = c.subject == "works"; }},
      {"restart", [this](const Command&) { Boot(); }},
  };

  const Options options_;
  std::unique_ptr<Logic> logic_;
  testing::ActionQueue queue_;
  Restored stored_;
  bool store_works_ = true;
  Now now_;
  uint64_t last_session_ = 0;
  PlayedUploads uploads_;
  std::deque<Event> later_;  // of the disk thread
  std::map<std::string, SessionId> sessions_;
  std::map<SessionId, std::string> names_;
  std::map<SessionId, v1::MeasureRing> measure_;  // the newest that each was told
  std::map<std::string, uint64_t> cores_;
  std::map<std::string, std::string> job_results_;
  std::map<std::string, std::string> shown_;
  std::map<std::string, JobView> views_;
  bool shows_phases_ = true;
  std::string workers_line_;
  std::string out_;
};

}  // namespace

std::string PlayScenario(const std::string& text) {
  Player player;
  std::string told, line;
  for (std::istringstream lines(text); std::getline(lines, line);) {
    if (line.rfind("  ", 0) == 0) continue;
    told += line + "\n";
    if (!line.empty() && line[0] != '#') told += player.Play(ParseCommand(line));
  }
  return told;
}

}  // namespace ringmaster::coordinator
