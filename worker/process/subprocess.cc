#include "worker/process/subprocess.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <utility>

#include <spdlog/spdlog.h>

#include "common/amount.h"
#include "common/text.h"

extern char** environ;

namespace ringmaster {
namespace {

using std::chrono::steady_clock;

constexpr std::chrono::milliseconds kBetweenKills{10};
constexpr size_t kKeptLines = 20;

// Of strings, as exec wants them.
std::vector<char*> Pointers(const std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (const std::string& text : texts) pointers.push_back(const_cast<char*>(text.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

// Of what was said last what says most: behind a failed check comes a stack trace.
std::string LastWord(const std::deque<std::string>& lines) {
  const auto fatal = [](const std::string& line) {
    const bool glog = line.size() > 1 && line[0] == 'F' && std::isdigit(line[1]) != 0;
    return glog || line.find("Check failed") != std::string::npos;
  };
  const auto found = std::find_if(lines.rbegin(), lines.rend(), fatal);
  if (found != lines.rend()) return *found;
  return lines.empty() ? "" : lines.back();
}

}  // namespace

std::string DescribeExit(int status) {
  if (WIFSIGNALED(status)) {
    return fmt::format("was killed by signal {} ({})", WTERMSIG(status),
                       strsignal(WTERMSIG(status)));
  }
  return fmt::format("ended with exit code {}", WEXITSTATUS(status));
}

constexpr size_t kMostAtEnd = 16 << 20;  // of what it said last, and others who have its stderr

bool WasKilled(int status) { return WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL; }

bool PipeLines::Read(int file, size_t most) {
  std::array<char, 16 * 1024> bytes = {};
  ssize_t got = 0;
  for (size_t all = 0; all < most && (got = read(file, bytes.data(), bytes.size())) > 0;) {
    all += static_cast<size_t>(got);
    partial_.append(bytes.data(), static_cast<size_t>(got));
    size_t begin = 0;
    for (size_t end = 0; (end = partial_.find('\n', begin)) != std::string::npos; begin = end + 1) {
      take_(OneLine(partial_.substr(begin, end - begin)));
    }
    partial_.erase(0, begin);
    if (partial_.size() > kMaxLogText) take_(OneLine(std::exchange(partial_, "")));
  }
  if (got > 0 || (got < 0 && (errno == EAGAIN || errno == EINTR))) return true;
  End();
  return false;
}

void PipeLines::End() {
  if (!partial_.empty()) take_(OneLine(std::exchange(partial_, "")));
}

std::vector<std::string> OwnEnvironment() {
  std::vector<std::string> variables;
  for (char** variable = environ; *variable != nullptr; ++variable)
    variables.emplace_back(*variable);
  return variables;
}

StatusOr<std::shared_ptr<Subprocess>> Subprocess::Start(SubprocessOptions options) {
  OwnedFile given_up(eventfd(0, EFD_CLOEXEC));
  std::array<int, 2> ends = {};
  if (given_up.get() < 0 ||
      socketpair(AF_UNIX, options.control_type | SOCK_CLOEXEC, 0, ends.data()) != 0) {
    return Error(absl::StatusCode::kResourceExhausted, "cannot make a socket: {}",
                 std::strerror(errno));
  }
  std::shared_ptr<Subprocess> process(
      new Subprocess(std::move(options), OwnedFile(ends[0]), std::move(given_up)));
  process->thread_ = std::jthread([self = process.get(), other_end = OwnedFile(ends[1])]() mutable {
    self->Follow(std::move(other_end));
  });
  pthread_setname_np(process->thread_.native_handle(), process->options_.thread.c_str());
  MutexLock lock(process->mu_);
  const auto started = [&]()
                           ABSL_NO_THREAD_SAFETY_ANALYSIS { return process->started_.has_value(); };
  const std::chrono::milliseconds limit = process->options_.start_limit;
  if (!process->changed_.WaitUntil(process->mu_, steady_clock::now() + limit, started)) {
    return Error(absl::StatusCode::kDeadlineExceeded,
                 "{} was not started within {}: does the file system that it is on answer?",
                 process->options_.command.front(), ExactDuration(limit));
  }
  RING_RETURN_IF_ERROR(*process->started_);
  return process;
}

Subprocess::~Subprocess() {
  control_.Close();
  MutexLock lock(mu_);
  BreakOffStart();
  if (id_ < 0 || AwaitEnd()) return;
  spdlog::warn("{} {} does not end: it is left behind", options_.called, id_);
  const uint64_t one = 1;
  (void)!write(given_up_.get(), &one, sizeof(one));  // which only a full counter refuses
}

// A child that hangs in its exec, of a program on a file system that does not answer, holds the
// thread in posix_spawn, and has no id here yet: the kernel knows whose it is.
void Subprocess::BreakOffStart() {
  const auto started = [&]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return started_.has_value(); };
  while (!started()) {
    std::ifstream children(fmt::format("/proc/self/task/{}/children", thread_id_));
    for (pid_t child = -1; children >> child;) kill(child, SIGKILL);
    (void)changed_.WaitUntil(mu_, steady_clock::now() + kBetweenKills, started);
  }
}

bool Subprocess::AwaitEnd() {
  const auto ended = [&]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return ended_; };
  if (changed_.WaitUntil(mu_, steady_clock::now() + options_.end_limit, ended)) return true;
  by_us_ = true;
  if (id_ > 0) kill(id_, SIGKILL);
  return changed_.WaitUntil(mu_, steady_clock::now() + options_.end_limit, ended);
}

pid_t Subprocess::id() const {
  MutexLock lock(mu_);
  return id_;
}

bool Subprocess::ended() const {
  MutexLock lock(mu_);
  return ended_;
}

bool Subprocess::killed() {
  MutexLock lock(mu_);
  return AwaitEnd() && killed_ && !by_us_ && reason_.ok();
}

bool Subprocess::doomed() const {
  MutexLock lock(mu_);
  return ended_ || !reason_.ok();
}

void Subprocess::Kill(const Status& reason) {
  MutexLock lock(mu_);
  if (ended_ || id_ < 0) return;
  if (reason_.ok()) reason_ = reason;
  kill(id_, SIGKILL);  // not reaped yet: the id is still its own
}

Status Subprocess::Fate() {
  MutexLock lock(mu_);
  const bool ended = AwaitEnd();
  const std::string said = LastWord(last_);
  const std::string words = said.empty() ? "" : fmt::format("; it said last: {}", said);
  if (!ended) {
    return Error(absl::StatusCode::kUnavailable,
                 "{}{} {} does not end, not even by SIGKILL: a call into its "
                 "driver hangs; `dmesg` may say more, and a restart of the host ends it{}",
                 reason_.ok() ? "" : Message(reason_) + ", and ", options_.called, id_, words);
  }
  if (reason_.ok()) {
    return Error(absl::StatusCode::kUnavailable, "{} {}{}", options_.called, exit_, words);
  }
  return Status(reason_.code(), Message(reason_) + ", and its process was ended" + words);
}

void Subprocess::Follow(OwnedFile other_end) {
  {
    MutexLock lock(mu_);
    thread_id_ = gettid();
  }
  OwnedFile errors, process;
  const Status spawned = Spawn(other_end.get(), &errors, &process);
  other_end.Close();
  {
    MutexLock lock(mu_);
    started_ = spawned;
    ended_ = !spawned.ok();
    changed_.NotifyAll();
  }
  if (spawned.ok() && ReadErrors(errors.get(), process.get())) Reap();
}

Status Subprocess::Spawn(int other_end, OwnedFile* errors, OwnedFile* process) {
  std::array<int, 2> pipe_ends = {};
  if (pipe2(pipe_ends.data(), O_CLOEXEC) != 0) {
    return Error(absl::StatusCode::kResourceExhausted, "cannot make a pipe: {}",
                 std::strerror(errno));
  }
  *errors = OwnedFile(pipe_ends[0]);
  const OwnedFile written(pipe_ends[1]);
  fcntl(errors->get(), F_SETFL, O_NONBLOCK);

  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, written.get(), STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, written.get(), STDERR_FILENO);
  posix_spawn_file_actions_adddup2(&actions, other_end, kControlFile);
  posix_spawn_file_actions_addclosefrom_np(&actions, kControlFile + 1);
  // What this process ignores or blocks, its child should not. But what a terminal or a service
  // manager says to all processes is for this one: it may finish a step first. Blocked, because
  // plugins have handlers of their own.
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t blocked, all;
  sigemptyset(&blocked);
  sigaddset(&blocked, SIGTERM);
  sigaddset(&blocked, SIGINT);
  sigfillset(&all);
  posix_spawnattr_setsigmask(&attributes, &blocked);
  posix_spawnattr_setsigdefault(&attributes, &all);
  posix_spawnattr_setflags(&attributes,
                           POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);

