// Renews this worker's certificate when two thirds of its life are over, and also behind its end:
// a host may have slept. Connections that stand keep the old one; those that are made from then on
// have the new one. Owned by the daemon; thread-safe.
#pragma once

#include <grpcpp/client_context.h>

#include <chrono>
#include <string>
#include <thread>
#include <utility>

#include "common/mutex.h"
#include "common/pki/credential_folder.h"
#include "common/rpc/renewal.h"
#include "common/status.h"

namespace ringmaster::worker {

class Renewal {
 public:
  // Its folder as in Security; without one there is nothing to do.
  explicit Renewal(RenewalPlace place) : place_(std::move(place)) {}
  ~Renewal() { Stop(); }

  void Start();
  // Breaks off a call that is under way, but for a join, which has 5 s. Idempotent.
  void Stop();

 private:
  void Run();
  // When to look again: after a renewal, or a failure, which is logged once.
  [[nodiscard]] std::chrono::milliseconds Look();
  [[nodiscard]] Status Renew(const pki::Credentials& own, pki::Time now);

  const RenewalPlace place_;
  std::string said_;  // thread "renew"

  Mutex mu_;
  Condition changed_;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  grpc::ClientContext* call_ ABSL_GUARDED_BY(mu_) = nullptr;  // that is under way

  std::jthread thread_;  // "renew"; last: it uses everything above
};

}  // namespace ringmaster::worker
