// Opens files that lie beneath a folder and nowhere else, whatever `..` or symbolic links say, and
// reads at a place of them.
// Thread-safe (free functions).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "common/status.h"

namespace ringmaster::data {

// A file descriptor that closes itself.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int value) : value_(value) {}
  ~Descriptor() { Close(); }
  Descriptor(Descriptor&& other) noexcept : value_(std::exchange(other.value_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(value_, other.value_);
    return *this;
  }
  int get() const { return value_; }
  bool valid() const { return value_ >= 0; }

 private:
  void Close() const;
  int value_ = -1;
};

enum class Wanted { kFolder, kFile };

// `root` as the user gave it; symbolic links in it are the user's own.
[[nodiscard]] StatusOr<Descriptor> OpenFolder(const std::string& root);

// `path` relative to `folder`. NOT_FOUND when there is none; INVALID_ARGUMENT when it leads out of
// `folder` or is not what is wanted (a pipe or a device is no file). Symbolic links are followed
// while they stay inside; on a kernel without openat2 (before 5.6) every link is refused.
[[nodiscard]] StatusOr<Descriptor> OpenBeneath(const Descriptor& folder, const std::string& path,
                                               Wanted wanted);

// The names in a folder, but for those that begin with a dot; both lists are sorted by their bytes.
// A link counts as what it leads to.
struct FolderEntries {
  std::vector<std::string> folders, files;
};
// `path` relative to `folder`; errors as OpenBeneath.
[[nodiscard]] StatusOr<FolderEntries> ListFolder(const Descriptor& folder, const std::string& path);

// What OpenBeneath falls back to without openat2: a descriptor, or -1 and errno.
[[nodiscard]] int OpenWithoutLinks(int folder, const std::string& path, Wanted wanted);

// Reads as many bytes as there are from `offset` on, at most bytes.size(). UNAVAILABLE says what
// the system says.
[[nodiscard]] StatusOr<size_t> ReadUpTo(int descriptor, uint64_t offset, std::span<uint8_t> bytes);

// Reads exactly bytes.size(). DATA_LOSS also when the file ends before.
[[nodiscard]] Status ReadExactly(int descriptor, uint64_t offset, std::span<uint8_t> bytes);

}  // namespace ringmaster::data
