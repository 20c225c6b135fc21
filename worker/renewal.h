// Renews this worker's certificate when two thirds of its life are over, with the coordinator, by a
// new key. Connections that stand keep the old one; those that are made from then on have the new
// one. Owned by the daemon; thread-safe.
#pragma once

#include <grpcpp/channel.h>

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "common/mutex.h"
#include "common/status.h"

namespace ringmaster::worker {

class Renewal {
 public:
  // `folder` as in Security; without one there is nothing to do.
  Renewal(std::string folder, std::shared_ptr<grpc::Channel> coordinator)
      : folder_(std::move(folder)), coordinator_(std::move(coordinator)) {}
  ~Renewal() { Stop(); }

  void Start();
  // Ends within the limit of one call. Idempotent.
  void Stop();

 private:
  void Run();
  // When to look again: after a renewal, or a failure, which is logged once.
  [[nodiscard]] std::chrono::milliseconds Look();
  [[nodiscard]] Status Renew();

  const std::string folder_;
  const std::shared_ptr<grpc::Channel> coordinator_;
  std::string said_;  // thread "renew"

  Mutex mu_;
  Condition changed_;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;

  std::jthread thread_;  // "renew"; last: it uses everything above
};

}  // namespace ringmaster::worker
