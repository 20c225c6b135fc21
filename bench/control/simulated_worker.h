// A worker without training, over a real session: it answers every message of the protocol at the
// top of fleet.proto at once, and its steps are a matter of the clock. It attaches again when its
// session ends. Thread-safe; a session that goes on keeps it.
#pragma once

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>

#include "common/mutex.h"
#include "ringmaster/v1/fleet.grpc.pb.h"

namespace ringmaster::bench {

// What all workers of a fleet share.
struct FleetCounts {
  std::atomic<int> running{0};       // workers that were told Start, and whose session goes on
  std::atomic<uint64_t> starts{0};   // told
  std::atomic<uint64_t> ended{0};    // sessions of attached workers
  std::atomic<uint64_t> said{0};     // messages
  std::atomic<uint64_t> skipped{0};  // heartbeats that would have waited behind sixteen others
};

class SimulatedWorker : public std::enable_shared_from_this<SimulatedWorker> {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::milliseconds kStep{20};  // of a job

  SimulatedWorker(std::string name, std::string address, std::shared_ptr<FleetCounts> counts);

  // Every 100 ms: a heartbeat, and a report when its job runs and that is due; a new session when
  // it has none.
  void Beat(Clock::time_point now);
  // No session any more.
  void Stop();

 private:
  class Session;
  struct Job {
    std::string id;
    v1::Generation generation;
    google::protobuf::RepeatedPtrField<v1::ClassMap> class_maps;
    bool runs = false;
    Clock::time_point began, reported;
    uint64_t first = 0, applied = 0;
  };

  void Connect() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Hear(const v1::CoordinatorMessage& message) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Say(v1::WorkerMessage message) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void SayAttach() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void SayProgress(Clock::time_point now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Advance(Clock::time_point now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void SetRuns(bool runs) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const std::string name_;
  const std::string address_;
  const std::shared_ptr<FleetCounts> counts_;

  Mutex mu_;
  std::shared_ptr<grpc::Channel> channel_ ABSL_GUARDED_BY(mu_);
  std::unique_ptr<v1::Fleet::Stub> stub_ ABSL_GUARDED_BY(mu_);
  std::shared_ptr<Session> session_ ABSL_GUARDED_BY(mu_);
  bool attached_ ABSL_GUARDED_BY(mu_) = false;
  bool stopped_ ABSL_GUARDED_BY(mu_) = false;
  uint64_t term_ ABSL_GUARDED_BY(mu_) = 0;
  Job job_ ABSL_GUARDED_BY(mu_);
};

}  // namespace ringmaster::bench
