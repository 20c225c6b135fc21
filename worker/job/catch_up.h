// How a member that does not hold S(K) gets it before a generation begins: from the coordinator's
// checkpoint folder when nobody holds it, else from a member that does. Job thread; owned by the
// generation's run. It decides nothing: Start says who holds what.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "common/status.h"
#include "ringmaster/v1/fleet.pb.h"
#include "worker/logic/event.h"
#include "worker/train/trainer.h"
#include "worker/transfer/checkpoint_fetch.h"
#include "worker/transfer/state_fetch.h"

namespace ringmaster::worker {

// Where states come from; the seam to the network. Both wait for at most the deadline.
struct StateSources {
  std::function<Status(const FetchOptions& options, StateSink* sink, const std::stop_token& stop)>
      peer;
  std::function<StatusOr<Checkpoint>(const v1::CheckpointSource& source,
                                     std::chrono::steady_clock::time_point deadline,
                                     const std::stop_token& stop)>
      checkpoint;
};

// `status` is not OK when S(K) is not here; what that means for the run is `outcome`.
struct CatchUpResult {
  Status status;
  Outcome outcome = Outcome::kFinished;
  std::string peer;      // of kPeerLost: the member that did not give it; may be empty
  bool follows = false;  // S(K) is not here: it comes while the run follows the ring
  double seconds = 0;    // that it took; 0 when the state was here
};

class CatchUp {
 public:
  // All outlive it. `rank` is this worker's place in `start`.
  CatchUp(const v1::Start* start, uint32_t rank, const StateSources* sources, Trainer* trainer)
      : start_(start), rank_(rank), sources_(sources), trainer_(trainer) {}

  ~CatchUp();
  CatchUp(const CatchUp&) = delete;
  CatchUp& operator=(const CatchUp&) = delete;

  // Afterwards the trainer holds S(K), or it follows (until this object ends), or it has the state
  // that it held before. Members that hold S(K) are asked one after the other, each worker begins
  // with another one.
  [[nodiscard]] CatchUpResult Run(std::chrono::steady_clock::time_point deadline,
                                  const std::stop_token& stop);

 private:
  [[nodiscard]] Status CheckHeld() const;
  [[nodiscard]] CatchUpResult Restore(std::chrono::steady_clock::time_point deadline,
                                      const std::stop_token& stop);
  [[nodiscard]] CatchUpResult Fetch(std::chrono::steady_clock::time_point deadline,
                                    const std::stop_token& stop);
  [[nodiscard]] std::vector<const v1::RingMember*> Sources() const;
  [[nodiscard]] FetchOptions OptionsFor(const v1::RingMember& source) const;
  [[nodiscard]] Status FetchFrom(const v1::RingMember& source,
                                 std::chrono::steady_clock::time_point deadline,
                                 const std::stop_token& stop);
  // Whether it follows.
  [[nodiscard]] bool Follow(std::chrono::steady_clock::time_point deadline,
                            const std::stop_token& stop);
  [[nodiscard]] Status FollowFrom(const v1::RingMember& source,
                                  std::chrono::steady_clock::time_point deadline,
                                  const std::stop_token& stop);

  const v1::Start* const start_;
  const uint32_t rank_;
  const StateSources* const sources_;
  Trainer* const trainer_;
  std::shared_ptr<Follower> follower_;
  std::jthread fetch_;  // "follow": brings what it follows with
};

}  // namespace ringmaster::worker
