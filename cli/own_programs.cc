#include "cli/own_programs.h"

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <filesystem>

namespace ringmaster::cli {
namespace {

constexpr int kNotExecuted = 127;

// In the child, between fork and exec: async-signal-safe calls only.
[[noreturn]] void Become(pid_t parent, char* const* arguments) {
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (getppid() != parent) _exit(1);  // it died before the line above
  execv(arguments[0], arguments);
  _exit(kNotExecuted);
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
  std::vector<std::string> copies = arguments;
  std::vector<char*> pointers;
  for (std::string& argument : copies) pointers.push_back(argument.data());
  pointers.push_back(nullptr);
  std::fflush(stdout);
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid == 0) Become(parent, pointers.data());
  if (pid < 0) return Internal("cannot start {}: {}", arguments[0], std::strerror(errno));
  int status = 0;
  while (waitpid(pid, &status, 0) < 0) {
    if (errno != EINTR) return Internal("waiting for {}: {}", arguments[0], std::strerror(errno));
  }
  if (WIFSIGNALED(status)) return 128 + WTERMSIG(status);
  if (WEXITSTATUS(status) != kNotExecuted) return WEXITSTATUS(status);
  return FailedPrecondition("{} cannot be executed", arguments[0]);
}

}  // namespace ringmaster::cli
