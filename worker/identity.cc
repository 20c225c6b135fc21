#include "worker/identity.h"

#include <sys/random.h>
#include <unistd.h>

#include <array>
#include <charconv>
#include <fstream>
#include <iterator>

#include "common/build_id.h"
#include "common/check.h"
#include "common/durable_file.h"
#include "common/sha256.h"

namespace ringmaster::worker {
namespace {

std::string TermPath(const std::string& state_dir) { return state_dir + "/term"; }

}  // namespace

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

std::string BuildId() {
  static const char here = 0;
  return BuildIdOf(&here);
}

StatusOr<uint64_t> LoadHighestTerm(const std::string& state_dir) {
  std::ifstream file(TermPath(state_dir));
  if (!file) return 0;
  const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  uint64_t term = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), term);
  if (error != std::errc() || end == text.data()) {
    return Error(absl::StatusCode::kDataLoss,
                 "{} does not hold a number; remove it only if no coordinator with an older store "
                 "can come back",
                 TermPath(state_dir));
  }
  return term;
}

Status StoreHighestTerm(const std::string& state_dir, uint64_t term) {
  return WriteDurably(TermPath(state_dir), std::to_string(term) + "\n");
}

}  // namespace ringmaster::worker
