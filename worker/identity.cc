#include "worker/identity.h"

#include <elf.h>
#include <link.h>
#include <sys/random.h>
#include <unistd.h>

#include <array>
#include <charconv>
#include <cstring>
#include <fstream>
#include <iterator>
#include <span>

#include "common/check.h"
#include "common/durable_file.h"
#include "common/sha256.h"

namespace ringmaster::worker {
namespace {

// Finds the build id note of the first object, which is the program itself.
int FindBuildId(dl_phdr_info* info, size_t, void* result) {
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr)& header = info->dlpi_phdr[i];
    if (header.p_type != PT_NOTE) continue;
    const char* at = reinterpret_cast<const char*>(info->dlpi_addr + header.p_vaddr);
    const char* const end = at + header.p_memsz;
    while (at + sizeof(ElfW(Nhdr)) <= end) {
      ElfW(Nhdr) note;
      std::memcpy(&note, at, sizeof(note));
      const char* const name = at + sizeof(note);
      const char* const content = name + ((note.n_namesz + 3) & ~3U);
      if (note.n_type == NT_GNU_BUILD_ID && std::strncmp(name, "GNU", 4) == 0) {
        *static_cast<std::string*>(result) =
            Hex({reinterpret_cast<const uint8_t*>(content), note.n_descsz});
        return 1;
      }
      at = content + ((note.n_descsz + 3) & ~3U);
    }
  }
  return 1;  // only the program: stop here
}

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
  std::string id;
  dl_iterate_phdr(&FindBuildId, &id);
  return id.empty() ? "unknown" : id;
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
