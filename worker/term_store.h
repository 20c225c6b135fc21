// The highest coordinator term that this worker obeyed, in its state folder: it outlives the
// process. Stored on a thread of its own, "term", since a disk may take its time. Owned by the
// daemon; Store and GiveUpLate on the loop thread, Start and Stop by its owner.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "common/loop.h"
#include "common/mutex.h"
#include "common/status.h"
#include "worker/logic/event.h"

namespace ringmaster::worker {

class TermStore {
 public:
  struct Options {
    std::string state_dir;
    // After which an attempt counts as failed. The disk may still make it durable, which does no
    // harm: a process that begins with it only obeys fewer coordinators.
    std::chrono::milliseconds limit{10'000};
  };

  // The highest term in `state_dir`; 0 when there is none yet. DATA_LOSS: the file is not a number.
  [[nodiscard]] static StatusOr<uint64_t> Load(const std::string& state_dir);

  // `post` gets one TermStored for each Store, on either thread; it must not block.
  TermStore(Options options, std::function<void(Event)> post);

  void Start() { loop_.Start(); }
  // Waits for an attempt that is under way. Idempotent.
  void Stop() { loop_.Stop(); }
  void Store(uint64_t term);
  // Answers for attempts that take longer than the limit; about once a second.
  void GiveUpLate();

 private:
  // Answers for this attempt, unless it was answered before.
  void Answer(uint64_t attempt, uint64_t term, const Status& status);

  const Options options_;
  const std::function<void(Event)> post_;

  struct Attempt {
    uint64_t term = 0;
    std::chrono::steady_clock::time_point deadline;
  };
  Mutex mu_;
  uint64_t last_ ABSL_GUARDED_BY(mu_) = 0;
  std::map<uint64_t, Attempt> open_ ABSL_GUARDED_BY(mu_);  // attempts without an answer

  uint64_t written_ = 0;                     // the highest by this process; loop thread
  Loop loop_{{.name = "term", .limit = 8}};  // last: its tasks use the rest
};

}  // namespace ringmaster::worker
