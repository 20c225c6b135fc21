// A file that is in memory alone, for readers that take a descriptor.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <span>

#include "common/check.h"
#include "common/data/beneath.h"

namespace ringmaster {

inline OwnedFile MemoryFile(std::span<const uint8_t> bytes) {
  OwnedFile file(memfd_create("bytes", MFD_CLOEXEC));
  RING_CHECK(file.valid(), "a file in memory");
  const ssize_t wrote = write(file.get(), bytes.data(), bytes.size());
  RING_CHECK(wrote == static_cast<ssize_t>(bytes.size()), "a file in memory");
  return file;
}

}  // namespace ringmaster
