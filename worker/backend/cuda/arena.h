// Memory that grows: of the GPU that is current, or of the host, page-locked, so that copies
// between the two run by themselves. It grows by moving, and its content is lost: whoever keeps
// addresses compares version(). Thread-compatible; grown only while no work that uses it is on a
// stream.
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/status.h"

namespace ringmaster::cuda {

enum class Place : uint8_t { kDevice, kPinned };

class Arena {
 public:
  explicit Arena(Place place) : place_(place) {}
  ~Arena() { Free(); }
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  // Makes at least `bytes` usable, from a multiple of 256 on. RESOURCE_EXHAUSTED when the GPU or
  // the host has no more; then nothing is left.
  [[nodiscard]] Status Grow(size_t bytes);

  [[nodiscard]] std::byte* data() const { return data_; }
  [[nodiscard]] size_t size() const { return size_; }
  // Changes whenever data() does.
  [[nodiscard]] uint64_t version() const { return version_; }

 private:
  void Free();

  const Place place_;
  std::byte* data_ = nullptr;
  size_t size_ = 0;
  uint64_t version_ = 0;
};

}  // namespace ringmaster::cuda
