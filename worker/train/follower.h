// The state of a job on its way in, piece by piece, while the job follows its ring: it takes part
// in every step with nothing of its own, and updates all that it has, come or not, so that what has
// come stays as new as the ring's.
//
//   fetches    what the job holds is untouched; numbers of S(K) come
//   follows    the job's state is S(k) but for pieces that are not there yet. A piece is of the
//   state
//              that the job is at when it is written: a later one waits for that, and the step k is
//              not ended here before something of S(k + 1) has come, behind which nothing of S(k)
//              can
//   whole      all pieces are there, and have the hash that the digest says
//   over       given up: the job has the state again that it held before
//
// One thread writes, the step thread does the rest; where both meet is the job's state_mu.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "common/mutex.h"
#include "common/sha256.h"
#include "common/status.h"
#include "worker/state/state.h"
#include "worker/state/state_row.h"

namespace ringmaster::worker {

struct TrainingJob;

class Follower : public StateSink {
 public:
  // Whether a job can: its elements are updated one by one on the host, from exact sums.
  [[nodiscard]] static bool Can(const TrainingJob& job);

  // `job` outlives it. `room`: a state as the job begins with it. `source`: the name of the member
  // that it comes from.
  Follower(TrainingJob* job, State room, std::string source);
  ~Follower() override;
  Follower(const Follower&) = delete;
  Follower& operator=(const Follower&) = delete;

  // Of the thread that fetches. CANCELLED: it is over.
  Status Begin(const StateFacts& facts) override;
  Status Write(uint64_t offset, uint64_t step, std::span<const uint8_t> from) override;
  // Nothing more comes.
  void End(const Status& status);

  // ---- step thread ------------------------------------------------------------------------------
  // Waits for the numbers of S(K), and makes the job follow. DATA_LOSS: the source's K has another
  // digest, or they are none of this job's; CANCELLED: `abandoned`; else why nothing comes. The job
  // is as before after an error.
  Status TakeUp(const Sha256Digest& digest, const std::function<bool()>& abandoned);
  // What is awaited before the job ends step k, or ends with S(k).
  enum class Awaits : uint8_t { kNothing, kNextState, kAll };
  // Whether it is whole: from then on the job's state is like any other. Else, of kNextState, the
  // job may end the step. UNAVAILABLE: the source is lost; DATA_LOSS: what came is not the state.
  [[nodiscard]] StatusOr<bool> KeepUp(Awaits awaits, const std::function<bool()>& abandoned);
  // Unless it is whole: the job holds what it held before, and its weights are stale.
  void GiveUp();
  // Waits look anew: the job has ended a step, or the run is abandoned. Any thread.
  void Nudge();
  // Whether KeepUp returned an error that the source is to blame for.
  [[nodiscard]] bool failed() const { return failed_; }
  [[nodiscard]] const std::string& source() const { return source_; }

 private:
  enum class Stage : uint8_t { kFetches, kFollows, kWhole, kOver };

  [[nodiscard]] bool Await(const std::function<bool()>& abandoned,
                           const std::function<bool()>& done);
  Status BecomeWhole();

  TrainingJob* const job_;

  // Under job_->state_mu.
  Condition changed_;
  Stage stage_ = Stage::kFetches;
  std::optional<State> room_;  // where it grows, then what the job held before
  std::optional<Evaluation> former_validation_, former_test_;
  StateWriter writer_;
  bool numbers_here_ = false;
  bool complete_ = false;
  uint64_t newest_ = 0;          // of which something has come
  std::optional<Status> ended_;  // nothing more comes

  const std::string source_;
  bool failed_ = false;
};

}  // namespace ringmaster::worker
