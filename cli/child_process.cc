#include "cli/child_process.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <utility>

#include <sys/prctl.h>
#include <sys/wait.h>

namespace ringmaster::cli {
namespace {

constexpr size_t kLongestLine = 64 << 10;

// In the child, between fork and exec: async-signal-safe calls only.
[[noreturn]] void Exec(pid_t parent, int output, char* const* arguments) {
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (getppid() != parent) _exit(1);  // it died before the line above
  setpgid(0, 0);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  dup2(output, STDOUT_FILENO);
  dup2(output, STDERR_FILENO);
  execv(arguments[0], arguments);
  static constexpr char kMessage[] = "cannot be executed\n";
  [[maybe_unused]] const ssize_t wrote = write(STDERR_FILENO, kMessage, sizeof(kMessage) - 1);
  _exit(127);
}

}  // namespace

StatusOr<ChildProcess> ChildProcess::Start(const std::string& name,
                                           const std::vector<std::string>& arguments) {
  int pipe_ends[2];
  if (pipe2(pipe_ends, O_CLOEXEC) != 0) {
    return Internal("cannot make a pipe for {}: {}", name, std::strerror(errno));
  }
  OwnedFile output(pipe_ends[0]);
  fcntl(output.get(), F_SETFL, O_NONBLOCK);
  std::vector<std::string> copies = arguments;
  std::vector<char*> pointers;
  for (std::string& argument : copies) pointers.push_back(argument.data());
  pointers.push_back(nullptr);
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid == 0) Exec(parent, pipe_ends[1], pointers.data());
  const int error = errno;
  close(pipe_ends[1]);
  if (pid < 0) return Internal("cannot start {}: {}", name, std::strerror(error));
  return ChildProcess(name, pid, std::move(output));
}

ChildProcess::ChildProcess(std::string name, pid_t pid, OwnedFile output)
    : name_(std::move(name)), pid_(pid), output_(std::move(output)) {}

ChildProcess::ChildProcess(ChildProcess&& other) noexcept
    : name_(std::move(other.name_)),
      pid_(std::exchange(other.pid_, -1)),
      output_(std::move(other.output_)),
      wait_status_(other.wait_status_),
      partial_(std::move(other.partial_)) {}

ChildProcess::~ChildProcess() {
  if (pid_ > 0) {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
}

void ChildProcess::ReadLines(const std::function<void(const std::string&)>& sink) {
  char buffer[16 << 10];
  while (output_.valid()) {
    const ssize_t got = read(output_.get(), buffer, sizeof(buffer));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) return;
    if (got <= 0) {
      output_.Close();
      if (!partial_.empty()) sink(std::exchange(partial_, ""));
      return;
    }
    partial_.append(buffer, static_cast<size_t>(got));
    size_t begin = 0;
    for (size_t end; (end = partial_.find('\n', begin)) != std::string::npos; begin = end + 1) {
      sink(partial_.substr(begin, end - begin));
    }
    partial_.erase(0, begin);
    if (partial_.size() > kLongestLine) sink(std::exchange(partial_, ""));
  }
}

bool ChildProcess::Reap() {
  if (pid_ > 0 && waitpid(pid_, &wait_status_, WNOHANG) == pid_) pid_ = -1;
  return pid_ < 0;
}

void ChildProcess::Signal(int signal) const {
  if (pid_ > 0) kill(pid_, signal);
}

std::string ChildProcess::HowItEnded() const {
  if (WIFSIGNALED(wait_status_)) {
    return fmt::format("was ended by signal {} ({})", WTERMSIG(wait_status_),
                       strsignal(WTERMSIG(wait_status_)));
  }
  return fmt::format("ended with exit code {}", WEXITSTATUS(wait_status_));
}

