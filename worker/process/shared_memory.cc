#include "worker/process/shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace ringmaster {

SharedMemory& SharedMemory::operator=(SharedMemory&& other) noexcept {
  if (this != &other) {
    if (data_ != nullptr) munmap(data_, bytes_);
    file_ = std::move(other.file_);
    data_ = std::exchange(other.data_, nullptr);
    bytes_ = std::exchange(other.bytes_, 0);
  }
  return *this;
}

SharedMemory::~SharedMemory() {
  if (data_ != nullptr) munmap(data_, bytes_);
}

StatusOr<SharedMemory> SharedMemory::Create(const char* what, size_t bytes, Access others) {
  const auto error = [&] {
    return Error(absl::StatusCode::kResourceExhausted,
                 "cannot make {} bytes of shared memory for {}: {}", bytes, what,
                 std::strerror(errno));
  };
  OwnedFile file(memfd_create(what, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (file.get() < 0 || ftruncate(file.get(), static_cast<off_t>(bytes)) != 0 ||
      fcntl(file.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0) {
    return error();
  }
  RING_ASSIGN_OR_RETURN(SharedMemory memory, Map(std::move(file), bytes, Access::kWrite));
  // This view stays, and is the last one that can be written.
  const int seals = F_SEAL_SEAL | (others == Access::kRead ? F_SEAL_FUTURE_WRITE : 0);
  if (fcntl(memory.file(), F_ADD_SEALS, seals) != 0) return error();
  return memory;
}

StatusOr<SharedMemory> SharedMemory::Map(OwnedFile file, size_t bytes, Access access) {
  struct stat facts = {};
  const int seals = fcntl(file.get(), F_GET_SEALS);
  if (fstat(file.get(), &facts) != 0 || seals < 0 || (seals & F_SEAL_SHRINK) == 0 ||
      static_cast<size_t>(facts.st_size) < bytes) {
    return InvalidArgument("shared memory: expected a sealed file of {} bytes, got one of {}",
                           bytes, facts.st_size);
  }
  SharedMemory memory;
  memory.file_ = std::move(file);
  if (bytes == 0) return memory;
  const int protection = access == Access::kRead ? PROT_READ : PROT_READ | PROT_WRITE;
  void* const data = mmap(nullptr, bytes, protection, MAP_SHARED, memory.file_.get(), 0);
  if (data == MAP_FAILED) {
    return Error(absl::StatusCode::kResourceExhausted, "cannot map {} bytes of shared memory: {}",
                 bytes, std::strerror(errno));
  }
  memory.data_ = static_cast<std::byte*>(data);
  memory.bytes_ = bytes;
  return memory;
}

}  // namespace ringmaster
