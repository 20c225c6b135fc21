#include "common/build_id.h"

#include <elf.h>
#include <fmt/format.h>
#include <link.h>

#include <cstdint>
#include <cstring>

#include "common/compute_id.h"
#include "common/sha256.h"

namespace ringmaster {
namespace {

struct Search {
  uintptr_t address;
  std::string id;
};

bool Holds(const dl_phdr_info& info, uintptr_t address) {
  for (int i = 0; i < info.dlpi_phnum; ++i) {
    const ElfW(Phdr)& header = info.dlpi_phdr[i];
    const uintptr_t begin = info.dlpi_addr + header.p_vaddr;
    if (header.p_type == PT_LOAD && address - begin < header.p_memsz) return true;
  }
  return false;
}

// Reads the build id note of the object that holds the address, and ends the search there.
int FindBuildId(dl_phdr_info* info, size_t, void* data) {
  Search& search = *static_cast<Search*>(data);
  if (!Holds(*info, search.address)) return 0;
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
        search.id = Hex({reinterpret_cast<const uint8_t*>(content), note.n_descsz});
        return 1;
      }
      at = content + ((note.n_descsz + 3) & ~3U);
    }
  }
  return 1;
}

// Of the running program, as hex.
std::string BuildId() {
  static const char here = 0;
  Search search{reinterpret_cast<uintptr_t>(&here), "unknown"};
  dl_iterate_phdr(&FindBuildId, &search);
  return search.id;
}

}  // namespace

std::string ComputeId() { return kComputeId; }

std::string VersionLine(const std::string& program) {
  constexpr size_t kShort = 12;
  return fmt::format("{} {} (build {}, compute {})", program, RINGMASTER_VERSION,
                     BuildId().substr(0, kShort), ComputeId().substr(0, kShort));
}

}  // namespace ringmaster
