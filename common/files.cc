#include "common/files.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <thread>

#include <absl/strings/ascii.h>
#include <fmt/format.h>
#include <spdlog/spdlog.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include "common/log.h"

namespace ringmaster {
namespace {

Status SystemError(const std::string& what, const std::string& path) {
  return Error(absl::StatusCode::kUnavailable, "cannot {} {}: {}", what, path,
               std::strerror(errno));
}

Status WriteAndSync(int file, const std::string& path, const std::string& content) {
  if (!WriteAll(file, content)) return SystemError("write", path);
  if (fsync(file) != 0) return SystemError("sync", path);
  return absl::OkStatus();
}

// Of a text, which may be read into.
std::span<uint8_t> BytesOf(std::string* text) {
  return {reinterpret_cast<uint8_t*>(text->data()), text->size()};
}

// How many there are; where they are fewer, errno says why, and 0 that the file ends there.
size_t ReadWhat(int file, uint64_t offset, std::span<uint8_t> bytes) {
  size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t got =
        pread(file, bytes.data() + done, bytes.size() - done, static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got == 0) errno = 0;
    if (got <= 0) break;
    done += static_cast<size_t>(got);
  }
  return done;
}

// Calls write or pwrite, as `once` does, until all of `bytes` is written.
template <typename Once>
bool WriteBy(std::span<const uint8_t> bytes, const Once& once) {
  for (size_t done = 0; done < bytes.size();) {
    const ssize_t wrote = once(done, bytes.subspan(done));
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote == 0) errno = ENOSPC;
    if (wrote <= 0) return false;
    done += static_cast<size_t>(wrote);
  }
  return true;
}

}  // namespace

bool WriteAll(int file, std::span<const uint8_t> bytes) {
  return WriteBy(bytes, [&](size_t /*done*/, std::span<const uint8_t> left) {
    return write(file, left.data(), left.size());
  });
}

bool WriteAll(int file, const std::string& text) {
  return WriteAll(file, {reinterpret_cast<const uint8_t*>(text.data()), text.size()});
}

bool WriteAllAt(int file, uint64_t offset, std::span<const uint8_t> bytes) {
  return WriteBy(bytes, [&](size_t done, std::span<const uint8_t> left) {
    return pwrite(file, left.data(), left.size(), static_cast<off_t>(offset + done));
  });
}

StatusOr<size_t> ReadUpTo(int file, uint64_t offset, std::span<uint8_t> bytes) {
  const size_t got = ReadWhat(file, offset, bytes);
  if (got == bytes.size() || errno == 0) return got;
  return Error(absl::StatusCode::kUnavailable, "{}", std::strerror(errno));
}

Status ReadExactly(int file, uint64_t offset, std::span<uint8_t> bytes) {
  const StatusOr<size_t> got = ReadUpTo(file, offset, bytes);
  if (!got.ok()) return {absl::StatusCode::kDataLoss, got.status().message()};
  if (*got == bytes.size()) return absl::OkStatus();
  return {absl::StatusCode::kDataLoss, "it ends early: it shrank while it was in use"};
}

StatusOr<std::string> ReadExactly(int file, uint64_t offset, uint64_t bytes) {
  std::string text(bytes, '\0');
  RING_RETURN_IF_ERROR(ReadExactly(file, offset, BytesOf(&text)));
  return text;
}

std::string ReadText(int file, uint64_t offset, uint64_t most_bytes) {
  std::string text(most_bytes, '\0');
  text.resize(ReadWhat(file, offset, BytesOf(&text)));
  return text;
}

Status MakePrivateFolder(const std::string& path, IfThere there) {
  if (mkdir(path.c_str(), 0700) == 0) return absl::OkStatus();
  if (errno == ENOENT) {
    const std::string above = std::filesystem::path(path).parent_path().string();
    if (above.empty() || above == path) return SystemError("make folder", path);
    RING_RETURN_IF_ERROR(MakePrivateFolder(above, IfThere::kKeep));
    return MakePrivateFolder(path, there);
  }
  struct stat now = {};
  if (errno != EEXIST || stat(path.c_str(), &now) != 0) return SystemError("make folder", path);
  if (!S_ISDIR(now.st_mode)) {
    errno = ENOTDIR;
    return SystemError("use as a folder", path);
  }
  if (there == IfThere::kTighten) {
    const bool tight = (now.st_mode & 0077) == 0 || chmod(path.c_str(), 0700) == 0;
    return tight ? absl::OkStatus() : SystemError("make 0700 of folder", path);
  }
  if ((now.st_mode & 0027) != 0) {
    spdlog::warn(
        "folder {} has mode {:04o}: others may read names in it, or write to it; `chmod 700` "
        "keeps it to this user",
        path, now.st_mode & 07777);
  }
  return absl::OkStatus();
}

