// Reads checkpoints back from the disk, one after the other, and tells of each whether its files
// are what their manifest says. It reads a part at a time, so that whoever else needs the disk
// thread waits for a part and not for a checkpoint. One that is removed meanwhile is read to its
// end all the same, as its files are open. Holds itself until it is done. It removes nothing.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/loop.h"
#include "common/status.h"
#include "coordinator/store/checkpoint_reader.h"
#include "ringmaster/v1/jobs.pb.h"

namespace ringmaster::coordinator {

class CheckpointCheck : public std::enable_shared_from_this<CheckpointCheck> {
 public:
  struct Verdict {
    Status status;       // not OK: the file, and what differs
    std::string digest;  // hex, in its manifest, when it is OK
  };
  enum class Next { kGoOn, kEnough };
  struct Hearer {
    // Of refs[index], in their order. Disk thread.
    std::function<Next(size_t index, const Verdict& verdict)> tell;
    // Asked before each part; false ends it. May be empty. Disk thread.
    std::function<bool()> wanted;
    // Once, after the last one; UNAVAILABLE: the disk thread stops or has too much to do. Disk
    // thread, or the one that began.
    std::function<void(const Status& status)> end;
  };

  // `disk` runs every task that it took, so that `hearer` is always told the end.
  static void Begin(Loop& disk, std::vector<v1::CheckpointRef> refs, Hearer hearer);

 private:
  CheckpointCheck(Loop& disk, std::vector<v1::CheckpointRef> refs, Hearer hearer)
      : disk_(disk), refs_(std::move(refs)), hearer_(std::move(hearer)) {}
  void Continue();
  void ReadPart();  // disk thread
  [[nodiscard]] StatusOr<bool> ReadToEnd();
  [[nodiscard]] Next Tell(const Status& status);

  Loop& disk_;
  const std::vector<v1::CheckpointRef> refs_;
  const Hearer hearer_;
  // One task works on it at a time.
  size_t current_ = 0;
  std::unique_ptr<CheckpointReader> reader_;
};

}  // namespace ringmaster::coordinator
