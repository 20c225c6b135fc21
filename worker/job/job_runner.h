// The job thread: carries out what the logic decided about a job - inspect, prepare, run, deliver,
// drop - or without one - measure a ring - one after the other, and posts how each ended. Owns the
// job's dataset and trainer, and offers its state to other workers. Submit, Cancel and ForgetCopies
// from the loop thread, heartbeat() from any thread. It decides nothing.
#pragma once

#include <grpcpp/channel.h>

#include <atomic>
#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <thread>
#include <variant>

#include "common/bounded_queue.h"
#include "common/mutex.h"
#include "worker/backend/backend.h"
#include "worker/data/shard_loader.h"
#include "worker/job/generation_run.h"
#include "worker/job/job_data.h"
#include "worker/job/run_observer.h"
#include "worker/logic/action.h"
#include "worker/logic/event.h"
#include "worker/ring/grpc/ring_port.h"
#include "worker/script/script_job.h"
#include "worker/train/trainer.h"
#include "worker/transfer/state_service.h"

namespace ringmaster::worker {

struct JobRunnerOptions {
  WorkerId name;
  std::string incarnation;
  std::string data_root;  // for weights that a job begins with
  std::vector<CoreOptions> cores;
  InputOptions input;
  script::ScriptJobOptions script;
  Dialer dialer;  // to workers that have a state
  // Of the newest session; empty: there was none yet. Asked on any thread.
  std::function<std::string()> ticket = []() { return std::string(); };
  // Told when a job begins to be served, and when it ends; the next one may have begun by then.
  std::function<void(const JobId&)> begins = [](const JobId&) {};
  std::function<void(const JobId&)> ended = [](const JobId&) {};
  // Told behind the end of a job that this process can compute no more, and why.
  std::function<void(const Status&)> lost = [](const Status&) {};
};

class JobRunner {
 public:
  using Task = std::variant<InspectDataset, PrepareJob, RunJob, DeliverState, CheckHeldState,
                            DropJob, MeasureRing>;

  // `backend`, `port`, `states` and `data` outlive it; `post` must not block.
  JobRunner(JobRunnerOptions options, Backend* backend, ring::RingPort* port, StateService* states,
            JobData* data, std::shared_ptr<grpc::Channel> coordinator,
            std::function<void(Event)> post);
  ~JobRunner();

  void Start();
  void Submit(Task task);
  // Ends the run that was submitted last, also one that has not begun.
  void Cancel(const std::string& reason, RunStop when);
  // Ends what the InspectDataset that was submitted last waits for.
  void EndInspection();
  // Ends what the job that was submitted last waits for on its devices, which it cannot use any
  // more then: what is compiled, and what is brought up again; a shard that is computed runs to its
  // end, but for a script's, which need not have one.
  void EndWaits();
  // Ends the MeasureRing that was submitted last.
  void EndMeasuring();
  // The checkpoint of this step is durable.
  void ForgetCopies(uint64_t step);
  // Cancels, drops every task and joins the thread. Idempotent.
  void Stop();

  [[nodiscard]] v1::Heartbeat heartbeat() const;

 private:
  void Loop();
  // A job is served from now on: heartbeats, logs and peers who lack its data know it.
  void Begin(const InspectDataset& task);
  void Do(const InspectDataset& task);
  void InspectData(const InspectDataset& task, InspectDone* done);
  void InspectScript(const InspectDataset& task, InspectDone* done);
  void Do(const PrepareJob& task);
  void Do(const RunJob& task);
  void Do(const DeliverState& task);
  void Do(const CheckHeldState& task);
  void Do(const DropJob& task);
  void Do(const MeasureRing& task);
  [[nodiscard]] StatusOr<std::shared_ptr<const InitWeights>> FindInit(const v1::InitSource& source);
  [[nodiscard]] std::shared_ptr<Trainer> trainer() const;
  [[nodiscard]] std::stop_token fetch_stop() const;
  [[nodiscard]] std::stop_token devices_stop() const;
  [[nodiscard]] UploadRights Rights() const;

  const JobRunnerOptions options_;
  Backend* const backend_;
  StateService* const states_;
  JobData* const data_;
  const std::function<void(Event)> post_;
  StartPhases phases_;
  const RunSurroundings surroundings_;

  // Job thread only.
  std::shared_ptr<const Dataset> dataset_;
  std::shared_ptr<const InitWeights> init_;    // until the job is prepared
  std::unique_ptr<script::ScriptJob> script_;  // outlives the trainer
  StateMark mark_;                             // of the trainer's state

  std::atomic<bool> training_ = false;   // a step loop runs
  std::atomic<bool> of_script_ = false;  // the job that is held

  BoundedQueue<Task> tasks_{16};

  mutable Mutex mu_;
  JobId job_ ABSL_GUARDED_BY(mu_);
  GenerationId generation_ ABSL_GUARDED_BY(mu_);
  std::shared_ptr<Trainer> trainer_ ABSL_GUARDED_BY(mu_);
  RunStops run_ ABSL_GUARDED_BY(mu_);               // of the run submitted last
  std::stop_source delivery_ ABSL_GUARDED_BY(mu_);  // of the DeliverState submitted last
  std::stop_source fetch_ ABSL_GUARDED_BY(mu_);     // of the InspectDataset submitted last
  std::stop_source devices_ ABSL_GUARDED_BY(mu_);   // likewise, of all that its cores do
  std::stop_source bench_ ABSL_GUARDED_BY(mu_);     // of the MeasureRing submitted last

  std::jthread thread_;  // "job"
};

}  // namespace ringmaster::worker