Status MakePrivateFile(const std::string& path) {
  const OwnedFile file(open(path.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!file.valid()) return SystemError("open", path);
  struct stat now = {};
  const bool tight =
      fstat(file.get(), &now) == 0 && ((now.st_mode & 0077) == 0 || fchmod(file.get(), 0600) == 0);
  return tight ? absl::OkStatus() : SystemError("make 0600 of", path);
}

std::optional<uint64_t> FreeBytes(const std::string& folder) {
  struct statvfs disk = {};
  if (statvfs(folder.c_str(), &disk) != 0) return std::nullopt;
  return uint64_t{disk.f_bavail} * disk.f_frsize;
}

Status SyncFolder(const std::string& folder) {
  const OwnedFile file(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!file.valid()) return SystemError("open folder", folder);
  return fsync(file.get()) == 0 ? absl::OkStatus() : SystemError("sync folder", folder);
}

Status WriteDurably(const std::string& path, const std::string& content, mode_t mode) {
  std::string temporary = path + ".XXXXXX";
  OwnedFile file(mkostemp(temporary.data(), O_CLOEXEC));
  if (!file.valid()) return SystemError("create a temporary beside", path);
  Status status = fchmod(file.get(), mode) == 0 ? WriteAndSync(file.get(), temporary, content)
                                                : SystemError("set the mode of", temporary);
  file.Close();
  if (status.ok() && std::rename(temporary.c_str(), path.c_str()) != 0) {
    status = SystemError("rename to", path);
  }
  if (!status.ok()) {
    unlink(temporary.c_str());
    return status;
  }
  const std::string folder = std::filesystem::path(path).parent_path().string();
  return SyncFolder(folder.empty() ? "." : folder);
}

namespace {

constexpr std::chrono::milliseconds kBetweenTries{20};

// Who wrote into the lock's file last: `process 123 has it`; empty when nobody did.
std::string HolderIn(int file) {
  const std::string text = ReadText(file, 0, 23);
  int pid = 0;
  const auto error = std::from_chars(text.data(), text.data() + text.size(), pid).ec;
  return error == std::errc() ? fmt::format("process {} has it", pid) : "";
}

// For people alone: who waits for the lock asks the kernel.
void WriteHolder(int file) {
  if (ftruncate(file, 0) == 0) (void)WriteAll(file, std::to_string(getpid()) + "\n");
}

}  // namespace

StatusOr<std::unique_ptr<FolderLock>> FolderLock::Take(const std::string& folder,
                                                       const Options& options) {
  const std::string path = folder + "/lock";
  OwnedFile owned(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!owned.valid()) {
    return Error(absl::StatusCode::kUnavailable, "{} {}: cannot open {}: {}", options.flag, folder,
                 path, std::strerror(errno));
  }
  const int file = owned.get();
  std::unique_ptr<FolderLock> lock(new FolderLock(std::move(owned)));
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

OwnedFile& OwnedFile::operator=(OwnedFile&& other) noexcept {
  if (this == &other) return *this;
  Close();
  file_ = other.Release();
  return *this;
}

void OwnedFile::Close() {
  if (file_ >= 0) close(Release());
}

bool IsPlainFileName(const std::string& name) {
  const auto allowed = [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '.' || c == '_' || c == '-';
  };
  return !name.empty() && name.size() <= 100 && name.front() != '.' &&
         std::ranges::all_of(name, allowed);
}

StatusOr<std::string> ReadNamedFile(const std::string& what, const std::string& path) {
  if (path == "-") return std::string(std::istreambuf_iterator<char>(std::cin), {});
  // Opening a folder succeeds, and reading it would throw.
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) {
    return InvalidArgument("cannot read {} {}: it is a folder", what, path);
  }
  std::ifstream stream(path, std::ios::binary);
  std::string text(std::istreambuf_iterator<char>(stream), {});
  if (!stream.is_open() || stream.bad()) {
    return InvalidArgument("cannot read {} {}: {}", what, path, std::strerror(errno));
  }
  return text;
}

}  // namespace ringmaster
