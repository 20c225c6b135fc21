// What the executor acts on, as it sees it. The daemon has gRPC, threads and disks behind these
// (service/control_loop.h), the simulator virtual ones (tests/sim/sim_coordinator.h). Everything is
// called on the loop, and nothing of it blocks. None of them decides anything.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "coordinator/logic/action.h"
#include "coordinator/logic/event.h"
#include "coordinator/store/store.h"

namespace ringmaster::coordinator {

class Clock {
 public:
  using Time = std::chrono::microseconds;  // of a steady clock
  struct Moment {
    Time steady{0};
    int64_t unix_ms = 0;
  };
  virtual ~Clock() = default;
  [[nodiscard]] virtual Moment Read() const = 0;
};

// Commits to the Store, elsewhere and one at a time.
class Committer {
 public:
  virtual ~Committer() = default;
  // Store::WriteAll, whose end is told by Executor::Written, never inside of this call. `writes`
  // stay where they are until then. False: not now, it will be asked again.
  [[nodiscard]] virtual bool Begin(std::vector<const StoreWrite*> writes) = 0;
};

// Sessions, uploads and benches by their ids; of those that are over nothing happens.
class Streams {
 public:
  virtual ~Streams() = default;
  virtual void Send(const coordinator::Send& action) = 0;
  virtual void Admit(const coordinator::Admit& action) = 0;
  virtual void Close(const CloseSession& action) = 0;
  virtual void Admit(const AdmitUpload& action) = 0;
  virtual void End(const EndUpload& action) = 0;
  virtual void End(const EndBench& action) = 0;
};

// What everyone may read, and the log.
class Board {
 public:
  virtual ~Board() = default;
  virtual void Publish(JobView view) = 0;
  // There is no such job any more.
  virtual void Forget(const std::string& job_id) = 0;
  virtual void PublishWorkers(v1::ListWorkersResponse workers) = 0;
  // A sentence while the store cannot be written, and what is shown is older than what is; else
  // empty.
  virtual void NoteStoreTrouble(const std::string& trouble) = 0;
};

class Log {
 public:
  virtual ~Log() = default;
  virtual void Write(Severity severity, const std::string& line) = 0;
};

// The checkpoint folder, and the log lines of jobs that go: calls are answered by events of their
// own, later.
class Disk {
 public:
  virtual ~Disk() = default;
  // CheckpointFound; or Executor::PutOff, when it could not look.
  virtual void Find(const FindCheckpoint& action) = 0;
  // UploadPlaced, whatever happens.
  virtual void Place(UploadId upload) = 0;
  // CheckpointsRead, whatever happens.
  virtual void Read(const ReadBack& action) = 0;
  // A checkpoint that the store does not know any more. No event tells of it.
  virtual void Remove(const std::string& path) = 0;
  // The checkpoints and the log lines of a job that the store removed. No event tells of it.
  virtual void RemoveJob(const std::string& job_id) = 0;
};

struct Seams {
  Clock* clock;
  Committer* committer;
  Streams* streams;
  Board* board;
  Log* log;
  Disk* disk;
};

}  // namespace ringmaster::coordinator
