#include "worker/data/reader.h"

#include <pthread.h>

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "common/numeric/float_mode.h"

namespace ringmaster::worker {

// All of it under the reader's lock, but for the batch's rows: a run's belong to who claimed it.
struct Reader::Flight {
  explicit Flight(const BatchId& batch_id) : id(batch_id) {}

  const BatchId id;
  std::shared_ptr<ShardBatch> batch;  // nullptr: not opened yet
  size_t next_row = 0;                // rows before it are claimed
  size_t hands = 1;                   // threads that are at it: opening, loading, bringing
  bool asked = false;
  bool held = false;   // counts as ahead
  uint64_t bytes = 0;  // then
  Status status;       // of the lowest row so far that has an error, at `failed_row`
  size_t failed_row = SIZE_MAX;

  [[nodiscard]] bool has_rows() const {
    return status.ok() && batch != nullptr && next_row < batch->samples.size();
  }
  // Nobody is at it, and nobody needs to be: runs are claimed in order, so that rows below the
  // failed one are loaded.
  [[nodiscard]] bool whole() const { return hands == 0 && !has_rows(); }
  void Fail(size_t row, Status error) {
    if (row >= failed_row) return;
    failed_row = row;
    status = std::move(error);
  }
};

Reader::Reader(std::shared_ptr<const ShardLoader> loader, ReaderOptions options)
    : loader_(std::move(loader)),
      options_(std::move(options)),
      ahead_(options_.ahead > 0 ? options_.ahead : 2 * options_.shards.size()),
      plan_(loader_.get(), options_.shards, options_.start_step) {
  for (uint32_t i = 0; i < options_.input.threads; ++i) {
    threads_.emplace_back([this, name = fmt::format("input{}", i)] { Serve(name); });
  }
}

Reader::~Reader() { Stop(); }

void Reader::Stop() {
  MutexLock lock(mu_);
  stopped_ = true;
  work_.NotifyAll();
  changed_.NotifyAll();
}

StatusOr<std::shared_ptr<const ShardBatch>> Reader::Get(
    const BatchId& id, std::chrono::steady_clock::time_point deadline) {
  FlightPtr flight;
  bool opens = false;
  {
    MutexLock lock(mu_);
    if (!stopped_) flight = Ask(id, &opens);
  }
  if (opens) Open(flight);
  LoadScratch scratch;
  while (true) {
    Run run;
    {
      MutexLock lock(mu_);
      const bool settled = changed_.WaitUntil(mu_, deadline, [&]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
        return stopped_ || flight->whole() || flight->has_rows();
      });
      if (stopped_) return Status(absl::StatusCode::kCancelled, "the reader was stopped");
      if (!settled) {
        flight->asked = false;  // it can be asked for again
        return Error(absl::StatusCode::kDeadlineExceeded,
                     "shard {} of step {} was still being read at its deadline", id.shard, id.step);
      }
      if (flight->whole()) {
        const auto found = flights_.find(id);
        if (found != flights_.end() && found->second == flight) flights_.erase(found);
        // Whoever loaded it may still hold the flight: what is in it is the caller's alone.
        if (!flight->status.ok()) return std::move(flight->status);
        return std::move(flight->batch);
      }
      run = Claim(flight);
    }
    Load(run, &scratch);
  }
}

Reader::FlightPtr Reader::Ask(const BatchId& id, bool* opens) {
  SkipTo(id);
  slot_free_ = true;  // whoever asks is done with an earlier batch
  FlightPtr& flight = flights_[id];
  // One that somebody has asked for already is theirs.
  *opens = flight == nullptr || flight->asked;
  if (*opens) {
    flight = std::make_shared<Flight>(id);
    plan_.Take(id);
  }
  flight->asked = true;
  Release(flight.get());
  work_.NotifyOne();
  return flight;
}

size_t Reader::held() const {
  MutexLock lock(mu_);
  return static_cast<size_t>(std::ranges::count_if(
      flights_, [](const auto& entry) { return !entry.second->asked && entry.second->whole(); }));
}

uint64_t Reader::held_bytes() const {
  MutexLock lock(mu_);
  return held_bytes_;
}

double Reader::TakeSeconds() {
  MutexLock lock(mu_);
  return std::exchange(seconds_, 0);
}

void Reader::SkipTo(const BatchId& id) {
  const BatchId first{id.step, id.set, id.batch, 0};
  for (auto entry = flights_.begin(); entry != flights_.end() && entry->first < first;) {
    const FlightPtr flight = entry->second;
    if (flight->asked) {
      ++entry;
      continue;
    }
    entry = flights_.erase(entry);
    open_.erase(flight->id);
    flight->Fail(0, absl::CancelledError("it was passed over"));
    if (flight->hands == 0) Release(flight.get());
  }
  plan_.SkipTo(id);
}

void Reader::Release(Flight* flight) {
  if (!std::exchange(flight->held, false)) return;
  --held_;
  held_bytes_ -= flight->bytes;
}

