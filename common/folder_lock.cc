#include "common/folder_lock.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <thread>

#include "common/log.h"

namespace ringmaster {
namespace {

constexpr std::chrono::milliseconds kBetweenTries{20};

// Who wrote into the lock's file last: `process 123 has it`; empty when nobody did.
std::string HolderIn(int file) {
  std::array<char, 24> text{};
  const ssize_t bytes = pread(file, text.data(), text.size() - 1, 0);
  int pid = 0;
  if (bytes <= 0 || std::from_chars(text.data(), text.data() + bytes, pid).ec != std::errc()) {
    return "";
  }
  return fmt::format("process {} has it", pid);
}

// For people alone: who waits for the lock asks the kernel.
void WriteHolder(int file) {
  const std::string pid = std::to_string(getpid()) + "\n";
  if (ftruncate(file, 0) != 0 || pwrite(file, pid.data(), pid.size(), 0) < 0) return;
}

}  // namespace

StatusOr<std::unique_ptr<FolderLock>> FolderLock::Take(const std::string& folder,
                                                       const Options& options) {
  const std::string path = folder + "/lock";
  const int file = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (file < 0) {
    return Error(absl::StatusCode::kUnavailable, "{} {}: cannot open {}: {}", options.flag, folder,
                 path, std::strerror(errno));
  }
  std::unique_ptr<FolderLock> lock(new FolderLock(file));
  const auto deadline = std::chrono::steady_clock::now() + options.patience;
  for (bool told = false; flock(file, LOCK_EX | LOCK_NB) != 0; told = true) {
    if (errno != EWOULDBLOCK && errno != EINTR) {
      return Error(absl::StatusCode::kUnavailable, "{} {}: cannot lock {}: {}", options.flag,
                   folder, path, std::strerror(errno));
    }
    const std::string holder = HolderIn(file);
    const std::string who = holder.empty() ? "" : fmt::format(" ({})", holder);
    if (std::chrono::steady_clock::now() >= deadline) {
      return FailedPrecondition(
          "{} {} is used by another {}: {} is locked{}; stop that one, or give each one a folder "
          "of its own",
          options.flag, folder, options.program, path, who);
    }
    if (!told) {
      const std::string line =
          fmt::format("{} {} is locked{}: waiting up to {} s for its end", options.flag, folder,
                      who, options.patience.count() / 1000);
      options.waits ? options.waits(line) : spdlog::info("{}", line);
    }
    std::this_thread::sleep_for(kBetweenTries);
  }
  WriteHolder(file);
  return lock;
}

FolderLock::~FolderLock() { close(file_); }

}  // namespace ringmaster
