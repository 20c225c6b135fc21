#include "tests/sim/toy_trainer.h"

#include <algorithm>
#include <utility>

#include "tests/sim/cluster.h"
#include "tests/support/cluster_messages.h"

namespace ringmaster::sim {

ToyTrainer::ToyTrainer(Self self, std::function<void(worker::Event)> post)
    : self_(std::move(self)), post_(std::move(post)) {}

ToyTrainer::~ToyTrainer() = default;

void ToyTrainer::Submit(Task task) {
  if (const auto* inspect = std::get_if<worker::InspectDataset>(&task)) shown_job_ = inspect->job;
  if (const auto* run = std::get_if<worker::RunJob>(&task)) {
    shown_generation_ = {run->start.generation().term(), run->start.generation().counter()};
    stop_next_.reset();
  }
  // Whatever comes next, that state is not needed as a checkpoint any more.
  if (courier_ != nullptr) {
    courier_->Stop();
    courier_.reset();
    post_(worker::StateDelivered{job_->id, job_->applied, "stopped"});
    Done();
  }
  tasks_.push_back(std::move(task));
  if (!busy_) Next();
}

void ToyTrainer::Cancel(worker::RunStop when) {
  const bool waits = std::any_of(tasks_.begin(), tasks_.end(), [](const Task& task) {
    return std::holds_alternative<worker::RunJob>(task);
  });
  if (run_ != nullptr && !run_->over() && !waits) return run_->Stop(when);
  if (stop_next_ != worker::RunStop::kNow) stop_next_ = when;
}

void ToyTrainer::ForgetCopies(uint64_t step) {
  if (!job_) return;
  std::erase_if(job_->copies, [&](const auto& copy) {
    return copy.first <= step && copy.first != job_->total();
  });
}

const v1::Start* ToyTrainer::running() const {
  return run_ == nullptr || run_->over() ? nullptr : &run_->start();
}

uint64_t ToyTrainer::step() const { return running() != nullptr ? run_->step() : job_->applied; }

v1::Heartbeat ToyTrainer::heartbeat() const {
  v1::Heartbeat heartbeat;
  heartbeat.set_job_id(shown_job_.value());
  heartbeat.mutable_generation()->set_term(shown_generation_.term);
  heartbeat.mutable_generation()->set_counter(shown_generation_.counter);
  if (job_) {
    heartbeat.set_phase(job_->phase);
    heartbeat.set_progress(job_->progress);
    heartbeat.set_applied(step());
  }
  return heartbeat;
}

// ---- tasks --------------------------------------------------------------------------------------

void ToyTrainer::Next() {
  if (tasks_.empty()) return;
  busy_ = true;
  const Task task = std::move(tasks_.front());
  tasks_.pop_front();
  std::visit([this](const auto& value) { Do(value); }, task);
}

void ToyTrainer::Done() {
  // The task that ended is still on the stack.
  self_.cluster->world.After(Time(0), self_.life, [this] {
    busy_ = false;
    run_.reset();
    courier_.reset();
    Next();
  });
}

void ToyTrainer::Work(Time cost, std::function<void()> then) {
  self_.cluster->world.After(cost, self_.life, [this, then = std::move(then)] {
    const Time now = self_.cluster->world.now();
    if (now < hung_until_) return Work(hung_until_ - now, then);
    then();
    Done();
  });
}

void ToyTrainer::Do(const worker::InspectDataset& task) {
  shown_job_ = task.job;  // again, as JobRunner: a drop before it may have been carried out since
  post_(worker::PhaseChanged{task.job, "data_check", 0});
  Work(milliseconds(self_.cluster->world.random().Between(2, 40)), [this, job = task.job] {
    post_(worker::InspectDone{job, testing::MakeFacts(), ""});
  });
}

void ToyTrainer::Do(const worker::PrepareJob& task) {
  post_(worker::PhaseChanged{task.job, "graph", 0});
  Work(milliseconds(self_.cluster->world.random().Between(5, 60)), [this, task] {
    job_.emplace();
    job_->id = task.job;
    job_->resolved = task.resolved;
    job_->state = job_->folded_from = FirstState(task.resolved.result());
    self_.cluster->oracle.OnResolved(task.job.value(), task.resolved);
    worker::PrepareDone done{task.job, {}, DigestOf(job_->state), ""};
    done.known_shard_sha256.assign(self_.cores,
                                   (self_.odd ? "odd " : "known ") + self_.instructions);
    done.follows = self_.follows;
    post_(std::move(done));
  });
}

void ToyTrainer::Do(const worker::RunJob& task) {
  if (!job_ || job_->id != task.job) {
    self_.cluster->world.Violate("a run of a job that is not prepared");
    return;
  }
  run_ = std::make_shared<ToyRun>(
      ToyRun::Self{self_.cluster, self_.life, self_.host, self_.name, self_.incarnation,
                   self_.cores, self_.odd, self_.instructions, &hung_until_},
      &*job_, task.start, [this](worker::Event event) {
        const bool ended = std::holds_alternative<worker::RunEnded>(event);
        post_(std::move(event));
        if (ended) Done();
      });
  run_->Begin();
  if (stop_next_ && !run_->over()) run_->Stop(*std::exchange(stop_next_, std::nullopt));
}

void ToyTrainer::Do(const worker::DeliverState& task) {
  if (!job_ || job_->id != task.job) {
    self_.cluster->world.Violate("asked to deliver the state of a job that is not prepared");
    return;
  }
  v1::Generation generation;
  generation.set_term(shown_generation_.term);
  generation.set_counter(shown_generation_.counter);
  courier_ = std::make_shared<Courier>(self_.cluster, self_.life, self_.host, job_->resolved,
                                       task.job.value(), generation);
  post_(worker::SnapshotHeld{
      job_->id, job_->applied, ManifestSha256(job_->applied, job_->state), {}});
  courier_->Submit(job_->applied, job_->state);
  courier_->WhenIdle([this](const std::string& error) {
    post_(worker::StateDelivered{job_->id, job_->applied, error});
    Done();
  });
}

// No bit of a toy's state flips.
void ToyTrainer::Do(const worker::CheckHeldState& task) {
  Work(milliseconds(1), [this, job = task.job] { post_(worker::StateChecked{job, ""}); });
}

void ToyTrainer::Do(const worker::DropJob&) {
  shown_job_ = JobId();
  shown_generation_ = {};
  job_.reset();
  Done();
}

// ---- from other workers -------------------------------------------------------------------------

void ToyTrainer::AcceptLink(const ConnectionPtr& connection, const Hello& hello) {
  ToyRing* mine = ring();
  if (mine == nullptr || !mine->Take(connection, hello)) connection->Finish(1, "refused");
}

void ToyTrainer::ReceiveFrame(const Frame& frame) {
  if (run_ != nullptr && !run_->over()) return run_->Receive(frame);
  if (job_ && job_->late_frames.size() < 64) job_->late_frames.push_back(frame);
}

void ToyTrainer::AcceptFetch(const ConnectionPtr& connection, const JobId& job, uint64_t step,
                             const OnFetched& answer) {
  FetchAnswer mine = FetchAnswer::kHere;
  if (!job_ || job_->id != job || job_->applied > step)
    mine = FetchAnswer::kGone;
  else if (job_->applied < step)
    mine = FetchAnswer::kNotYet;
  const StateHash state = job_ ? job_->state : 0;
  // Interleaving 2: the source may die while it sends.
  const Time cost = mine == FetchAnswer::kHere ? self_.cluster->TransferTime() : Time(0);
  self_.cluster->world.After(cost, self_.life, [connection, answer, mine, step, state] {
    if (!connection->open(1)) return;
    connection->Send(1, [answer, mine, step, state] { answer(mine, step, state); });
    connection->Finish(1, "done");
  });
}

}  // namespace ringmaster::sim
