#include "common/data/read_at.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace ringmaster::data {

StatusOr<size_t> ReadUpTo(int descriptor, uint64_t offset, std::span<uint8_t> bytes) {
  size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t got = pread(descriptor, bytes.data() + done, bytes.size() - done,
                              static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return Error(absl::StatusCode::kUnavailable, "{}", std::strerror(errno));
    if (got == 0) break;
    done += static_cast<size_t>(got);
  }
  return done;
}

Status ReadExactly(int descriptor, uint64_t offset, std::span<uint8_t> bytes) {
  const StatusOr<size_t> got = ReadUpTo(descriptor, offset, bytes);
  if (!got.ok()) return {absl::StatusCode::kDataLoss, got.status().message()};
  if (*got == bytes.size()) return absl::OkStatus();
  return {absl::StatusCode::kDataLoss, "it ends early: it shrank while it was in use"};
}

}  // namespace ringmaster::data
