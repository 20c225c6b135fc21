// A service of a test on a server of its own, with a channel that needs no port to be known. The
// server ends with it, before the service: declare it last, or derive the service and hold it
// there. Thread-safe.
#pragma once

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <memory>

#include "common/check.h"

namespace ringmaster::testing {

class Served {
 public:
  explicit Served(grpc::Service* service) {
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(service);
    server_ = builder.BuildAndStart();
    RING_CHECK(server_ != nullptr, "the service of the test listens");
    channel_ = server_->InProcessChannel({});
  }
  ~Served() { server_->Shutdown(std::chrono::system_clock::now()); }
  Served(const Served&) = delete;
  Served& operator=(const Served&) = delete;

  [[nodiscard]] const std::shared_ptr<grpc::Channel>& channel() const { return channel_; }

 private:
  std::unique_ptr<grpc::Server> server_;
  std::shared_ptr<grpc::Channel> channel_;
};

}  // namespace ringmaster::testing
