// The processes that a test has plugins in: who they are, their end, and a moment at which they are
// in the middle of something. Main thread, but for what says otherwise.
#pragma once

#include <dirent.h>
#include <poll.h>
#include <signal.h>
#include <sys/inotify.h>

#include <algorithm>
#include <fstream>
#include <functional>
#include <set>
#include <string>
#include <thread>

#include "common/check.h"
#include "common/files.h"

namespace ringmaster::testing {

// Processes that this one has started and that are not over. Any thread.
inline std::set<pid_t> Children() {
  std::set<pid_t> children;
  DIR* const tasks = opendir("/proc/self/task");
  for (const dirent* task = nullptr; (task = readdir(tasks)) != nullptr;) {
    std::ifstream file(std::string("/proc/self/task/") + task->d_name + "/children");
    for (pid_t child = 0; file >> child;) children.insert(child);
  }
  closedir(tasks);
  return children;
}

// Kills the processes that are there now and waits until nobody sees them any more. Any thread.
inline void KillChildren() {
  const std::set<pid_t> doomed = Children();
  for (const pid_t child : doomed) kill(child, SIGKILL);
  const auto any_left = [&] {
    const std::set<pid_t> left = Children();
    return std::any_of(doomed.begin(), doomed.end(),
                       [&](pid_t child) { return left.contains(child); });
  };
  while (any_left()) std::this_thread::yield();
}

// On a thread of its own does something as soon as somebody makes a file in a folder, such as the
// once_file of a plugin double that hangs.
class OnceMade {
 public:
  OnceMade(const std::string& folder, std::function<void()> action)
      : watch_(inotify_init1(IN_CLOEXEC)), action_(std::move(action)) {
    RING_CHECK(inotify_add_watch(watch_.get(), folder.c_str(), IN_CREATE) >= 0, "a folder");
    thread_ = std::jthread([this] {
      pollfd file = {.fd = watch_.get(), .events = POLLIN};
      constexpr int kLimit = 60'000;  // of milliseconds
      made_ = poll(&file, 1, kLimit) == 1;
      if (made_) action_();
    });
  }
  OnceMade(const OnceMade&) = delete;
  OnceMade& operator=(const OnceMade&) = delete;

  // Whether it was made; then it is done.
  [[nodiscard]] bool Join() {
    thread_.join();
    return made_;
  }

 private:
  const OwnedFile watch_;
  const std::function<void()> action_;
  bool made_ = false;  // the thread's, until it is joined
  std::jthread thread_;
};

}  // namespace ringmaster::testing