void Reader::Serve(const std::string& name) {
  pthread_setname_np(pthread_self(), name.c_str());
  const DefaultFloatMode float_mode;
  LoadScratch scratch;
  while (true) {
    {
      MutexLock lock(mu_);
      WaitFor(work_, mu_,
              [this]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return stopped_ || HasWork(); });
      if (stopped_) return;
    }
    WorkOnce(&scratch);
  }
}

bool Reader::HasWork() const { return !open_.empty() || MayPlan() || ToBring() != nullptr; }

// Pixels first, which are whole and wait for nothing but a slot; then rows of the oldest batch;
// then one more batch.
void Reader::WorkOnce(LoadScratch* scratch) {
  FlightPtr brought, opened;
  Run run;
  {
    MutexLock lock(mu_);
    brought = ToBring();
    if (brought != nullptr) {
      ++brought->hands;
      bringing_ = true;
      slot_free_ = false;
    } else if (!open_.empty()) {
      run = Claim(open_.begin()->second);
    } else if (MayPlan()) {
      opened = Plan();
    }
    if (HasWork()) work_.NotifyOne();  // one thread wakes the next
  }
  if (brought != nullptr) Bring(brought);
  if (opened != nullptr) Open(opened);
  if (run.flight != nullptr) Load(run, scratch);
}

bool Reader::MayPlan() const {
  const auto next = plan_.next();
  if (!next || held_ >= ahead_) return false;
  return held_ == 0 || held_bytes_ + loader_->Bytes(*next) <= options_.input.memory_bytes;
}

Reader::FlightPtr Reader::Plan() {
  const BatchId id = *plan_.next();
  plan_.Advance();
  FlightPtr& flight = flights_[id];
  if (flight != nullptr) return nullptr;  // somebody asked for it before it was come to
  flight = std::make_shared<Flight>(id);
  flight->held = true;
  flight->bytes = loader_->Bytes(id);
  ++held_;
  held_bytes_ += flight->bytes;
  return flight;
}

void Reader::Open(const FlightPtr& flight) {
  auto batch = loader_->Open(flight->id);
  MutexLock lock(mu_);
  if (batch.ok()) {
    flight->batch = *std::move(batch);
  } else {
    flight->Fail(0, batch.status());
  }
  if (flight->has_rows()) open_.insert_or_assign(flight->id, flight);
  Settle(flight);
}

Reader::Run Reader::Claim(const FlightPtr& flight) {
  const size_t rows = flight->batch->samples.size();
  const Run run = {flight, flight->next_row, std::min(flight->next_row + kRunRows, rows)};
  flight->next_row = run.end;
  ++flight->hands;
  if (run.end == rows) open_.erase(flight->id);
  return run;
}

void Reader::Load(const Run& run, LoadScratch* scratch) {
  const auto began = std::chrono::steady_clock::now();
  Status status = loader_->LoadRows(run.begin, run.end, scratch, run.flight->batch.get());
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
  {
    MutexLock lock(mu_);
    if (run.flight->id.set == job::SampleSet::kTrain) seconds_ += took.count();
    if (!status.ok()) {
      run.flight->Fail(run.begin, std::move(status));
      open_.erase(run.flight->id);
    }
    // The last hand at it finishes it, and keeps it from being whole meanwhile.
    const bool last = run.flight->status.ok() && run.flight->hands == 1 && !run.flight->has_rows();
    if (!last) return Settle(run.flight);
  }
  loader_->Finish(run.flight->batch.get());
  MutexLock lock(mu_);
  Settle(run.flight);
}

Reader::FlightPtr Reader::ToBring() const {
  if (options_.stage == nullptr || !slot_free_ || bringing_) return nullptr;
  for (const auto& [id, flight] : flights_) {
    if (flight->asked || !flight->whole() || !flight->status.ok()) continue;
    if (!flight->batch->pixels.span().empty() && flight->batch->staged == nullptr) return flight;
  }
  return nullptr;
}

// Nobody else has the batch meanwhile: who asks for it waits.
void Reader::Bring(const FlightPtr& flight) {
  auto staged = options_.stage->Bring(flight->batch->pixels.span());
  MutexLock lock(mu_);
  bringing_ = false;
  if (!staged.ok()) {
    flight->Fail(0, Annotate(staged.status(), "input copied ahead"));
    slot_free_ = true;
  } else if (*staged != nullptr) {
    flight->batch->staged = *std::move(staged);
    slot_free_ = true;
  }
  Settle(flight);
}

void Reader::Settle(const FlightPtr& flight) {
  --flight->hands;
  const auto found = flights_.find(flight->id);
  const bool passed_over = found == flights_.end() || found->second != flight;
  if (passed_over && flight->hands == 0) Release(flight.get());
  if (flight->asked) changed_.NotifyAll();
  if (HasWork()) work_.NotifyOne();
}

}  // namespace ringmaster::worker
