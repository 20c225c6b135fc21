// One child as the worker sees it: its lane, its slot, and what it computed. A ChildSource starts
// them. A child and what it gives are one thread's, but for Interrupt; a source is thread-safe.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <span>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "common/files.h"
#include "common/status.h"
#include "ringmaster/v1/script.pb.h"
#include "worker/process/shared_memory.h"
#include "worker/script/protocol.h"

namespace ringmaster::script {

// What a child said of itself at its attach.
struct Attached {
  v1::ScriptFacts facts;
  OwnedFile initial = OwnedFile();  // float32, dense, in the order of the tensors
};

// How a child ended.
struct Fate {
  std::string words;    // was killed by signal 9 (...)
  bool killed = false;  // by SIGKILL, which says nothing of its script
};

// The process of a child, where it is one that may be ended.
struct ChildProcess {
  std::string called;              // in messages: core0 (process 4711)
  OwnedFile handle = OwnedFile();  // a pidfd; none: it is not ours to end, or has ended
  std::function<Fate()> fate;      // once it has ended
  std::chrono::milliseconds stack_limit{1'000};  // of Kill, for what it writes
};

class Child {
 public:
  Child(OwnedFile lane, ChildProcess process)
      : lane_(std::move(lane)), process_(std::move(process)) {}
  ~Child();  // tells it to leave
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  // Says HELLO, and waits until the script attaches. FAILED_PRECONDITION: it raised, with the
  // traceback, or ended; DATA_LOSS: it does not speak the protocol.
  [[nodiscard]] StatusOr<Attached> Attach(const v1::ScriptHello& hello, Deadline deadline);
  // Maps the state and a slot of its own, where tensors lie at these offsets of `bytes`.
  [[nodiscard]] Status LayOut(const v1::ScriptLayout& layout, const SharedMemory& state,
                              Deadline deadline);
  [[nodiscard]] bool laid_out() const { return slot_.bytes() > 0; }
  // That this shard may come: while no other one is computed. A child that is gone is told nothing.
  [[nodiscard]] Status Foretell(const ComingShard& coming, Deadline deadline);
  // Every tensor's gradient is in the slot then. `complete` is called for each tensor, 0, 1, ...,
  // as soon as its own and all before it are there, while the child goes on. UNAVAILABLE: it died,
  // or does not answer in time: another one may compute the shard. Else as Attach.
  [[nodiscard]] StatusOr<ShardDone> Compute(const ShardCall& call, size_t metrics, size_t groups,
                                            size_t tensors, Deadline deadline,
                                            const std::function<void(uint32_t tensor)>& complete);
  [[nodiscard]] std::span<const float> slot(size_t offset, size_t elements) const {
    return {reinterpret_cast<const float*>(slot_.data() + offset), elements};
  }
  [[nodiscard]] const std::string& called() const { return process_.called; }
  [[nodiscard]] bool killed() const { return killed_; }  // known once something was UNAVAILABLE
  // What is waited for here ends soon with UNAVAILABLE, and so does the child. Any thread.
  void Interrupt();
  // Of one that does not answer: its stacks go to its log, and it ends.
  void Kill();

 private:
  // How it ended, once its lane has.
  [[nodiscard]] Fate FateNow() const;
  // The next packet, which is of this kind; what a script raised as an error.
  [[nodiscard]] StatusOr<Packet> Expect(PacketKind kind, Deadline deadline);
  [[nodiscard]] StatusOr<Packet> Next(Deadline deadline);

  const OwnedFile lane_;
  const ChildProcess process_;
  bool killed_ = false;
  SharedMemory slot_;
};

struct StartedChild {
  std::unique_ptr<Child> child;
  Attached attached;
};

class ChildSource {
 public:
  virtual ~ChildSource() = default;
  // A child that has attached. FAILED_PRECONDITION: none can be had, or its script raised;
  // UNAVAILABLE: it died on its way; DEADLINE_EXCEEDED: it was there for `patience`, and did not
  // attach; CANCELLED: `stop` came first.
  [[nodiscard]] virtual StatusOr<StartedChild> Start(const v1::ScriptHello& hello,
                                                     std::chrono::milliseconds patience,
                                                     const std::stop_token& stop) = 0;
};

}  // namespace ringmaster::script
