// The data plane of one simulated worker: takes the tasks of the job thread one after the other
// (inspect, prepare, run, deliver, drop), as worker/job/job_runner does, and serves what other
// workers ask for. Owned by a SimWorker; it decides nothing.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <variant>

#include "ringmaster/v1/fleet.pb.h"
#include "tests/sim/toy_run.h"

namespace ringmaster::sim {

enum class FetchAnswer { kHere, kNotYet, kGone };

class ToyTrainer {
 public:
  using Task = std::variant<worker::InspectDataset, worker::PrepareJob, worker::RunJob,
                            worker::DeliverState, worker::CheckHeldState, worker::DropJob>;
  struct Self {
    Cluster* cluster = nullptr;
    LifePtr life;
    int host = 0;
    std::string name, incarnation;
    uint32_t cores = 1;
    bool odd = false;          // computes other bits: its known shard differs
    std::string instructions;  // of its class
    bool follows = false;      // its state is large
  };

  ToyTrainer(Self self, std::function<void(worker::Event)> post);
  ~ToyTrainer();

  void Submit(Task task);
  // Of the run that was submitted last, also one that has not begun.
  void Cancel(worker::RunStop when);
  void ForgetCopies(uint64_t step);
  [[nodiscard]] v1::Heartbeat heartbeat() const;
  // Nothing that is computed here ends before then.
  void HangUntil(Time until) { hung_until_ = until; }

  // What comes in from other workers.
  void AcceptLink(const ConnectionPtr& connection, const Hello& hello);
  void ReceiveFrame(const Frame& frame);
  using OnFetched = std::function<void(FetchAnswer answer, uint64_t step, StateHash state)>;
  void AcceptFetch(const ConnectionPtr& connection, const JobId& job, uint64_t step,
                   const OnFetched& answer);

  // Of the run that is on; null when there is none.
  [[nodiscard]] ToyRing* ring() { return run_ == nullptr ? nullptr : run_->ring(); }
  [[nodiscard]] const ToyJob* job() const { return job_ ? &*job_ : nullptr; }
  // Of the generation that it computes steps of; null when no run is on.
  [[nodiscard]] const v1::Start* running() const;
  // That its run is at, or else that it holds the state of; there is a job.
  [[nodiscard]] uint64_t step() const;

 private:
  void Next();
  void Done();
  void Do(const worker::InspectDataset& task);
  void Do(const worker::PrepareJob& task);
  void Do(const worker::RunJob& task);
  void Do(const worker::DeliverState& task);
  void Do(const worker::CheckHeldState& task);
  void Do(const worker::DropJob& task);
  void Work(Time cost, std::function<void()> then);

  const Self self_;
  const std::function<void(worker::Event)> post_;
  std::deque<Task> tasks_;
  bool busy_ = false;
  JobId shown_job_;
  GenerationId shown_generation_;
  std::optional<ToyJob> job_;
  std::shared_ptr<ToyRun> run_;
  std::optional<worker::RunStop> stop_next_;  // of a run that has not begun
  std::shared_ptr<Courier> courier_;          // of DeliverState
  Time hung_until_{0};
};

}  // namespace ringmaster::sim
