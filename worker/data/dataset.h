// A dataset under --data-root: what it is (facts, with SHA-256) and its records, read at random.
// Owned by the job that a worker serves; opened on the session's side, read by the reader and the
// cores. Thread-safe once open. Knows no shuffling, no augmentation and no shards.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "common/data/cifar10.h"
#include "common/status.h"
#include "ringmaster/v1/job.pb.h"
#include "worker/data/beneath.h"
#include "worker/data/hash_cache.h"

namespace ringmaster::worker {

// Where datasets may lie, and where the SHA-256 of their files are remembered (by device, inode,
// size and modification time). An empty state_dir remembers nothing.
struct DatasetFolders {
  std::string data_root;
  std::string state_dir;
};

class Dataset {
 public:
  // Finds the dataset, checks every file and every label, and hashes what is not remembered.
  // Nothing outside data_root can be reached: paths with `..`, absolute paths and symbolic links
  // that lead out are refused. NOT_FOUND: the folder or a split is missing; INVALID_ARGUMENT: the
  // path or the format; FAILED_PRECONDITION: a file that is not what its format says, with the
  // file, record and value.
  [[nodiscard]] static StatusOr<std::shared_ptr<const Dataset>> Open(const DatasetFolders& folders,
                                                                     const v1::DataSource& source);

  const v1::DatasetFacts& facts() const { return facts_; }
  [[nodiscard]] uint64_t samples(data::Split split) const;

  // Reads sample `index` of a split: returns its label and fills `pixels` (height * width *
  // channels bytes, H,W,C). OUT_OF_RANGE past the end; DATA_LOSS names file and record when the
  // file shrank or changed under us: it is not what was hashed any more.
  [[nodiscard]] StatusOr<int32_t> Read(data::Split split, uint64_t index,
                                       std::span<uint8_t> pixels) const;

 private:
  struct OpenFile {
    std::string name;
    Descriptor descriptor;
    uint64_t first_sample = 0;  // in its split
    uint64_t samples = 0;
    FileIdentity identity;  // when it was hashed
  };
  Dataset() = default;
  Status OpenFiles(const DatasetFolders& folders, const v1::DataSource& source);
  Status OpenSplit(const Descriptor& folder, data::Split split, HashCache* cache);
  const std::vector<OpenFile>& files(data::Split split) const {
    return split == data::Split::kTrain ? train_ : test_;
  }

  v1::DatasetFacts facts_;
  std::vector<OpenFile> train_, test_;
};

}  // namespace ringmaster::worker
