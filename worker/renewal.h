// Renews this worker's certificate when two thirds of its life are over, with the coordinator, by a
// new key. Connections that stand keep the old one; those that are made from then on have the new
// one. Owned by the daemon; thread-safe.
#pragma once

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "common/mutex.h"
#include "common/pki/identity.h"
#include "common/status.h"
#include "ringmaster/v1/access.pb.h"

namespace ringmaster::worker {

class Renewal {
 public:
  // `folder` as in Security; without one there is nothing to do.
  Renewal(std::string folder, std::shared_ptr<grpc::Channel> coordinator)
      : folder_(std::move(folder)), coordinator_(std::move(coordinator)) {}
  ~Renewal() { Stop(); }

  void Start();
  // Breaks off a call that is under way. Idempotent.
  void Stop();

 private:
  void Run();
  // When to look again: after a renewal, or a failure, which is logged once.
  [[nodiscard]] std::chrono::milliseconds Look();
  [[nodiscard]] Status Renew(const pki::Identity& own);
  [[nodiscard]] StatusOr<v1::IssuedCertificate> Ask(const v1::RenewRequest& request);

  const std::string folder_;
  const std::shared_ptr<grpc::Channel> coordinator_;
  std::string said_;  // thread "renew"

  Mutex mu_;
  Condition changed_;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  grpc::ClientContext* call_ ABSL_GUARDED_BY(mu_) = nullptr;  // that is under way

  std::jthread thread_;  // "renew"; last: it uses everything above
};

}  // namespace ringmaster::worker
