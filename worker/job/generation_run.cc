#include "worker/job/generation_run.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "common/failpoint.h"
#include "common/signals.h"
#include "worker/backend/failure.h"
#include "worker/job/run_observer.h"

namespace ringmaster::worker {
namespace {

// For a whole state over a slow link; the ring waits with its first sum, not longer than its
// progress_limit. Who dies meanwhile is noticed otherwise, and sooner.
constexpr std::chrono::minutes kFetchLimit{9};
// A neighbour ends its former run first.
constexpr std::chrono::minutes kConnectLimit{11};

Outcome OutcomeOf(RunEnd end) {
  switch (end) {
    case RunEnd::kFinished:
      return Outcome::kFinished;
    case RunEnd::kStopped:
      return Outcome::kStopped;
    case RunEnd::kPeerLost:
      return Outcome::kPeerLost;
    case RunEnd::kFailed:
      break;
  }
  return Outcome::kFailed;
}

void LogEnd(const JobId& job, const GenerationId& generation, const RunResult& result) {
  const PhaseTimes& times = result.times;
  spdlog::info(
      "run ended: job={} generation={} applied={} reason={} input={:.2f}s compute={:.2f}s "
      "ring_wait={:.2f}s ring_transfer={:.2f}s update={:.2f}s evaluate={:.2f}s checkpoint={:.2f}s",
      job.value(), generation.ToString(), result.applied,
      result.reason.empty() ? "finished or stopped" : result.reason, times.input, times.compute,
      times.ring_wait, times.ring_transfer, times.update, times.evaluate, times.checkpoint);
}

}  // namespace

GenerationRun::GenerationRun(const RunSurroundings* surroundings, const RunJob* task,
                             std::shared_ptr<Trainer> trainer, StateMark* mark,
                             std::atomic<bool>* training)
    : surroundings_(surroundings),
      task_(task),
      trainer_(std::move(trainer)),
      mark_(mark),
      training_(training) {
  ended_.job = task->job;
  ended_.generation = GenerationOf(task->start);
}

RunEnded GenerationRun::Run(const RunStops& stops) {
  StatusOr<Assignment> assignment = FindSelf();
  if (!assignment.ok()) {
    End(Outcome::kFailed, assignment.status());
    return std::move(ended_);
  }
  assignment_ = *std::move(assignment);
  trainer_->TakeClassMaps(task_->start.class_maps());
  surroundings_->phases->Enter(task_->job, "ring");
  // Before the first step there is no step to finish.
  const EitherStop either(stops.now.get_token(), stops.at_boundary.get_token());
  // Connected first: while one fetches its state the others compute their shards, and wait for its
  // part of the sums alone.
  if (WatchNeighbours() && Connect(either.token()) && CatchUpWith(either.token())) {
    Join();
    Train(stops);
  }
  surroundings_->phases->Clear();
  return std::move(ended_);
}

StatusOr<Assignment> GenerationRun::FindSelf() const {
  const v1::Start& start = task_->start;
  const auto self =
      std::find_if(start.ring().begin(), start.ring().end(), [this](const v1::RingMember& member) {
        return member.name() == surroundings_->name &&
               member.incarnation() == surroundings_->incarnation;
      });
  if (self == start.ring().end()) {
    return Internal("generation {} of job {} does not contain worker {}",
                    GenerationOf(start).ToString(), start.job_id(), surroundings_->name);
  }
  Assignment assignment;
  assignment.generation = GenerationOf(start);
  assignment.position.rank = static_cast<uint32_t>(self - start.ring().begin());
  assignment.position.size = static_cast<uint32_t>(start.ring_size());
  assignment.shards.assign(self->shards().begin(), self->shards().end());
  assignment.start_step = start.start_step();
  assignment.evaluated = start.evaluated();
  assignment.class_map = static_cast<int>(start.class_map());
  return assignment;
}

const v1::RingMember& GenerationRun::Member(uint32_t distance) const {
  const ring::Position& position = assignment_.position;
  return task_->start.ring(static_cast<int>((position.rank + distance) % position.size));
}

void GenerationRun::End(Outcome outcome, const Status& status, std::string peer) {
  if (link_ != nullptr) link_->Cancel(status);
  ended_.outcome = outcome;
  ended_.applied = trainer_->applied();
  ended_.digest = DigestBytes(trainer_->digest());
  ended_.reason = Message(status);
  ended_.code = FailureOf(status);
  ended_.peer = std::move(peer);
  ended_.folded = mark_->folded;
  ended_.evaluated = mark_->evaluated;
}

ring::RingPlace GenerationRun::PlaceInRing() const {
  const v1::RingMember& predecessor = Member(assignment_.position.size - 1);
  return {.job_id = task_->job.value(),
          .generation = ended_.generation,
          .ticket = task_->start.ticket(),
          .self_name = surroundings_->name,
          .self_incarnation = surroundings_->incarnation,
          .successor_name = Member(1).name(),
          .successor_address = Member(1).ring_address(),
          .predecessor_name = predecessor.name(),
          .predecessor_incarnation = predecessor.incarnation()};
}

bool GenerationRun::WatchNeighbours() {
  if (assignment_.position.size == 1) return true;
  ring::WatchOptions watch{PlaceInRing()};
  watch.limits = ring::LimitsFor(std::chrono::milliseconds(task_->start.silence_ms()));
  watch.content = [trainer = trainer_]() {
    const Pulse pulse = trainer->pulse();
    return ring::Pulse{pulse.progress, pulse.phase};
  };
  watch.suspect = [this, generation = ended_.generation](const std::string& peer,
                                                         const std::string& reason) {
    surroundings_->post(
        PeerSuspected{task_->job, generation, trainer_->pulse().applied, peer, reason});
  };
  StatusOr<std::unique_ptr<ring::PeerWatch>> begun = surroundings_->port->Watch(watch);
  if (begun.ok()) {
    watch_ = *std::move(begun);
    return true;
  }
  const bool stops = begun.status().code() == absl::StatusCode::kCancelled;
  End(stops ? Outcome::kStopped : Outcome::kFailed, begun.status());
  return false;
}

bool GenerationRun::CatchUpWith(const std::stop_token& stop) {
  catch_up_ = std::make_unique<CatchUp>(&task_->start, assignment_.position.rank,
                                        &surroundings_->sources, trainer_.get());
  const CatchUpResult result = catch_up_->Run(std::chrono::steady_clock::now() + kFetchLimit, stop);
  if (!result.status.ok()) {
    End(result.outcome, result.status, result.peer);
    return false;
  }
  // A state that was lost while a copy of it was taken.
  if (const Status whole = trainer_->whole(); !whole.ok()) {
    End(Outcome::kFailed, whole);
    return false;
  }
  // A copy carries the results of what its holders evaluated.
  if (result.seconds > 0) *mark_ = {{}, task_->start.evaluated()};
  follows_ = result.follows;
  fetch_seconds_ = result.seconds;
  return true;
}

bool GenerationRun::Connect(const std::stop_token& stop) {
  if (assignment_.position.size > 1) {
    ring::LinkOptions link{PlaceInRing()};
    link.stop = stop;
    link.largest_payload = trainer_->largest_payload();
    StatusOr<std::unique_ptr<ring::Link>> connected =
        surroundings_->port->Connect(link, std::chrono::steady_clock::now() + kConnectLimit);
    if (!connected.ok()) {
      const bool lost = connected.status().code() == absl::StatusCode::kUnavailable;
      const bool stopped =
          lost ? stop.stop_requested() : WaitForStop(stop, surroundings_->better_reason_limit);
      End(stopped ? Outcome::kStopped : Outcome::kPeerLost, connected.status(),
          ring::NeighbourOf(connected.status()));
      return false;
    }
    link_ = *std::move(connected);
  }
  return true;
}

void GenerationRun::Join() {
  spdlog::info("ring joined: job={} generation={} of={}", task_->job.value(),
               ended_.generation.ToString(), assignment_.position.size);
  surroundings_->port->KeepReady(NextSuccessors());
  if (follows_) return;  // RunObserver tells it
  HitFailpoint("joined", task_->start.start_step());
  surroundings_->post(RunJoined{task_->job, ended_.generation, fetch_seconds_});
}

std::vector<ring::Successor> GenerationRun::NextSuccessors() const {
  std::vector<ring::Successor> next;
  for (const uint32_t distance : {1, 2}) {
    if (distance < assignment_.position.size) {
      next.push_back({Member(distance).name(), Member(distance).ring_address()});
    }
  }
  return next;
}

void GenerationRun::Train(const RunStops& stops) {
  surroundings_->phases->Enter(task_->job, "first_step");
  RunPeers peers;
  peers.link = link_.get();
  peers.sink = std::make_shared<CheckpointUpload>(surroundings_->coordinator, task_->job,
                                                  surroundings_->rights);
  RunObserver observer(&task_->start, surroundings_->phases, &surroundings_->post);
  peers.observer = &observer;
  peers.at_boundary = stops.at_boundary.get_token();
  *training_ = true;
  const RunResult result = trainer_->Run(assignment_, peers, stops.now.get_token());
  *training_ = false;
  catch_up_.reset();
  *mark_ = {result.folded, result.evaluated};
  LogEnd(task_->job, ended_.generation, result);
  Describe(result, stops);
}

void GenerationRun::Describe(const RunResult& result, const RunStops& stops) {
  ended_.outcome = OutcomeOf(result.end);
  ended_.applied = result.applied;
  ended_.digest = DigestBytes(result.digest);
  ended_.reason = result.reason;
  ended_.code = result.code;
  ended_.manifest_sha256 = result.manifest_sha256;
  ended_.folded = result.folded;
  ended_.evaluated = result.evaluated;
  const EitherStop either(stops.now.get_token(), stops.at_boundary.get_token());
  if (result.end == RunEnd::kStopped &&
      !WaitForStop(either.token(), surroundings_->better_reason_limit)) {
    // Another member was fenced at this boundary.
    ended_.outcome = Outcome::kPeerLost;
    ended_.reason = "the ring ended at a step boundary for a fence that did not come here";
  }
  if (result.end != RunEnd::kPeerLost) return;
  // Only who is gone is named: waiting for data accuses nobody.
  if (result.link_error == absl::StatusCode::kUnavailable) {
    ended_.peer = result.neighbour;
    return;
  }
  if (result.link_error == absl::StatusCode::kAborted &&
      WaitForStop(either.token(), surroundings_->better_reason_limit)) {
    ended_.outcome = Outcome::kStopped;
  }
}

}  // namespace ringmaster::worker
