// Files and folders of a daemon's own: nobody else's to read, whatever the umask, written so that
// they are there, whole, after a crash (temporary name, fsync, rename, fsync of the folder), and
// locked. And an open file, its bytes, and files that a command line names. Functions are
// thread-safe.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include <sys/types.h>

#include "common/status.h"

namespace ringmaster {

// Replaces `path` by `content`, whatever mode it had by `mode`. After an error the old file is
// untouched and no temporary is left.
[[nodiscard]] Status WriteDurably(const std::string& path, const std::string& content,
                                  mode_t mode = 0600);

// Makes a folder, and those above it that are missing, for this user alone (0700). One that is
// there is made so, too; but a folder that somebody else named is kept as it is, with a warning
// when everybody may read it or others may write to it. UNAVAILABLE: it cannot be made, or is none.
enum class IfThere { kTighten, kKeep };
[[nodiscard]] Status MakePrivateFolder(const std::string& path, IfThere there = IfThere::kTighten);

// Makes an empty file for this user alone (0600), or makes one that is there so. Never through a
// symbolic link.
[[nodiscard]] Status MakePrivateFile(const std::string& path);

// Of the disk that a folder is on, for this user; nullopt: it is not known.
[[nodiscard]] std::optional<uint64_t> FreeBytes(const std::string& folder);

// Makes the names in a folder durable.
[[nodiscard]] Status SyncFolder(const std::string& folder);

// A file descriptor, or -1; closed when it goes. Thread-compatible.
class OwnedFile {
 public:
  explicit OwnedFile(int file = -1) : file_(file) {}
  OwnedFile(OwnedFile&& other) noexcept : file_(other.Release()) {}
  OwnedFile& operator=(OwnedFile&& other) noexcept;
  ~OwnedFile() { Close(); }
  [[nodiscard]] int get() const { return file_; }
  [[nodiscard]] bool valid() const { return file_ >= 0; }
  int Release() { return std::exchange(file_, -1); }
  void Close();

 private:
  int file_;
};

// All of `bytes`, however few the system takes at a time: where the file stands, or from `offset`
// on. False: errno says why, for the caller's words, and a part of them may be written.
[[nodiscard]] bool WriteAll(int file, std::span<const uint8_t> bytes);
[[nodiscard]] bool WriteAll(int file, const std::string& text);
[[nodiscard]] bool WriteAllAt(int file, uint64_t offset, std::span<const uint8_t> bytes);

// Reads as many bytes as there are from `offset` on, at most bytes.size(). UNAVAILABLE says what
// the system says; the caller names the file.
[[nodiscard]] StatusOr<size_t> ReadUpTo(int file, uint64_t offset, std::span<uint8_t> bytes);
// Reads exactly so many. DATA_LOSS also when the file ends before.
[[nodiscard]] Status ReadExactly(int file, uint64_t offset, std::span<uint8_t> bytes);
[[nodiscard]] StatusOr<std::string> ReadExactly(int file, uint64_t offset, uint64_t bytes);
// Likewise what can be read: fewer at the file's end, and before what the disk does not give.
[[nodiscard]] std::string ReadText(int file, uint64_t offset, uint64_t most_bytes);

// A lock on a folder of one program's own, so that two processes never share it. The kernel lets it
// go when the process is over, however it ended; who comes next right after a kill waits a while
// for that. Owned by what uses the folder; thread-compatible.
class FolderLock {
 public:
  struct Options {
    std::string flag;     // names the folder in messages: --state-dir
    std::string program;  // that uses such folders: ringworker
    std::chrono::milliseconds patience{10'000};
    // Told once, when it begins to wait; by default a line of the log.
    std::function<void(const std::string& line)> waits;
  };

  // Locks `folder`, which exists, by its file `lock`. FAILED_PRECONDITION: another process has it,
  // after all patience; UNAVAILABLE: the file cannot be used, and why. Signals do not end the wait.
  [[nodiscard]] static StatusOr<std::unique_ptr<FolderLock>> Take(const std::string& folder,
                                                                  const Options& options);

 private:
  explicit FolderLock(OwnedFile file) : file_(std::move(file)) {}
  const OwnedFile file_;
};

// A name that a file of a checkpoint may have: letters, digits, '.', '_', '-', no leading dot, at
// most 100.
[[nodiscard]] bool IsPlainFileName(const std::string& name);

// A file that the command line names, read whole; `-` is stdin. INVALID_ARGUMENT: `what` it is, its
// path, and why it cannot be read.
[[nodiscard]] StatusOr<std::string> ReadNamedFile(const std::string& what, const std::string& path);

}  // namespace ringmaster
