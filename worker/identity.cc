#include "worker/identity.h"

#include <sys/random.h>
#include <unistd.h>

#include <array>

#include "common/check.h"
#include "common/sha256.h"

namespace ringmaster::worker {

std::string HostName() {
  std::array<char, 256> name{};
  const bool known = gethostname(name.data(), name.size() - 1) == 0 && name[0] != 0;
  return known ? name.data() : "worker";
}

std::string RandomIncarnation() {
  std::array<uint8_t, 16> bytes;
  RING_CHECK(getrandom(bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size()),
             "the kernel gives no random bytes");
  return Hex(bytes);
}

}  // namespace ringmaster::worker
