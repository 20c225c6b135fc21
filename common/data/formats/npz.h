// numpy's .npz archives: zip (PKWARE's APPNOTE) with a .npy file a member, stored or deflated. The
// directory of such an archive; the format npz is in npz.cc. Thread-safe (free functions).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/data/formats/npy.h"

namespace ringmaster::data {

struct ZipMember {
  std::string name;
  bool deflated = false;
  uint64_t begin = 0;         // of its bytes in the file
  uint64_t stored_bytes = 0;  // there
  uint64_t bytes = 0;         // inflated
  uint32_t crc32 = 0;         // inflated
};

// The members of an archive of so many bytes, in the order of its directory. Every length is held
// against the file's before anything is read or allocated. FAILED_PRECONDITION: it is no archive,
// or one that is cut, encrypted, compressed in another way, or whose members overlap; it names the
// member.
[[nodiscard]] StatusOr<std::vector<ZipMember>> ReadZipDirectory(uint64_t bytes,
                                                                const ReadBytes& read);

// What a member of an archive with both splits is: `x_train.npy` or `train_x.npy` is x of train.
struct SplitColumn {
  std::string column;
  Split split = Split::kTrain;
};
// Nothing when the name says no split.
[[nodiscard]] std::optional<SplitColumn> SplitOfName(const std::string& name);

}  // namespace ringmaster::data