namespace {

constexpr int kNotExecuted = 127;

constexpr std::chrono::minutes kAnswerDeadline(3);  // a plugin of a TPU takes two to start
constexpr size_t kMostOutput = 8 << 20;

// In the child, between fork and exec: async-signal-safe calls only. `output`: its stdout; -1: this
// process's own.
[[noreturn]] void Become(pid_t parent, char* const* arguments, int output) {
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (getppid() != parent) _exit(1);  // it died before the line above
  if (output >= 0) dup2(output, STDOUT_FILENO);
  execv(arguments[0], arguments);
  _exit(kNotExecuted);
}

StatusOr<pid_t> Launch(const std::vector<std::string>& arguments, int output) {
  std::vector<std::string> copies = arguments;
  std::vector<char*> pointers;
  for (std::string& argument : copies) pointers.push_back(argument.data());
  pointers.push_back(nullptr);
  std::fflush(stdout);
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid == 0) Become(parent, pointers.data(), output);
  if (pid < 0) return Internal("cannot start {}: {}", arguments[0], std::strerror(errno));
  return pid;
}

// Its exit code, as RunToEnd's.
StatusOr<int> WaitFor(const std::string& program, pid_t pid) {
  int status = 0;
  while (waitpid(pid, &status, 0) < 0) {
    if (errno != EINTR) return Internal("waiting for {}: {}", program, std::strerror(errno));
  }
  if (WIFSIGNALED(status)) return 128 + WTERMSIG(status);
  if (WEXITSTATUS(status) != kNotExecuted) return WEXITSTATUS(status);
  return FailedPrecondition("{} cannot be executed", program);
}

// Until the end of the stream; false when that took too long.
bool ReadAll(int descriptor, std::string* text) {
  const auto end = std::chrono::steady_clock::now() + kAnswerDeadline;
  for (;;) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        end - std::chrono::steady_clock::now());
    if (left.count() <= 0) return false;
    pollfd wait = {descriptor, POLLIN, 0};
    if (poll(&wait, 1, static_cast<int>(left.count())) <= 0) continue;
    char bytes[4096];
    const ssize_t n = read(descriptor, bytes, sizeof(bytes));
    if (n == 0 || (n < 0 && errno != EINTR)) return true;
    if (n > 0 && text->size() < kMostOutput) text->append(bytes, static_cast<size_t>(n));
  }
}

}  // namespace

StatusOr<std::string> FolderOf(const std::vector<std::string>& programs) {
  std::error_code error;
  const auto self = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) return Internal("cannot find ringctl's own folder: {}", error.message());
  const std::string folder = self.parent_path().string();
  for (const std::string& program : programs) {
    if (!std::filesystem::exists(self.parent_path() / program, error)) {
      return FailedPrecondition("there is no {} beside ringctl in {}", program, folder);
    }
  }
  return folder;
}

StatusOr<int> RunToEnd(const std::vector<std::string>& arguments) {
  RING_ASSIGN_OR_RETURN(const pid_t pid, Launch(arguments, -1));
  return WaitFor(arguments[0], pid);
}

StatusOr<std::string> OutputOf(const std::vector<std::string>& arguments, int good) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return Internal("pipe: {}", std::strerror(errno));
  const StatusOr<pid_t> pid = Launch(arguments, ends[1]);
  close(ends[1]);
  std::string text;
  const bool ended = pid.ok() && ReadAll(ends[0], &text);
  close(ends[0]);
  RING_RETURN_IF_ERROR(pid.status());
  if (!ended) kill(*pid, SIGKILL);
  RING_ASSIGN_OR_RETURN(const int code, WaitFor(arguments[0], *pid));
  if (!ended) {
    return Error(absl::StatusCode::kUnknown, "{} did not end within {} s and was killed",
                 arguments[0], std::chrono::seconds(kAnswerDeadline).count());
  }
  if (code == 0 || (code == good && !text.empty())) return text;
  return FailedPrecondition("{} ended with {}; what it said stands above", arguments[0], code);
}

}  // namespace ringmaster::cli
