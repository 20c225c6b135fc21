#include "tests/sim/toy_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "common/planted_bug.h"
#include "tests/sim/cluster.h"

namespace ringmaster::sim {
namespace {

using worker::Outcome;
using worker::RunStop;

// A neighbour that left of its own accord has told the coordinator why: the end that follows from
// it is waited for (worker/job/job_runner.cc).
constexpr Time kBetterReasonLimit = seconds(2);
// A source is given up when nobody answers there for so long (worker/transfer/state_fetch.h).
constexpr Time kSilentSource = seconds(2);
constexpr size_t kMostCopies = 2;  // TrainerOptions::checkpoint_copies
constexpr uint64_t kFarewellRound = uint64_t{1} << 40;

}  // namespace

ToyRun::ToyRun(Self self, ToyJob* job, v1::Start start, std::function<void(worker::Event)> post)
    : self_(std::move(self)),
      job_(job),
      start_(std::move(start)),
      generation_{start_.generation().term(), start_.generation().counter()},
      post_(std::move(post)) {}

ToyRun::~ToyRun() {
  over_ = true;
  if (source_ != nullptr) source_->Cancel(0);
}

void ToyRun::After(Time delay, std::function<void(ToyRun&)> what) {
  self_.cluster->world.After(delay, self_.life, [weak = weak_from_this(), what = std::move(what)] {
    const std::shared_ptr<ToyRun> self = weak.lock();
    if (self != nullptr && !self->over_) what(*self);
  });
}

// ---- begin and end ------------------------------------------------------------------------------

void ToyRun::Begin() {
  bool member = false;
  int have_shards = 0;
  for (int rank = 0; rank < start_.ring_size(); ++rank) {
    const v1::RingMember& place = start_.ring(rank);
    if (place.holds()) sources_.push_back(rank);
    if (!place.follows()) ++have_shards;
    if (place.name() != self_.name || place.incarnation() != self_.incarnation) continue;
    member = true;
    rank_ = static_cast<uint32_t>(rank);
    follows_ = place.follows();
    keeps_copies_ = !follows_ && have_shards <= 2;
    shards_.assign(place.shards().begin(), place.shards().end());
  }
  if (!member) return End(Outcome::kFailed, "this generation does not contain this worker");
  *job_->resolved.mutable_result()->mutable_class_maps() = start_.class_maps();
  self_.cluster->oracle.OnRunBegin({self_.host, self_.incarnation}, start_, job_->applied);
  at_ = start_.start_step();
  Watch();
  if (RING_PLANTED(kJoinsWithoutState)) job_->applied = start_.start_step();
  Connect();
}

void ToyRun::End(Outcome outcome, const std::string& reason, const std::string& peer) {
  if (std::exchange(over_, true)) return;
  if (ring_ != nullptr) ring_->Leave();
  if (courier_ != nullptr) courier_->Stop();
  for (const auto& [round, frames] : inbox_) {
    if (round != step()) continue;
    for (const auto& [rank, contributions] : frames) {
      job_->late_frames.push_back(
          {job_->id.value(), generation_, round, false, rank, contributions});
    }
  }
  worker::RunEnded ended;
  ended.job = job_->id;
  ended.generation = generation_;
  ended.outcome = outcome;
  ended.applied = RING_PLANTED(kAcknowledgesUnheld) ? step() : job_->applied;
  ended.digest = DigestOf(job_->state);
  ended.reason = reason;
  ended.peer = peer;
  if (outcome == Outcome::kFinished && courier_ != nullptr) {
    ended.manifest_sha256 = courier_->manifest();
  }
  if (job_->folded_from == job_->state) {
    for (const auto& [shard, value] : job_->folded) ended.folded.push_back(shard);
  }
  ended.evaluated = true;
  job_->phase = "idle";
  post_(std::move(ended));
}

void ToyRun::Stop(RunStop when) {
  if (over_) return;
  if (stop_ != RunStop::kNow) stop_ = when;
  switch (phase_) {
    case Phase::kFetching:
    case Phase::kConnecting:
      return End(Outcome::kStopped);
    case Phase::kIdle:  // it waits for a checkpoint, or for this
      if (when == RunStop::kNow || awaits_fence_ || left_by_peer_) End(Outcome::kStopped);
      return;
    case Phase::kLeaving:
      return when == RunStop::kNow ? End(Outcome::kStopped) : void();
    case Phase::kComputing:
      return;  // a kernel is not interrupted: ComputeNext looks
    case Phase::kExchanging:
      if (when == RunStop::kNow || left_by_peer_) {
        return End(Outcome::kStopped);
      }
      return;
    case Phase::kUpdating:
      // A fence inside the update (interleaving 3): it ends, or is discarded, as a whole.
      if (when == RunStop::kNow && self_.cluster->world.random().OneIn(2)) {
        ++update_;
        End(Outcome::kStopped);
      }
      return;
  }
}

// ---- S(K) ---------------------------------------------------------------------------------------

void ToyRun::Follow() {
  std::rotate(sources_.begin(), sources_.begin() + static_cast<long>(rank_ % sources_.size()),
              sources_.end());
  fetch_begun_ = source_heard_ = self_.cluster->world.now();
  self_.cluster->faults.At(Point::kFetch, self_.host);
  if (over_) return;
  // Here the whole of it comes at once, sooner or later.
  const Time begins = microseconds(self_.cluster->world.random().Between(0, 150'000));
  After(begins, [](ToyRun& run) {
    run.source_heard_ = run.self_.cluster->world.now();
    run.FetchNext();
  });
  for (const Frame& late : std::exchange(job_->late_frames, {})) Receive(late);
  NextStep();
}

// Of the step that it asked for. The ring may have gone on meanwhile.
void ToyRun::BecomeWhole(uint64_t step, StateHash state) {
  if (source_ != nullptr) source_->Cancel(0);
  source_.reset();
  for (; step < at_; ++step) state = NextState(state, sums_.at(step));
  sums_.clear();
  follows_ = false;
  job_->applied = at_;
  job_->state = state;
  KeepFolded();
  self_.cluster->oracle.OnWhole({self_.host, self_.incarnation}, start_, at_, state);
  const auto fetch = self_.cluster->world.now() - fetch_begun_;
  post_(worker::RunJoined{job_->id, generation_, std::chrono::duration<double>(fetch).count()});
  // Behind the last step it was waited for.
  if (phase_ == Phase::kIdle && !awaits_fence_) NextStep();
}

// Behind Connect: the others compute their shards meanwhile (worker/job/generation_run.cc).
void ToyRun::CatchUp() {
  // With a restore the first member has it as soon as it came from the folder.
  if (start_.has_restore()) sources_ = {0};
  std::erase(sources_, static_cast<int>(rank_));
  std::rotate(sources_.begin(),
              sources_.begin() + static_cast<long>(sources_.empty() ? 0 : rank_ % sources_.size()),
              sources_.end());
  phase_ = Phase::kFetching;
  job_->phase = "fetch";
  fetch_begun_ = source_heard_ = self_.cluster->world.now();
  self_.cluster->faults.At(Point::kFetch, self_.host);
  if (over_) return;
  if (start_.has_restore() && rank_ == 0) return AskFolder();
  FetchNext();
}

void ToyRun::FetchNext() {
  if (sources_.empty()) return End(Outcome::kFailed, "nobody in this ring holds its state");
  if (self_.cluster->world.now() - source_heard_ > kSilentSource) {
    source_heard_ = self_.cluster->world.now();
    ++next_source_;
  }
  if (next_source_ == sources_.size()) {
    return End(Outcome::kPeerLost, "nobody sends the state", start_.ring(sources_.back()).name());
  }
  const v1::RingMember& source = start_.ring(sources_[next_source_]);
  AskSource(HostOf(source.ring_address()), source.name());
}

void ToyRun::AskSource(int host, const std::string& name) {
  self_.cluster->world.Log(fmt::format("w{} asks {} for S({})", self_.host, name, at_));
  const std::weak_ptr<ToyRun> weak = weak_from_this();
  const auto lost = [weak](const std::string&) {
    const std::shared_ptr<ToyRun> self = weak.lock();
    if (self != nullptr && !self->over_) self->SourceLost();
  };
  const auto answer = [weak](FetchAnswer answer, uint64_t step, StateHash state) {
    const std::shared_ptr<ToyRun> self = weak.lock();
    if (self == nullptr || self->over_) return;
    if (!self->follows_ && self->phase_ != Phase::kFetching) return;
    if (answer == FetchAnswer::kHere) {
      return self->follows_ ? self->BecomeWhole(step, state) : self->Adopt(step, state);
    }
    // Who follows asks for the step that it is at next.
    const bool heard = answer == FetchAnswer::kNotYet || self->follows_;
    if (heard) self->source_heard_ = self->self_.cluster->world.now();
    if (!heard) ++self->next_source_;
    self->SourceLost();
  };
  source_ = self_.cluster->network.Connect(self_.host, host, self_.life, lost,
                                           [cluster = self_.cluster, host, job = job_->id,
                                            step = at_, answer](const ConnectionPtr& incoming) {
                                             cluster->TrainerAt(host).AcceptFetch(incoming, job,
                                                                                  step, answer);
                                           });
}

void ToyRun::AskFolder() {
  const std::weak_ptr<ToyRun> weak = weak_from_this();
  const auto lost = [weak](const std::string&) {
    const std::shared_ptr<ToyRun> self = weak.lock();
    if (self == nullptr || self->over_) return;
    self->After(milliseconds(100), [](ToyRun& run) { run.AskFolder(); });
  };
  const auto answer = [weak](const std::string& error, uint64_t step, StateHash state) {
    const std::shared_ptr<ToyRun> self = weak.lock();
    if (self == nullptr || self->over_ || self->phase_ != Phase::kFetching) return;
    if (!error.empty()) return self->End(Outcome::kFailed, error);
    self->Adopt(step, state);
  };
  source_ = self_.cluster->network.Connect(
      self_.host, kCoordinatorHost, self_.life, lost,
      [cluster = self_.cluster, source = start_.restore(), answer](const ConnectionPtr& incoming) {
        cluster->coordinator->AcceptDownload(incoming, source, answer);
      });
}

void ToyRun::SourceLost() {
  if (source_ != nullptr) source_->Cancel(0);
  source_.reset();
  After(milliseconds(20), [](ToyRun& run) { run.FetchNext(); });
}

void ToyRun::Adopt(uint64_t step, StateHash state) {
  if (source_ != nullptr) source_->Cancel(0);
  source_.reset();
  // A restored state's digest is known to nobody before it is read.
  if ((!start_.digest().empty() && DigestOf(state) != start_.digest()) ||
      step != start_.start_step()) {
    return End(Outcome::kFailed,
               fmt::format("fetched a state that is not S({})", start_.start_step()));
  }
  job_->applied = step;
  job_->state = state;
  self_.cluster->world.Log(fmt::format("w{} fetched S({})", self_.host, step));
  Join();
}

// ---- the ring -----------------------------------------------------------------------------------

void ToyRun::Watch() {
  if (start_.ring_size() == 1) return;
  ToyRing::Listener listener;
  listener.connected = [this] { Connected(); };
  listener.frame = [this](const Frame& frame) { Receive(frame); };
  listener.lost = [this](const std::string& peer, const std::string& reason, bool left) {
    Lost(peer, reason, left);
  };
  listener.suspect = [this](const std::string& peer, const std::string& reason) {
    post_(worker::PeerSuspected{job_->id, generation_, job_->applied, peer, reason});
  };
  listener.pulse = [this] { return ring::Pulse{job_->progress, job_->phase}; };
  ring_ = std::make_shared<ToyRing>(
      ToyRing::Place{self_.cluster, self_.life, self_.host, start_, rank_}, std::move(listener));
  ring_->Watch();
}

void ToyRun::Connect() {
  phase_ = Phase::kConnecting;
  job_->phase = "ring";
  post_(worker::PhaseChanged{job_->id, "ring", 0});
  if (ring_ == nullptr) return Connected();
  ring_->Connect();
}

void ToyRun::Connected() {
  if (follows_) return Follow();
  if (job_->applied == start_.start_step()) return Join();
  CatchUp();
}

void ToyRun::Join() {
  const auto fetch = self_.cluster->world.now() - fetch_begun_;
  post_(worker::RunJoined{
      job_->id, generation_,
      fetch_begun_ == Time(0) ? 0 : std::chrono::duration<double>(fetch).count()});
  post_(worker::PhaseChanged{job_->id, "first_step", 0});
  phase_ = Phase::kIdle;
  KeepFolded();
  // What is due on S(K), also where another ring had its copies.
  if (CheckpointDue() && !job_->copies.contains(job_->applied)) TakeSnapshot();
  if (rank_ == 0) {
    courier_ = std::make_shared<Courier>(self_.cluster, self_.life, self_.host, job_->resolved,
                                         job_->id.value(), start_.generation());
    for (const auto& [step, state] : job_->copies) courier_->Submit(step, state);
  }
  // Interleaving 5: late frames of an older generation, at this step, with another shard map.
  for (const Frame& late : std::exchange(job_->late_frames, {})) Receive(late);
  NextStep();
}

void ToyRun::Lost(const std::string& peer, const std::string& reason, bool left) {
  if (over_ || finishing_) return;
  if (farewell_) return Finish();
  const std::string why = fmt::format("{} {}: {}", peer, left ? "left" : "is lost", reason);
  if (!left) return End(Outcome::kPeerLost, why, peer);
  // All frames that it needed were sent before it left, and ours from it have come: perhaps that
  // completes the step. Else the step in hand is dropped when the end that follows comes.
  left_by_peer_ = true;
  if (stop_ && phase_ == Phase::kExchanging) return End(Outcome::kStopped);
  After(kBetterReasonLimit, [why](ToyRun& run) { run.End(Outcome::kPeerLost, why, ""); });
}

// ---- a step -------------------------------------------------------------------------------------

void ToyRun::KeepFolded() {
  const std::set<uint32_t> own(shards_.begin(), shards_.end());
  bool keep = job_->folded_from == job_->state || RING_PLANTED(kKeepsStaleShards);
  for (const auto& [shard, value] : job_->folded) keep = keep && own.contains(shard);
  if (!keep) job_->folded.clear();
  job_->folded_from = job_->state;
  if (RING_PLANTED(kCountsShardsTwice)) again_ = job_->folded;
}

// All members end at the same boundary (worker/train/step_loop.cc).
bool ToyRun::EndsHere() {
  const bool alone = ring_ == nullptr || RING_PLANTED(kEndsAlone);
  if (alone ? !stop_ : !ends_) return false;
  self_.cluster->oracle.OnBoundary({self_.host, self_.incarnation}, start_, step());
  if (stop_) {
    End(Outcome::kStopped);
    return true;
  }
  awaits_fence_ = true;
  After(kBetterReasonLimit, [](ToyRun& run) {
    run.End(Outcome::kPeerLost, "the ring ended for a fence that did not come here");
  });
  return true;
}

void ToyRun::NextStep() {
  phase_ = Phase::kIdle;
  job_->phase = "idle";
  if (stop_ == RunStop::kNow || (stop_ && left_by_peer_)) return End(Outcome::kStopped);
  if (left_by_peer_) return;
  if (step() == job_->total()) return follows_ ? void() : Farewell();
  if (EndsHere()) return;
  self_.cluster->oracle.OnStep({self_.host, self_.incarnation}, start_, step());
  if (follows_) return SendOwn();
  phase_ = Phase::kComputing;
  job_->phase = "compute";
  own_sent_ = false;
  ComputeNext();
}

void ToyRun::ComputeNext() {
  const Time now = self_.cluster->world.now();
  if (now < *self_.hung_until) {
    return After(*self_.hung_until - now, [](ToyRun& run) { run.ComputeNext(); });
  }
  if (stop_ == RunStop::kNow || (stop_ && left_by_peer_)) return End(Outcome::kStopped);
  std::vector<uint32_t> round;
  for (const uint32_t shard : shards_) {
    if (!job_->folded.contains(shard) && round.size() < self_.cores) round.push_back(shard);
  }
  if (round.empty()) return SendOwn();
  const Time cost = self_.cluster->ShardTime(self_.host);
  After(cost, [round](ToyRun& run) {
    ToyJob& job = *run.job_;
    for (const uint32_t shard : round)
      job.folded[shard] = ContributionOf(job.state, shard, run.self_.instructions) ^ run.self_.odd;
    ++job.progress;
    run.ComputeNext();
  });
}

void ToyRun::SendOwn() {
  phase_ = Phase::kExchanging;
  job_->phase = "reduce";
  Frame own{job_->id.value(), generation_, step(), false, rank_, {}, stop_.has_value()};
  if (own.ends) asking_.insert({own.step, rank_});
  // What one that follows has folded is of an older step.
  for (const auto& [shard, value] : job_->folded) {
    if (!follows_) own.contributions.push_back({shard, value});
  }
  for (const auto& [shard, value] : std::exchange(again_, {})) {
    own.contributions.push_back({shard, value});
  }
  own_sent_ = true;
  auto& frames = inbox_[step()];
  if (ring_ != nullptr) {
    ring_->Send(own);
    for (const auto& [rank, contributions] : frames) {
      if (over_ || rank == ring_->successor_rank()) continue;
      ring_->Send({own.job, generation_, own.step, false, rank, contributions,
                   asking_.contains({own.step, rank})});
    }
  }
  if (over_) return;
  frames[rank_] = std::move(own.contributions);
  CheckComplete();
}

void ToyRun::Receive(const Frame& frame) {
  if (over_ || frame.job != job_->id.value()) return;
  if (frame.generation != generation_ && !RING_PLANTED(kFramesOfAnyGeneration)) return;
  const uint64_t round = frame.step + (frame.farewell ? kFarewellRound : 0);
  // Who still fetches S(K) keeps what comes for its first step.
  const bool begins = phase_ == Phase::kConnecting || phase_ == Phase::kFetching;
  const uint64_t applied = begins ? start_.start_step() : step();
  const uint64_t current = applied + (farewell_ ? kFarewellRound : 0);
  if (frame.rank >= static_cast<uint32_t>(start_.ring_size()) || round < current) return;
  if (!inbox_[round].try_emplace(frame.rank, frame.contributions).second) return;
  if (frame.ends) asking_.insert({round, frame.rank});
  if (round != current || !own_sent_ || ring_ == nullptr) return;
  if (frame.rank != ring_->successor_rank()) {
    Frame onward = frame;
    onward.generation = generation_;
    ring_->Send(onward);
  }
  if (!over_) CheckComplete();
}

void ToyRun::CheckComplete() {
  const uint64_t current = step() + (farewell_ ? kFarewellRound : 0);
  if (inbox_[current].size() != static_cast<size_t>(start_.ring_size())) return;
  if (farewell_) return Finish();
  if (phase_ != Phase::kExchanging) return;
  phase_ = Phase::kUpdating;
  job_->phase = "update";
  const Time cost = microseconds(self_.cluster->world.random().Between(300, 3000));
  After(cost, [update = ++update_](ToyRun& run) {
    if (run.update_ == update) run.Apply();
  });
}

void ToyRun::Apply() {
  std::vector<Contribution> all;
  for (const auto& [rank, contributions] : inbox_[step()]) {
    all.insert(all.end(), contributions.begin(), contributions.end());
  }
  inbox_.erase(step());
  const auto next = asking_.lower_bound({step() + 1, 0});
  ends_ = asking_.lower_bound({step(), 0}) != next;
  asking_.erase(asking_.begin(), next);
  if (follows_) {
    sums_[at_++] = std::move(all);
    ++job_->progress;
    return NextStep();
  }
  job_->state = NextState(job_->state, std::move(all));
  ++job_->applied;
  ++job_->progress;
  job_->folded.clear();
  job_->folded_from = job_->state;
  self_.cluster->oracle.OnApply({self_.host, self_.incarnation}, start_, job_->applied,
                                job_->state);
  self_.cluster->faults.At(Point::kApplied, self_.host);
  worker::RunProgress event;
  event.progress.set_job_id(job_->id.value());
  *event.progress.mutable_generation() = start_.generation();
  event.progress.set_applied(job_->applied);
  event.progress.set_updates(job_->applied);
  event.digest = DigestOf(job_->state);
  // What hosts say that they took: of four, one is slow, and one takes longer for a shard than the
  // others for all of theirs.
  constexpr double kSecondsOfShard[] = {1, 1, 3, 40};
  const int shards = start_.ring(static_cast<int>(rank_)).shards_size();
  event.progress.mutable_step_times()->set_compute(
      shards * kSecondsOfShard[self_.host % std::size(kSecondsOfShard)]);
  event.progress.mutable_step_times()->set_total(1);
  if (job_->applied == start_.start_step() + 1) {
    post_(worker::PhaseChanged{job_->id, "done", 0});
  }
  post_(std::move(event));
  phase_ = Phase::kIdle;
  SaveCheckpoint();
}

// Here: the ring's first two that have shards take a copy.
bool ToyRun::CheckpointDue() const {
  const uint64_t every = job_->resolved.checkpoint().every_steps();
  const bool due = job_->applied > 0 && every != 0 && job_->applied % every == 0;
  return keeps_copies_ && (due || job_->applied == job_->total());
}

void ToyRun::SaveCheckpoint() {
  if (!CheckpointDue()) return NextStep();
  TakeSnapshot();
  if (courier_ == nullptr) return NextStep();
  // The writer takes a copy when the one before is delivered: the step loop waits for that.
  job_->phase = "checkpoint";
  courier_->WhenIdle([this](const std::string& error) {
    if (over_) return;
    if (!error.empty()) return End(Outcome::kFailed, error);
    courier_->Submit(job_->applied, job_->state);
    NextStep();
  });
}

// What worker/train/checkpoint_writer does: the copy is hashed beside the training.
void ToyRun::TakeSnapshot() {
  const uint64_t step = job_->applied;
  job_->copies[step] = job_->state;
  if (job_->copies.size() > kMostCopies) job_->copies.erase(job_->copies.begin());
  std::vector<uint64_t> held;
  for (const auto& [held_step, state] : job_->copies) held.push_back(held_step);
  post_(worker::SnapshotHeld{job_->id, step, "", held});
  const Time cost = microseconds(self_.cluster->world.random().Between(100, 20'000));
  const std::string manifest = ManifestSha256(step, job_->state);
  self_.cluster->world.After(cost, self_.life, [post = post_, id = job_->id, step, manifest] {
    post(worker::SnapshotHeld{id, step, manifest, {}});
  });
}

// ---- the end ------------------------------------------------------------------------------------

void ToyRun::Farewell() {
  // Nobody leaves before everybody applied the last step; whatever goes wrong here is no error.
  phase_ = Phase::kLeaving;
  job_->phase = "farewell";
  farewell_ = own_sent_ = true;
  if (ring_ == nullptr) return Finish();
  auto& frames = inbox_[job_->applied + kFarewellRound];
  ring_->Send({job_->id.value(), generation_, job_->applied, true, rank_, {}});
  for (const auto& [rank, none] : std::map(frames)) {
    if (over_ || phase_ != Phase::kLeaving) return;
    if (rank != ring_->successor_rank()) {
      ring_->Send({job_->id.value(), generation_, job_->applied, true, rank, {}});
    }
  }
  if (over_ || !farewell_) return;
  frames[rank_] = {};
  CheckComplete();
}

void ToyRun::Finish() {
  if (!std::exchange(farewell_, false)) return;
  finishing_ = true;
  if (ring_ != nullptr) ring_->Leave();
  job_->phase = "checkpoint";
  phase_ = Phase::kIdle;
  if (courier_ == nullptr) return End(Outcome::kFinished);
  if (start_.start_step() == job_->total()) courier_->Submit(job_->applied, job_->state);
  courier_->WhenIdle([this](const std::string& error) {
    error.empty() ? End(Outcome::kFinished) : End(Outcome::kFailed, error);
  });
}

}  // namespace ringmaster::sim