  const std::string& program = options_.command.front();
  const std::vector<char*> arguments = Pointers(options_.command);
  const std::vector<char*> environment = Pointers(options_.environment);
  pid_t id = -1;
  const int error = posix_spawn(&id, program.c_str(), &actions, &attributes, arguments.data(),
                                environment.data());
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) {
    return FailedPrecondition("{} cannot be started: {}", program, std::strerror(error));
  }
  *process = OwnedFile(static_cast<int>(syscall(SYS_pidfd_open, id, 0)));
  if (process->get() < 0) {
    const int why = errno;
    kill(id, SIGKILL);
    waitpid(id, nullptr, 0);
    return Error(absl::StatusCode::kResourceExhausted,
                 "{} cannot be watched: pidfd_open, which Linux has since 5.3: {}", program,
                 std::strerror(why));
  }
  MutexLock lock(mu_);
  id_ = id;
  return absl::OkStatus();
}

bool Subprocess::ReadErrors(int errors, int process) {
  std::array<pollfd, 3> files = {pollfd{process, POLLIN, 0}, pollfd{errors, POLLIN, 0},
                                 pollfd{given_up_.get(), POLLIN, 0}};
  constexpr int kLookAgain = 60'000;
  for (;;) {
    const int ready = poll(files.data(), files.size(), kLookAgain);
    if (ready < 0 && errno != EINTR) return false;
    if (ready <= 0) continue;
    // Once all who had it have closed it there is no more.
    if (files[1].revents != 0 && !lines_.Read(errors)) files[1].fd = -1;
    if (files[0].revents != 0) break;
    if (files[2].revents != 0) return false;
  }
  (void)lines_.Read(errors, kMostAtEnd);
  lines_.End();
  return true;
}

void Subprocess::TakeLine(const std::string& line) {
  spdlog::info("{}: {}", options_.log, line);
  MutexLock lock(mu_);
  last_.push_back(line);
  if (last_.size() > kKeptLines) last_.pop_front();
}

void Subprocess::Reap() {
  MutexLock lock(mu_);  // so that nobody kills an id that is free again
  int status = 0;
  const bool seen = waitpid(id_, &status, WNOHANG) > 0;
  exit_ = seen ? DescribeExit(status) : "ended, unseen";
  killed_ = seen && WasKilled(status);
  ended_ = true;
  changed_.NotifyAll();
}

}  // namespace ringmaster
