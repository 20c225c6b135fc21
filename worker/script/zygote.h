// Children of a script: one process that has imported what takes long, forks of it, what they
// print, and how they ended (docs/core_protocol.md). A zygote that died, and its children with it,
// is started again for the next child; so are, some times, one that is killed before it is up and a
// child that is killed before it attaches. Owned by the job of the script, thread-safe: cores share
// it.
#pragma once

#include <absl/base/thread_annotations.h>
#include <sys/types.h>

#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "common/files.h"
#include "common/mutex.h"
#include "common/status.h"
#include "ringmaster/v1/script.pb.h"
#include "worker/process/subprocess.h"
#include "worker/script/child.h"

namespace ringmaster::script {

struct ZygoteOptions {
  std::string python;                    // path of an interpreter
  std::vector<std::string> environment;  // NAME=VALUE; the package is in its PYTHONPATH
  std::string script;                    // path
  std::vector<std::string> arguments;
  std::chrono::milliseconds up_limit{600'000};   // for what it imports
  std::chrono::milliseconds stack_limit{1'000};  // of a child that hangs, to say where
  // What a child prints, one line, on the zygote's thread. Of a flood the first lines of each
  // second.
  std::function<void(uint32_t core, const std::string& line)> print;
};

class Zygote final : public ChildSource {
 public:
  // Once it is up. FAILED_PRECONDITION: this interpreter cannot run scripts, and what to do.
  [[nodiscard]] static StatusOr<std::unique_ptr<Zygote>> Create(ZygoteOptions options,
                                                                const std::stop_token& stop);
  ~Zygote() override;  // ends all children
  Zygote(const Zygote&) = delete;
  Zygote& operator=(const Zygote&) = delete;

  // `patience` counts from the child's birth.
  [[nodiscard]] StatusOr<StartedChild> Start(const v1::ScriptHello& hello,
                                             std::chrono::milliseconds patience,
                                             const std::stop_token& stop) override;

 private:
  // A child's stdout and stderr.
  class Output;
  // What the thread has of one process: it is followed until its control socket ends.
  struct Followed {
    std::shared_ptr<Subprocess> process;
    bool over = false;
  };
  struct Forked {
    uint32_t core = 0;
    int32_t id = 0;  // negative: an errno
  };

  explicit Zygote(ZygoteOptions options);

  // The process, a new one where it has ended.
  [[nodiscard]] StatusOr<std::shared_ptr<Subprocess>> EnsureProcess(const std::stop_token& stop)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(fork_mu_);
  [[nodiscard]] StatusOr<std::shared_ptr<Subprocess>> StartProcess(
      const std::stop_token& stop) const;
  // `killed`: the process was, before it could.
  [[nodiscard]] StatusOr<std::unique_ptr<Child>> Fork(uint32_t core, const std::stop_token& stop,
                                                      bool* killed);
  // `killed`: the child was, or what it is to be a fork of.
  [[nodiscard]] StatusOr<StartedChild> StartOnce(const v1::ScriptHello& hello,
                                                 std::chrono::milliseconds patience,
                                                 const std::stop_token& stop, bool* killed);
  // How a child of that process ended, once it has.
  [[nodiscard]] Fate FateOf(pid_t id, const std::weak_ptr<Subprocess>& parent);

  void Loop();
  // Everything that a process says; false: it says no more.
  [[nodiscard]] bool Hear(const Subprocess& process);
  void Wake() const;

  const ZygoteOptions options_;
  const OwnedFile wake_;  // an event: there is more to follow, or nothing any more

  Mutex fork_mu_;  // one FORK at a time; before mu_
  std::shared_ptr<Subprocess> process_ ABSL_GUARDED_BY(fork_mu_);

  Mutex mu_;
  Condition changed_;
  bool ending_ ABSL_GUARDED_BY(mu_) = false;
  std::optional<Followed> followed_ ABSL_GUARDED_BY(mu_);
  std::vector<std::unique_ptr<Output>> fresh_ ABSL_GUARDED_BY(mu_);  // to be read from now on
  std::optional<Forked> forked_ ABSL_GUARDED_BY(mu_);  // the answer to the newest FORK
  uint64_t forks_ ABSL_GUARDED_BY(mu_) = 0, answers_ ABSL_GUARDED_BY(mu_) = 0;  // of this process
  // Wait status of those that nobody asked for yet, the oldest first.
  std::deque<std::pair<pid_t, int>> ended_ ABSL_GUARDED_BY(mu_);

  std::jthread thread_;  // script
};

}  // namespace ringmaster::script
